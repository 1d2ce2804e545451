"""The spectral controls on a planted cohort, and their filters, kernels and learned filters by definition."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.analyses.features import AveragedEdges, PowerFamily
from fcpower_bids.analyses.learned_filters import (
    BinnedFilter,
    LearnedFilters,
    NetworkFilter,
    bin_eigenvalues,
    bin_weights,
    filter_grams,
    inner_loss,
    learn_filter,
)
from fcpower_bids.analyses.spectral_controls import (
    DOT_PRODUCTS,
    dot_kernel,
    filtered_features,
    modes,
    profile,
    rbf_kernel,
    squared_distances,
)
from fcpower_bids.analyses.study import open_study
from fcpower_bids.core.connectome import eigendecompose
from fcpower_bids.core.edges import rebuild_matrix, vectorise_edges
from fcpower_bids.core.kernels import correlation_kernel
from tests.analyses.cohorts import choose, weak_mode_cohort


@pytest.fixture(autouse=True, scope="module")
def few_random_filters():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fcpower_bids.analyses.spectral_controls.N_RANDOM_FILTERS", 4)
        yield


@pytest.fixture(scope="module")
def cohort():
    return weak_mode_cohort(n_parcels=24, n_volumes=80)


def test_the_correction_counts_controls_that_ask_the_same_question(cohort):
    """FC against FC^alpha stands alone; random filters are corrected among themselves."""
    settings = choose(targets=("weak",), repeats=2, folds=5)
    frame = ANALYSES["spectral_controls"](cohort, settings)["spectral_controls"].frame
    whole = frame[frame["representation"] == "fc"].iloc[0]
    assert whole["p_holm"] == whole["p_two_sided"]
    for _, rows in frame[frame["representation"] != "fc_power"].groupby("control"):
        known = rows["p_two_sided"].dropna()
        assert rows["p_holm"].min() == pytest.approx(min(1, known.min() * len(known)), nan_ok=True)


def test_distances_of_rank_deficient_connectomes_are_refused_and_the_rest_goes_on():
    cohort = weak_mode_cohort(n_people=30, n_parcels=24, n_volumes=80)
    edges = np.stack([np.corrcoef(run()[0][:20].T)[np.triu_indices(24, 1)] for run in cohort.series])
    short = dataclasses.replace(cohort, edges=edges, series=())
    frame = ANALYSES["spectral_controls"](short, choose(targets=("weak",), repeats=1, folds=3))
    scores = frame["spectral_controls"].frame.set_index("representation")
    refused = scores[scores["status"] == "refused"]
    full_rank = ["rbf_log_euclidean", "rbf_cholesky", "rbf_log_cholesky"]
    assert set(refused.index) == {*full_rank, "mode_20"}
    assert refused.loc[full_rank, "reason"].str.contains("rank-deficient").all()
    assert "constant" in refused.loc["mode_20", "reason"]


def test_test_people_do_not_touch_a_learned_filter(cohort, monkeypatch):
    """Nor where a value is missing and a second target is learned."""
    phenotypes = cohort.phenotypes.copy()
    phenotypes.iloc[5, 0] = np.nan
    settings = choose(targets=("weak", "noise"), repeats=1, folds=3)
    study = open_study(dataclasses.replace(cohort, phenotypes=phenotypes, series=()), settings)
    family = PowerFamily(AveragedEdges(cohort.edges, study.people.scans), settings, keep=True)
    learned = LearnedFilters(study, family)
    monkeypatch.setattr("fcpower_bids.analyses.learned_filters.N_ITERATIONS", 3)
    before = learned.validate("learned_bins")
    fold = study.folds[0]
    targets = [dataclasses.replace(each, measures=each.measures.copy()) for each in study.targets]
    targets[0].measures[fold.test] += 100
    monkeypatch.setattr(learned, "study", dataclasses.replace(study, targets=targets))
    np.testing.assert_allclose(learned.validate("learned_bins").predicted[0], before.predicted[0], atol=1e-7)


TOLERANCE = 1e-10


def family_of(edges, keep=True):
    return PowerFamily(AveragedEdges(edges, [[i] for i in range(len(edges))]), choose(), keep=keep)


@pytest.mark.parametrize("keep", [True, False])
def test_all_modes_are_fc_power_and_single_modes_add_up_to_it(keep):
    family = family_of(weak_mode_cohort(n_people=10).edges, keep)
    whole = family.features(0.35)
    single = [filtered_features(family, modes(i - 1, i, 0.35)) for i in range(1, 17)]
    np.testing.assert_allclose(filtered_features(family, modes(0, 16, 0.35)), whole, atol=1e-12)
    np.testing.assert_allclose(sum(single), whole, atol=1e-12)
    np.testing.assert_allclose(filtered_features(family, modes(0, 5, 0.35)), sum(single[:5]), atol=1e-12)


def test_profile_has_the_numbers_of_the_paper():
    weights = profile(np.linspace(30, 0.1, 400), TOLERANCE)
    assert weights[0] == 10
    assert weights[19] == 1
    assert (weights[20:380] == 0.01).all()
    assert weights[380] == 0.5
    assert weights[399] == 0.05
    deficient = profile(np.append(np.linspace(30, 0.1, 100), np.zeros(300)), TOLERANCE)
    assert (deficient[100:] == 0).all()
    assert deficient[99] == 0.05
    assert profile(np.array([2.0, 1.0, 0.5]), TOLERANCE)[0] == 10


@pytest.mark.parametrize(
    ("metric", "key"),
    [("euclidean", "euclid"), ("log_euclidean", "logeuclid"), ("cholesky", "chol"), ("log_cholesky", "logchol")],
)
def test_distances_agree_with_pyriemann(golden, metric, key):
    family = family_of(vectorise_edges(golden["corr"], weighted=False))
    distances = np.sqrt(squared_distances(metric, family, choose()))
    np.testing.assert_allclose(distances, golden[f"pyriemann_pairdist_{key}"], rtol=1e-7, atol=1e-6)


def test_dot_products_by_definition():
    rows = np.random.default_rng(0).standard_normal((7, 40)) + 1
    centred = rows - rows.mean(axis=1, keepdims=True)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    expected = {
        "pearson": correlation_kernel(rows),
        "cosine": unit @ unit.T,
        "centred_dot": centred @ centred.T / (centred**2).sum(axis=1).mean(),
        "raw_dot": rows @ rows.T / (rows**2).sum(axis=1).mean(),
    }
    assert set(expected) == set(DOT_PRODUCTS)
    for name, kernel in expected.items():
        np.testing.assert_allclose(dot_kernel(name, rows), kernel, rtol=0, atol=1e-12)


def test_rbf_kernel_at_the_median_distance():
    squared = np.array([[0.0, 4.0, 4.0], [4.0, 0.0, 9.0], [4.0, 9.0, 0.0]])
    kernel = rbf_kernel(squared)
    np.testing.assert_allclose(np.diag(kernel), 1)
    assert kernel[0, 1] == pytest.approx(np.exp(-0.5))
    assert np.linalg.eigvalsh(kernel).min() > 0


@pytest.fixture(scope="module")
def learning():
    """Eigenvalues and eigenvectors, bins of the eigenvalues, the kernels of bins, and a target."""
    few = weak_mode_cohort(n_people=40, n_parcels=12)
    matrices = rebuild_matrix(few.edges, diagonal=1.0, weighted=False)
    values, vectors = zip(*map(eigendecompose, matrices), strict=True)
    values, vectors = np.stack(values), np.stack(vectors)
    bins = bin_eigenvalues(values, 6, TOLERANCE)
    grams = filter_grams(lambda: vectors, bin_weights(values, bins, 1.0, TOLERANCE))
    return values, vectors, bins, grams, few.phenotypes["weak"].to_numpy()


def test_with_corrections_it_is_the_kernel_of_the_filtered_connectomes(learning):
    values, vectors, bins, grams, _ = learning
    theta = np.random.default_rng(0).standard_normal(6)
    weights = values * np.exp(theta[bins.members])
    filtered = (vectors * weights[:, None, :]) @ vectors.swapaxes(1, 2)
    expected = correlation_kernel(vectorise_edges(filtered))
    np.testing.assert_allclose(grams.kernel(np.exp(theta)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", [BinnedFilter, NetworkFilter])
def test_a_filter_learned_from_raw_fc_lifts_the_modes_that_carry_the_target(learning, form):
    bins, grams, target = learning[2:]
    inner = np.array_split(np.arange(40), 4)
    theta = learn_filter(grams, form(bins), target, inner)
    kernels = [torch.from_numpy(grams.kernel(np.exp(each))) for each in (np.zeros(6), theta)]
    before, after = (inner_loss(kernel, torch.tensor(0.1), torch.from_numpy(target), inner) for kernel in kernels)
    assert after < 0.5 * before
    assert theta[:3].max() > theta[4:].max() + 1
    assert np.abs(theta).max() <= 5
