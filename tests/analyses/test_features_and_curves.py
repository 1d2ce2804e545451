"""Features of people, and curves over minutes and people that end in the prediction itself."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.analyses.curves import cross_validate_smaller, shrink_folds
from fcpower_bids.analyses.evaluate import cross_validate, make_solver
from fcpower_bids.analyses.features import (
    AveragedEdges,
    PowerFamily,
    similarity,
)
from fcpower_bids.analyses.study import open_study
from fcpower_bids.core.connectome import pearson_connectivity, spectral_power
from fcpower_bids.core.differences import corrected_resampled_t
from fcpower_bids.core.edges import rebuild_matrix, vectorise_edges
from fcpower_bids.errors import RecordingError
from tests.analyses.cohorts import choose
from tests.analyses.conftest import TARGETS
from tests.cases.cohorts import PEOPLE, group, read, write_series, write_table


def draw_edges(rng, n_scans, n_parcels, n_volumes=40):
    series = rng.standard_normal((n_scans, n_volumes, n_parcels)) + rng.standard_normal((n_scans, n_volumes, 1))
    return np.stack([vectorise_edges(pearson_connectivity(each), weighted=False) for each in series])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 99), st.integers(3, 7), st.lists(st.integers(1, 3), min_size=1, max_size=6))
def test_people_are_the_mean_of_their_scans_by_weight(seed, n_parcels, sizes):
    rng = np.random.default_rng(seed)
    edges, weights = draw_edges(rng, sum(sizes), n_parcels), rng.uniform(1, 9, sum(sizes))
    groups = np.split(rng.permutation(sum(sizes)), np.cumsum(sizes)[:-1])
    averaged = AveragedEdges(edges, groups, weights)
    expected = np.array([np.average(edges[group], axis=0, weights=weights[group]) for group in groups])
    np.testing.assert_allclose(averaged[:, :], expected, atol=1e-12)
    np.testing.assert_array_equal(averaged[:, 1:3], averaged[:, :][:, 1:3])
    last = len(groups) - 1
    np.testing.assert_allclose(averaged.connectome(last), rebuild_matrix(expected[last], 1.0, weighted=False))
    np.testing.assert_array_equal(averaged[last:, 0:2], averaged[:, 0:2][last:])


def test_single_scans_are_passed_on_to_the_last_bit():
    edges = draw_edges(np.random.default_rng(0), 5, 6)
    np.testing.assert_array_equal(AveragedEdges(edges, [[3], [1]])[:, :], edges[[3, 1]])


@pytest.mark.parametrize("n_volumes", [40, 7])
def test_power_is_that_of_each_matrix_whether_kept_or_not(n_volumes):
    edges = draw_edges(np.random.default_rng(1), 6, 9, n_volumes)
    averaged, matrices = AveragedEdges(edges, [[i] for i in range(6)]), rebuild_matrix(edges, 1.0, weighted=False)
    for alpha in (0.35, 1.0):
        expected = np.stack([vectorise_edges(spectral_power(each, alpha)) for each in matrices])
        for keep in (True, False):
            np.testing.assert_allclose(PowerFamily(averaged, choose(), keep).features(alpha), expected, atol=1e-10)
        kernel = similarity(PowerFamily(averaged, choose()).features(alpha))
        np.testing.assert_allclose(kernel, np.corrcoef(expected), atol=1e-10)


MINUTES, SIZES = (1.5, 3.0), (15, 30)


def run(cohort, minutes=MINUTES, sizes=SIZES, **choices):
    return ANALYSES["learning_curves"](cohort, choose(**{"scan_minutes": minutes, "sample_sizes": sizes} | choices))


@pytest.fixture(scope="module")
def tables(cohort):
    return run(cohort, **TARGETS)


def test_the_largest_cell_is_the_prediction_itself(tables, predicted):
    keys = ["target", "representation", "repeat", "fold"]
    full = tables["learning_curves"].frame.query("part == 'full'")
    full = full[full["n_people"] == full["n_people"].max()].set_index(keys).sort_index()
    frame = predicted["prediction"].frame.set_index(keys).sort_index()
    assert (full["n_train"] == frame["n_train"]).all()
    np.testing.assert_allclose(full["r"], frame["r"], atol=1e-8)


def test_gains_are_tested_with_the_training_people_of_the_cell(tables):
    cell = "target == 'planted_score' and minutes == 3.0 and n_people == 15"
    frame, row = tables["learning_curves"].frame.query(cell), tables["learning_gains"].frame.query(cell).iloc[0]
    scores = frame.pivot_table("r", ["repeat", "fold"], "representation")
    own = frame[frame["representation"] == "fc"].sort_values(["repeat", "fold"])
    expected = corrected_resampled_t((scores["fc_power"] - scores["fc"]).to_numpy(), 15, own["n_test"].to_numpy())
    assert row["mean_difference"] == pytest.approx(expected["mean_difference"])
    assert row["p_greater"] == pytest.approx(expected["p_greater"])
    assert row["sd_difference"] == pytest.approx((scores["fc_power"] - scores["fc"]).std())
    assert row["folds_won"] == (scores["fc_power"] > scores["fc"]).sum()
    assert (row["n_folds"], row["n_distinct"]) == (10, 10)


def test_training_subsets_are_nested_seeded_and_keep_inner_folds(cohort):
    study = open_study(cohort, choose(**TARGETS))
    small, large, other = (shrink_folds(study.folds, *each) for each in ((15, 0), (30, 0), (15, 1)))
    for before, few, many, again in zip(study.folds, small, large, other, strict=True):
        assert set(few.train) < set(many.train) < set(before.train)
        assert len(few.train) == 15
        assert np.array_equal(few.test, before.test)
        assert sorted(np.concatenate(few.inner)) == sorted(few.train)
        assert len(few.inner) == len(before.inner)
        assert all(set(part) <= set(whole) for part, whole in zip(few.inner, before.inner, strict=True))
        assert set(again.train) != set(few.train)


def test_the_small_kernel_predicts_as_the_large_one(cohort):
    more = {"covariates": ("age",), "targets": (*TARGETS["targets"], "g=memory,speed,planted_score")}
    study = open_study(cohort, choose(**TARGETS | more))
    study = dataclasses.replace(study, folds=shrink_folds(study.folds[:5], 20, 0))
    representation = next(iter(study.representations()))
    solver = make_solver(representation, study.preset)
    block = cross_validate_smaller(solver, representation.similarity(), study)
    whole = cross_validate(solver, study)
    np.testing.assert_array_equal(block.chosen, whole.chosen)
    for one, two in zip(block.predicted, whole.predicted, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-7)


def test_an_encoder_embeds_the_first_minutes_and_an_embedding_alone_is_known_of_the_full_scan(cohort):
    def encode(series, repetition_time):
        if len(series) < 60:
            raise RecordingError("needs at least 60 volumes")
        return np.corrcoef(series.T)[np.triu_indices(series.shape[1], 1)][:40]

    full = np.stack([encode(each()[0], 2.5) for each in cohort.series])
    other = dataclasses.replace(cohort, embeddings={"toy": full, "other": full}, encoders={"toy": encode})
    choices = {**TARGETS, "targets": ("planted_score",), "repeats": 1}
    tables = run(other, sizes=(20,), **choices, representations=("fc", "embedding"))
    known = tables["learning_curves"].frame.groupby("representation")["minutes"].unique().map(len)
    assert known.to_dict() == {"fc": 3, "embedding:toy": 2, "embedding:other": 1}
    notes = " ".join(tables["learning_curves"].facts["Notes"])
    assert "toy was left out at 1.5 minutes: needs at least 60 volumes" in notes


def test_what_is_not_possible_is_refused_in_one_sentence(cohort):
    with pytest.raises(ValueError, match=r"^A scan cannot be cut to 100 minutes: .* scan, 6\.67 min of sub-00\.$"):
        run(cohort, minutes=(100.0,), **TARGETS)
    with pytest.raises(ValueError, match=r"^4 training people are not possible"):
        run(cohort, sizes=(4,), **TARGETS)
    with pytest.raises(ValueError, match=r"^Subsamples of 9 people are not possible: give 10"):
        run(cohort, sizes=(9,), **TARGETS, subsamples=True)
    once = cohort.scans.assign(session="a").drop_duplicates("participant_id")
    nothing = dataclasses.replace(cohort, scans=once, phenotypes=pd.DataFrame(index=cohort.phenotypes.index))
    with pytest.raises(ValueError, match="need phenotypes to predict"):
        run(nothing, minutes=(), sizes=())


def series_of(folder, cut):
    """Two sessions of 200 and 70 volumes of thirty people, of which `cut` takes some; their age is in both."""
    age, random = np.random.default_rng(5).integers(20, 60, len(PEOPLE)).astype(float), np.random.default_rng(9)

    def draw(number, session):
        series, r = random.standard_normal(((200, 70)[session], 6)), (age[number] - 40) / 25
        series[:, 1] = r * series[:, 0] + np.sqrt(1 - r * r) * series[:, 1]
        return cut(series)

    write_series(folder, sessions=("ses-a", "ses-b"), draw=draw)
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE, age=age)
    return folder


def test_the_sessions_of_a_person_weigh_as_much_as_is_used_of_them(tmp_path):
    """A part of every scan gives what a run gives that has this part alone: at two minutes, and in both halves."""
    options = ("--targets", "age", "--representations", "fc")
    whole = series_of(tmp_path / "whole", lambda series: series)
    group(whole, *options, "--analyses", "learning_curves", "prediction", "--scan-minutes", "2.0")
    parts = {
        "minutes": lambda series: series[:60],
        "first": lambda series: series[: len(series) // 2],
        "second": lambda series: series[len(series) // 2 :],
    }
    predicted, scores = {}, {}
    for name, cut in parts.items():
        folder = series_of(tmp_path / name, cut)
        group(folder, *options, "--analyses", "prediction")
        predicted[name] = read(folder, "predictions").set_index("participant_id")["predicted"]
        scores[name] = read(folder, "prediction")["r"].to_numpy()
    curve = read(whole, "learning_curves")
    curve = curve[(curve["part"] == "first") & (curve["n_people"] == curve["n_people"].max())]
    np.testing.assert_allclose(curve["r"], scores["minutes"], rtol=0, atol=1e-6)
    rho = read(whole, "reliability")["rho"].item()
    assert rho == pytest.approx(predicted["first"].corr(predicted["second"]), abs=1e-6)
