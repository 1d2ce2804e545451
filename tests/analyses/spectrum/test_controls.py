"""The spectral controls on a cohort whose phenotype lies in weak modes."""

from __future__ import annotations

import dataclasses
from itertools import chain

import numpy as np
import pytest

from fcpower_bids.analyses import ANALYSES
from fcpower_bids.analyses.features import AveragedEdges, PowerFamily
from fcpower_bids.analyses.spectrum.controls import principal_scores
from fcpower_bids.analyses.spectrum.learned_filters import LearnedFilters
from fcpower_bids.analyses.study import open_study
from fcpower_bids.core.connectome.edges import vectorise_edges
from tests.analyses.cohorts import choose
from tests.analyses.spectral_cohorts import weak_mode_cohort

CHOICES = {"targets": ("weak",), "repeats": 2, "folds": 5}


@pytest.fixture(autouse=True)
def few_random_filters(monkeypatch):
    monkeypatch.setattr("fcpower_bids.analyses.spectrum.controls.N_RANDOM_FILTERS", 4)


@pytest.fixture(scope="module")
def cohort():
    return weak_mode_cohort(n_parcels=24, n_volumes=80)


@pytest.fixture(scope="module")
def tables(cohort):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fcpower_bids.analyses.spectrum.controls.N_RANDOM_FILTERS", 4)
        return ANALYSES["spectral_controls"](cohort, choose(**CHOICES))


@pytest.fixture(scope="module")
def scores(tables):
    return tables["spectral_controls"].frame.set_index("representation")


def per_fold(tables, name, score="r"):
    frame = tables["spectral_controls_folds"].frame
    return frame[frame["representation"] == name][score].to_numpy()


def test_weak_modes_count_where_the_eigenvalues_are_flattened(scores):
    assert scores.loc["fc_power", "fold_mean"] > 0.9
    assert scores.loc["fc", "fold_mean"] < 0.6
    assert scores.loc["top_20_power", "fold_mean"] > scores.loc["top_20_raw", "fold_mean"] + 0.3
    assert scores.loc["top_5_power", "fold_mean"] < 0.5
    assert scores.loc["profile", "fold_mean"] > 0.8
    assert scores.loc["mode_1", "fold_mean"] < 0.3
    assert scores.loc["fc", "p_less"] < 0.001


def test_flattened_is_tested_against_raw_at_equal_eigenvectors(tables):
    matched = tables["spectral_matched"].frame
    folds = per_fold(tables, "top_5_power") - per_fold(tables, "top_5_raw")
    five = matched[matched["number"] == 5].iloc[0]
    assert five["mean_difference"] == pytest.approx(folds.mean(), abs=1e-12)
    assert matched["number"].tolist() == [5, 20, 24]  # one eigenvector: the same features, nothing to test
    whole = matched[matched["number"] == matched["number"].max()].iloc[0]
    controls = tables["spectral_controls"].frame.query("representation == 'fc'").iloc[0]
    assert whole["mean_difference"] == pytest.approx(-controls["mean_difference"], abs=1e-12)
    assert whole["p_two_sided"] == pytest.approx(controls["p_two_sided"], abs=1e-12)


def test_the_correction_counts_controls_that_ask_the_same_question(tables):
    """FC against FC^alpha stands alone; random filters are corrected among themselves."""
    frame = tables["spectral_controls"].frame
    whole = frame[frame["representation"] == "fc"].iloc[0]
    assert whole["p_holm"] == whole["p_two_sided"]
    for _, rows in frame[frame["representation"] != "fc_power"].groupby("control"):
        known = rows["p_two_sided"].dropna()
        assert rows["p_holm"].min() == pytest.approx(min(1, known.min() * len(known)), nan_ok=True)


def test_whole_rows_are_those_of_the_prediction(cohort, tables):
    prediction = ANALYSES["prediction"](dataclasses.replace(cohort, series=()), choose(**CHOICES))["prediction"].frame
    for name in ("fc", "fc_power"):
        expected = prediction[prediction["representation"] == name]["r"].to_numpy()
        np.testing.assert_array_equal(per_fold(tables, name), expected)


def test_features_that_only_identify_people_predict_at_chance(tables, scores):
    assert scores.loc["one_hot", "n_scored"] == 0
    assert np.isnan(scores.loc["one_hot", "fold_mean"])
    np.testing.assert_allclose(per_fold(tables, "one_hot", "predictive_cod"), 0, atol=1e-6)
    assert abs(scores.loc["random_embedding", "fold_mean"]) < 0.25
    assert scores.loc["random_embedding", "p_less"] < 0.001


def test_a_constant_prediction_has_no_correlation_where_the_target_is_centred(cohort, monkeypatch):
    monkeypatch.setattr(
        "fcpower_bids.analyses.spectrum.controls.Controls.rows", lambda self: chain(self.whole(), self.identity())
    )
    phenotypes = cohort.phenotypes.assign(weak=cohort.phenotypes["weak"] - cohort.phenotypes["weak"].mean())
    centred = dataclasses.replace(cohort, phenotypes=phenotypes, series=())
    tables = ANALYSES["spectral_controls"](centred, choose(**CHOICES | {"repeats": 10}))
    scored = tables["spectral_controls"].frame.set_index("representation")["n_scored"]
    assert scored["one_hot"] == 0
    assert scored["random_embedding"] == 50


def test_principal_scores_rebuild_the_centred_products():
    rows = np.random.default_rng(0).standard_normal((9, 30))
    scores = principal_scores(rows @ rows.T)
    centred = rows - rows.mean(axis=0)
    assert scores.shape == (9, 8)
    np.testing.assert_allclose(scores @ scores.T, centred @ centred.T, atol=1e-10)
    assert (np.diff((scores**2).sum(axis=0)) < 0).all()


def test_cuts_inside_a_cluster_of_eigenvalues_are_named(cohort):
    blocks = np.zeros((24, 24))
    blocks[:12, :12], blocks[12:, 12:] = 0.3, 0.1  # all eigenvalues but the first two are one of two numbers
    edges = cohort.edges.copy()
    edges[3] = vectorise_edges(blocks, weighted=False)
    alike = dataclasses.replace(cohort, edges=edges, series=())
    tables = ANALYSES["spectral_controls"](alike, choose(**CHOICES | {"repeats": 1}))
    frame = tables["spectral_controls"].frame.set_index("representation")
    assert frame.loc["top_5_power", "n_ambiguous"] == 1
    assert frame.loc["top_1_power", "n_ambiguous"] == 0
    assert "top_5_power" in tables["spectral_controls"].facts["AmbiguousCuts"]


def test_distances_of_rank_deficient_connectomes_are_refused_and_the_rest_goes_on():
    cohort = weak_mode_cohort(n_people=30, n_parcels=24, n_volumes=80)
    edges = np.stack([_edges_of_few_volumes(run()[0]) for run in cohort.series])
    short = dataclasses.replace(cohort, edges=edges, series=())
    frame = ANALYSES["spectral_controls"](short, choose(targets=("weak",), repeats=1, folds=3))
    scores = frame["spectral_controls"].frame.set_index("representation")
    refused = scores[scores["status"] == "refused"]
    full_rank = ["rbf_log_euclidean", "rbf_cholesky", "rbf_log_cholesky"]
    assert set(refused.index) == {*full_rank, "mode_20"}
    assert refused.loc[full_rank, "reason"].str.contains("rank-deficient").all()
    assert "constant" in refused.loc["mode_20", "reason"]


def test_connectomes_without_a_pattern_are_refused(cohort):
    edges = cohort.edges.copy()
    edges[3] = 0.3
    for name in ("spectral_controls", "transform_screen"):
        with pytest.raises(ValueError, match="row 3 are constant"):
            ANALYSES[name](dataclasses.replace(cohort, edges=edges, series=()), choose(**CHOICES))


def _edges_of_few_volumes(series):
    return np.corrcoef(series[:20].T)[np.triu_indices(24, 1)]


def test_another_kernel_is_refused(cohort):
    with pytest.raises(ValueError, match="those of the correlation kernel; leave out --kernel"):
        ANALYSES["spectral_controls"](cohort, choose(**CHOICES, kernel="linear"))


@pytest.fixture(scope="module")
def learned(cohort):
    """A study with a missing value, a second target and the shared part of the learned filters."""
    phenotypes = cohort.phenotypes.copy()
    phenotypes.iloc[5, 0] = np.nan
    settings = choose(targets=("weak", "noise"), repeats=1, folds=3)
    study = open_study(dataclasses.replace(cohort, phenotypes=phenotypes, series=()), settings)
    family = PowerFamily(AveragedEdges(cohort.edges, study.people.scans), settings, keep=True)
    return LearnedFilters(study, family)


@pytest.mark.parametrize("name", ["learned_bins", "learned_network"])
def test_learned_filters_predict_every_target(learned, name, monkeypatch):
    monkeypatch.setattr("fcpower_bids.analyses.spectrum.learned_filters.N_ITERATIONS", 5)
    result = learned.validate(name)
    assert result.chosen.shape == (3, 2)
    assert (result.fold_scores("pearson")[:, 0] > 0.8).all()
    assert (result.fold_scores("pearson")[:, 1] < 0.6).all()
    assert sum(np.isnan(each[:, 0]).sum() for each in result.observed) == 1


def test_test_people_do_not_touch_a_learned_filter(learned, monkeypatch):
    monkeypatch.setattr("fcpower_bids.analyses.spectrum.learned_filters.N_ITERATIONS", 3)
    before = learned.validate("learned_bins")
    fold, study = learned.study.folds[0], learned.study
    targets = [dataclasses.replace(each, measures=each.measures.copy()) for each in study.targets]
    targets[0].measures[fold.test] += 100
    monkeypatch.setattr(learned, "study", dataclasses.replace(study, targets=targets))
    np.testing.assert_allclose(learned.validate("learned_bins").predicted[0], before.predicted[0], atol=1e-7)


def test_slow_controls_are_opt_in_and_what_needs_more_memory_is_refused(cohort, monkeypatch):
    for module in ("learned_filters", "controls"):
        monkeypatch.setattr(f"fcpower_bids.analyses.spectrum.{module}.available_bytes", lambda: 1e5)
    small = dataclasses.replace(cohort, series=())
    tables = ANALYSES["spectral_controls"](small, choose(**CHOICES | {"repeats": 1}, slow_controls=True))
    scores = tables["spectral_controls"].frame.set_index("representation")
    assert (scores.loc[["learned_bins", "learned_network", "random_filters"], "status"] == "refused").all()
    assert scores.loc["learned_bins", "reason"].startswith("Learned filters would need 0.0 GB for 90 people")
    assert "use fewer people" in scores.loc["random_filters", "reason"]
    assert "random_1" not in scores.index
