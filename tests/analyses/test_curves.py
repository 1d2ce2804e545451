"""Curves rise where something is planted, are equal to the prediction at their end, and use one kernel per length."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.analyses import curves as learning_curves
from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.analyses.curves import choose_sizes, cross_validate_smaller, shrink_folds
from fcpower_bids.analyses.evaluate import cross_validate, evaluate, make_solver
from fcpower_bids.analyses.study import open_study
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.differences import corrected_resampled_t
from fcpower_bids.errors import RecordingError
from fcpower_bids.records import Cohort
from tests.analyses.cohorts import choose, demo_cohort, single_session
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


@pytest.mark.parametrize(
    "more", [{}, {"covariates": ("age",)}, {"targets": (*TARGETS["targets"], "g=memory,speed,planted_score")}]
)
def test_the_small_kernel_predicts_as_the_large_one(cohort, more):
    study = open_study(cohort, choose(**TARGETS | more))
    study = study.on_folds(shrink_folds(study.folds[:5], 20, 0))
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
    assert "other" in notes
    gains = tables["learning_gains"].frame.query("part == 'first' and minutes == 3.0")
    assert set(gains["representation"]) == {"embedding:toy"}
    ids = tables["identification_gains"].frame
    assert set(ids.query("part == 'first'")["representation"]) == {"embedding:toy"}


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
    with pytest.raises(ValueError, match=r"^60 training people are not possible"):
        run(cohort, sizes=(60,), **TARGETS)
    without = dataclasses.replace(cohort, series=())
    with pytest.raises(ValueError, match="series of the scans are not there"):
        run(without, **TARGETS)
    nothing = dataclasses.replace(cohort, phenotypes=pd.DataFrame(index=cohort.phenotypes.index))
    nothing = dataclasses.replace(nothing, scans=cohort.scans.assign(session="a").drop_duplicates("participant_id"))
    with pytest.raises(ValueError, match="need phenotypes to predict"):
        run(nothing, minutes=(), sizes=())
    few = single_session(np.random.default_rng(0), 9, y=np.arange(9.0))
    with pytest.raises(ValueError, match="fewer than two per inner fold"):
        run(few, minutes=(), sizes=(), folds=3, targets=("y",))


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
    for choices, reason in (
        ({"stratify": True, "site_column": "site"}, "stratify"),
        ({"sites": "hold-out", "site_column": "site"}, "held-out"),
    ):
        with pytest.raises(ValueError, match=reason):
            run(
                cohort.__class__(**{**vars(cohort), "phenotypes": cohort.phenotypes.assign(site=["a", "b", "c"] * 20)}),
                **TARGETS,
                **choices,
                subsamples=True,
            )
    with pytest.raises(ValueError, match=r"^Subsamples of 9 people are not possible: give 10"):
        run(cohort, sizes=(9,), **TARGETS, subsamples=True)


def test_defaults_double_the_minutes_and_leave_out_what_is_not_there(cohort):
    study = open_study(cohort, choose(**TARGETS))
    largest = max(fold.train.size for fold in study.folds)
    assert choose_sizes(study) == (25, largest)
    alone = single_session(np.random.default_rng(0), 40, y=np.arange(40.0))
    tables = run(alone, minutes=(), sizes=(), repeats=1, folds=4)
    assert set(tables) == {"learning_curves", "learning_gains"}
    assert set(tables["learning_curves"].frame["part"]) == {"full"}
    assert "series" in tables["learning_curves"].facts["LeftOut"]
    small = demo_cohort(n_people=12)
    small = dataclasses.replace(small, phenotypes=pd.DataFrame(index=small.phenotypes.index))
    tables = run(small, minutes=(), sizes=())
    assert set(tables) == {"identification_curves", "identification_gains"}
    assert sorted(tables["identification_curves"].frame["minutes"].unique())[:3] == [1.2, 2.4, 4.8]
    assert tables["identification_gains"].frame["n_people"].unique().tolist() == [10, 12]
    tables = run(small, minutes=(), sizes=(), scan_minutes=(2.0,), sample_sizes=(5,))
    assert tables["identification_gains"].frame["n_people"].unique().tolist() == [5, 12]
    assert sorted(tables["identification_curves"].frame["minutes"].unique())[0] == 2.0


# Real people as a cohort: 55 at baseline, 37 of them again after three months (see `shared/data/README.md`). The source
# does not state the repetition time. It is set to 60 s, so that wherever an analysis says minutes, these are volumes.
VOLUME = 60.0
"""Seconds that stand for one volume."""


def stages_cohort(shared: Path, n_parcels: int = 400) -> Cohort:
    """The first `n_parcels` columns: 400 are the cortex (Schaefer), 419 the subcortex too."""
    folder = shared / "data" / "stages"
    stored = np.load(folder / "timeseries.npz", allow_pickle=False)
    keys = sorted(stored.files)
    series = [np.asarray(stored[key][:, :n_parcels], dtype=float) for key in keys]
    people = [key.split("_")[0] for key in keys]
    scans = pd.DataFrame(
        {
            "participant_id": people,
            "session": [key.split("_")[1] for key in keys],
            "seconds": [VOLUME * len(each) for each in series],
            "mean_fd": np.nan,
            "n_runs": 1,
            "combination": "none",
        }
    )
    table = pd.read_csv(folder / "participants.tsv", sep="\t", na_values="n/a")  # one row per scan
    table = table.drop_duplicates("participant_id").set_index("participant_id")
    return Cohort(
        scans=scans,
        edges=np.stack([vectorise_edges(pearson_connectivity(each), weighted=False) for each in series]),
        parcels=tuple(f"parcel{i:03d}" for i in range(n_parcels)),
        networks=("n/a",) * n_parcels,
        phenotypes=table[["bprs_lm_slope", "sofas_lm_slope"]],
        excluded=pd.DataFrame(columns=["participant_id", "session", "what", "reason"]),
        series=tuple((lambda each=each: [each]) for each in series),
        repetition_times=(VOLUME,) * len(series),
    )


def test_real_people_are_identified_from_fewer_volumes_and_among_more_people(shared):
    """Numbers of docs/evidence.md: 37 people of the STAGES trial over three months; minutes are volumes here."""
    cohort = stages_cohort(shared)
    cohort = dataclasses.replace(cohort, phenotypes=pd.DataFrame(index=cohort.phenotypes.index))
    frame = run(cohort, minutes=(80.0,), sizes=(20,))["identification_curves"].frame
    found = frame.groupby(["representation", "minutes", "n_people"])["accuracy"].mean().round(3)
    assert found["fc", 234.0, 37] == 0.838
    assert found["fc_power", 234.0, 37] == 1.0
    assert found["fc", 80.0, 37] == 0.635
    assert found["fc_power", 80.0, 37] == 0.959
    assert found["fc", 80.0, 20] == pytest.approx(0.705, abs=0.01)


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
