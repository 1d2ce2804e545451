"""Curves rise where something is planted, are equal to the prediction at their end, and use one kernel per length."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.analyses import curves as learning_curves
from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.analyses.curves import cross_validate_smaller, shrink_folds
from fcpower_bids.analyses.evaluate import cross_validate, evaluate, make_solver
from fcpower_bids.analyses.study import open_study
from fcpower_bids.core.differences import corrected_resampled_t
from tests.analyses.cohorts import choose
from tests.analyses.conftest import TARGETS
from tests.cases.cohorts import PEOPLE, group, read, write_table

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
    frame = tables["learning_curves"].frame.query("target == 'planted_score' and minutes == 3.0 and n_people == 15")
    scores = frame.pivot_table("r", ["repeat", "fold"], "representation")
    own = frame[frame["representation"] == "fc"].sort_values(["repeat", "fold"])
    expected = corrected_resampled_t((scores["fc_power"] - scores["fc"]).to_numpy(), 15, own["n_test"].to_numpy())
    row = (
        tables["learning_gains"].frame.query("target == 'planted_score' and minutes == 3.0 and n_people == 15").iloc[0]
    )
    assert row["mean_difference"] == pytest.approx(expected.mean)
    assert row["p_greater"] == pytest.approx(expected.p_greater)
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
    study = study.on_folds(shrink_folds(study.folds[:5], 20, 0))
    representation = next(iter(study.representations()))
    solver = make_solver(representation, study.preset)
    block = cross_validate_smaller(solver, representation.similarity(), study)
    whole = cross_validate(solver, study)
    np.testing.assert_array_equal(block.chosen, whole.chosen)
    for one, two in zip(block.predicted, whole.predicted, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-7)


def test_identification_takes_people_as_the_unit(tables):
    frame = tables["identification_gains"].frame
    assert (frame[frame["n_people"] == 60]["n_draws"] == 1).all()
    assert (frame[frame["n_people"] == 15]["n_draws"] == 20).all()
    assert frame["p_greater"].between(1 / 2001, 1).all()
    row = frame.query("n_people == 60 and minutes == 1.5").iloc[0]
    accuracy = tables["identification_curves"].frame.query("n_people == 60 and minutes == 1.5")
    by_name = accuracy.set_index("representation")["accuracy"]
    assert row["mean_difference"] == pytest.approx(by_name["fc_power"] - by_name["fc"])


def test_what_is_not_possible_is_refused_in_one_sentence(cohort):
    with pytest.raises(ValueError, match=r"^A scan cannot be cut to 100 minutes: .* scan, 6\.67 min of sub-00\.$"):
        run(cohort, minutes=(100.0,), **TARGETS)
    with pytest.raises(ValueError, match=r"^4 training people are not possible"):
        run(cohort, sizes=(4,), **TARGETS)


def without(cohort, rows):
    """The cohort without some of its scans, as if they had never been read."""
    kept = np.setdiff1d(np.arange(len(cohort.scans)), rows)
    return dataclasses.replace(
        cohort,
        scans=cohort.scans.iloc[kept].reset_index(drop=True),
        edges=cohort.edges[kept],
        series=tuple(cohort.series[row] for row in kept),
        repetition_times=tuple(cohort.repetition_times[row] for row in kept),
    )


def test_scans_that_are_shorter_than_a_length_are_not_in_its_rows(cohort):
    short = [2 * person + session for person in (3, 8, 20, 41) for session in (0, 1)]
    series = [
        (lambda row=row: [cohort.series[row]()[0][:100]]) if row in short else each
        for row, each in enumerate(cohort.series)
    ]
    seconds = cohort.scans["seconds"].to_numpy().copy()
    seconds[short] = 100 * cohort.repetition_times[0]
    mixed = dataclasses.replace(cohort, scans=cohort.scans.assign(seconds=seconds), series=tuple(series))
    found = run(mixed, minutes=(3.0, 5.0), sizes=(15, 44), **TARGETS)
    others = run(without(cohort, short), minutes=(3.0, 5.0), sizes=(15, 40), **TARGETS)
    for name in ("learning_curves", "learning_gains", "identification_curves", "identification_gains"):
        rows, expected = (tables[name].frame.query("minutes == 5.0") for tables in (found, others))
        rows, expected = (frame[frame["n_people"].isin({15, frame["n_people"].max()})] for frame in (rows, expected))
        pd.testing.assert_frame_equal(rows.reset_index(drop=True), expected.reset_index(drop=True), rtol=1e-9)
    people = found["identification_curves"].frame.groupby("minutes")["n_people"].max()
    assert people.tolist() == [60, 56, 60]
    train = found["learning_curves"].frame.groupby("minutes")["n_people"].unique().map(sorted).tolist()
    assert train == [[15, 44, 48], [15, 44, 45], [15, 44, 48]]


def test_subsamples_are_cohorts_of_their_own(cohort):
    tables = run(cohort, minutes=(3.0,), sizes=(30,), **TARGETS, subsamples=True)
    frame = tables["learning_curves"].frame.query("part == 'first'")
    assert set(frame["n_people"]) == {30, 60}
    smaller = frame[frame["n_people"] == 30]
    assert sorted(smaller["repeat"].unique()) == list(range(20))
    study = open_study(cohort, choose(**TARGETS))
    choices = {"subsamples": True, "sample_sizes": (30,)}
    drawn = learning_curves.with_fewer(open_study(cohort, choose(**TARGETS, **choices)))[30]
    folds = [fold for fold in drawn.folds if fold.repeat == 7]
    people = np.sort(np.concatenate([fold.test for fold in folds]))
    assert len(np.unique(people)) == 30
    families = np.asarray(study.people.families)
    assert all(not set(families[fold.test]) & set(families[fold.train]) for fold in folds)
    assert all(np.array_equal(np.sort(np.concatenate([fold.test, fold.train])), people) for fold in folds)
    names = np.array(study.people.names)[people]
    alone = without(cohort, np.flatnonzero(~cohort.scans["participant_id"].isin(names)))
    cut = next(iter(learning_curves.shorten_scans(alone, (3.0,), choose(**TARGETS), []))).cohort
    own = open_study(cut, choose(**TARGETS))
    place = [
        dataclasses.replace(
            fold,
            train=np.searchsorted(people, fold.train),
            test=np.searchsorted(people, fold.test),
            inner=tuple(np.searchsorted(people, rows) for rows in fold.inner),
        )
        for fold in folds
    ]
    own = own.on_folds(tuple(place))
    expected = learning_curves.fold_scores(own, evaluate(own, own.representations()))
    rows = smaller[smaller["repeat"] == 7].set_index(["target", "representation", "fold"])["r"]
    expected = expected.set_index(["target", "representation", "fold"])["r"]
    np.testing.assert_allclose(rows[expected.index], expected, atol=1e-8)


"""Seconds that stand for one volume."""


def series_of(folder, cut):
    """Two sessions of 200 and 70 volumes of thirty people, of which `cut` takes some; their age is in both."""
    age, random = np.random.default_rng(5).integers(20, 60, len(PEOPLE)).astype(float), np.random.default_rng(9)
    rows = []
    (folder / "bids").mkdir(parents=True)
    for person, r in zip(PEOPLE, (age - 40) / 25, strict=True):
        for session, volumes in (("ses-a", 200), ("ses-b", 70)):
            series = random.standard_normal((volumes, 6))
            series[:, 1] = r * series[:, 0] + np.sqrt(1 - r * r) * series[:, 1]
            np.save(folder / f"{person}_{session}.npy", cut(series))
            row = {"participant_id": person, "session_id": session, "path": f"{person}_{session}.npy"}
            rows.append(row | {"kind": "series", "repetition_time": 2.0})
    pd.DataFrame(rows).to_csv(folder / "list.tsv", sep="\t", index=False)
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE, age=age)
    return folder


def test_the_sessions_of_a_person_weigh_as_much_as_is_used_of_them(tmp_path):
    """A part of every scan gives what a run gives that has this part alone: at two minutes, and in both halves."""
    options = ("--targets", "age", "--representations", "fc")
    whole = series_of(tmp_path / "whole", lambda series: series)
    assert group(whole, *options, "--analyses", "learning_curves", "prediction", "--scan-minutes", "2.0") == 0
    parts = {
        "minutes": lambda series: series[:60],
        "first": lambda series: series[: len(series) // 2],
        "second": lambda series: series[len(series) // 2 :],
    }
    predicted, scores = {}, {}
    for name, cut in parts.items():
        folder = series_of(tmp_path / name, cut)
        assert group(folder, *options, "--analyses", "prediction") == 0
        predicted[name] = read(folder, "predictions").set_index("participant_id")["predicted"]
        scores[name] = read(folder, "prediction")["r"].to_numpy()
    curve = read(whole, "learning_curves")
    curve = curve[(curve["part"] == "first") & (curve["n_people"] == curve["n_people"].max())]
    np.testing.assert_allclose(curve["r"], scores["minutes"], rtol=0, atol=1e-6)
    rho = read(whole, "reliability")["rho"].item()
    assert rho == pytest.approx(predicted["first"].corr(predicted["second"]), abs=1e-6)
