"""Cohort statistics of the training people alone: nobody who is tested is ever among those they are fitted on."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.analyses import ANALYSES
from fcpower_bids.analyses.encoder_comparison import (
    cross_validate_refitted,
    describe_statistics,
    embed_relative_to,
    embed_where_missing,
)
from fcpower_bids.analyses.evaluate import cross_validate, make_solver
from fcpower_bids.analyses.features import EMBEDDING, Representation
from fcpower_bids.analyses.study import open_study
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.errors import RecordingError
from tests.analyses.cohorts import choose

N, LABEL = 24, "brainlm111m"
CHOSEN = {"targets": ("score",), "folds": 4, "inner_folds": 2, "repeats": 2}


class ScaledMeans:
    """Embeds the mean of every parcel relative to median and quartiles of a cohort, and remembers what it was given."""

    def __init__(self, shortest: int = 0) -> None:
        self.fitted: list[list[float]] = []
        self.shortest = shortest

    def __call__(self, training):
        self.fitted.append(sorted(float(run[0, 0]) for run in training))
        low, middle, high = np.percentile(np.concatenate(training), [25, 50, 75], axis=0)

        def embed(series, repetition_time):
            assert repetition_time == 2.5
            if len(series) < self.shortest:
                raise RecordingError("The recording is too short.")
            return np.tanh((series.mean(axis=0) - middle) / (high - low))

        return embed


@pytest.fixture
def relative(cohort):
    """The first people of the cohort with series whose means follow a score; a person's first value is their number."""
    rng = np.random.default_rng(0)
    names = sorted(set(cohort.scans["participant_id"]))[:N]
    rows = cohort.scans["participant_id"].isin(names).to_numpy()
    scans = cohort.scans[rows].reset_index(drop=True)
    score = pd.Series(rng.standard_normal(N), index=names)
    series = []
    for name in scans["participant_id"]:
        run = rng.standard_normal((40, 6)) * 3 + score[name] * np.arange(6)
        run[0, 0] = names.index(name)
        series.append(run)
    encoder = ScaledMeans()
    made = dataclasses.replace(
        cohort,
        scans=scans,
        edges=np.asarray(cohort.edges)[rows],
        series=tuple((lambda run=run: [run[:20], run]) for run in series),
        repetition_times=(2.5,) * len(scans),
        phenotypes=score.rename("score").to_frame().rename_axis("participant_id"),
        refits={LABEL: encoder},
    )
    return made, encoder


def test_nobody_who_is_tested_is_among_those_that_it_is_fitted_on(relative):
    cohort, encoder = relative
    study = open_study(embed_where_missing(cohort, choose()), choose(**CHOSEN, representations=(f"embedding:{LABEL}",)))
    encoder.fitted.clear()
    result = cross_validate_refitted(LABEL, study)
    assert len(encoder.fitted) == len(study.folds) == 8
    for fold, given in zip(result.folds, encoder.fitted, strict=True):
        assert not set(given) & set(fold.test.tolist())
        assert given == sorted(float(person) for person in fold.train for _ in range(4))  # two sessions of two runs


def test_each_fold_is_predicted_from_embeddings_relative_to_its_own_training_people(relative):
    cohort, _ = relative
    study = open_study(embed_where_missing(cohort, choose()), choose(**CHOSEN, representations=(f"embedding:{LABEL}",)))
    result = cross_validate_refitted(LABEL, study)
    runs = [scan() for scan in cohort.series]
    for i in (0, 5):
        fold = result.folds[i]
        pooled = np.concatenate(
            [run for person in fold.train for scan in study.people.scans[person] for run in runs[scan]]
        )
        low, middle, high = np.percentile(pooled, [25, 50, 75], axis=0)
        features = np.array(
            [
                np.mean([np.tanh((run.mean(axis=0) - middle) / (high - low)) for s in own for run in runs[s]], axis=0)
                for own in study.people.scans
            ]
        )
        solver = make_solver(Representation("x", "linear", lambda features=features: features, False), study.preset)
        expected = nested_cv(solver, study.targets[0].measures, [fold], study.preset.selection)
        np.testing.assert_allclose(result.predicted[i], expected.predicted[0], rtol=1e-9)
    observed, predicted = (np.concatenate(each)[:, 0] for each in (result.observed, result.predicted))
    assert np.corrcoef(observed, predicted)[0, 1] > 0.5


def test_an_encoder_that_ignores_the_cohort_gives_what_stored_embeddings_give(relative):
    cohort, _ = relative
    plain = dataclasses.replace(cohort, refits={LABEL: lambda training: lambda series, time: series.mean(axis=0)})
    study = open_study(embed_where_missing(plain, choose()), choose(**CHOSEN, representations=(f"embedding:{LABEL}",)))
    stored = cross_validate(make_solver(next(study.representations()), study.preset), study, LABEL)
    refitted = cross_validate_refitted(LABEL, study)
    for one, other in zip(refitted.predicted, stored.predicted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_everyone_is_embedded_once_for_every_distinct_training_set(relative):
    """Sites held out in turn are the same training sets in every repeat."""
    cohort, encoder = relative
    sites = cohort.phenotypes.assign(
        site=np.where(np.arange(N) % 3 == 0, "x", np.where(np.arange(N) % 3 == 1, "y", "z"))
    )
    chosen = choose(**CHOSEN, representations=(f"embedding:{LABEL}",), sites="hold-out", site_column="site")
    study = open_study(embed_where_missing(dataclasses.replace(cohort, phenotypes=sites), choose()), chosen)
    encoder.fitted.clear()
    result = cross_validate_refitted(LABEL, study)
    assert len(encoder.fitted) == 3
    assert len(result.folds) == len(study.folds) == 6


def test_the_comparison_predicts_relative_to_the_fold_and_says_so(relative):
    cohort, encoder = relative
    tables = ANALYSES["encoder_comparison"](cohort, choose(**CHOSEN, representations=("fc",)))
    assert len(encoder.fitted) == 1 + 8  # all scans once, for identification, then every training set
    rows = tables["encoders"].frame.set_index(["representation", "target"])
    assert rows.loc[(f"embedding:{LABEL}", "score"), "pooled"] > 0.5
    assert (f"embedding:{LABEL}", "identification") in rows.index
    told = tables["encoders"].facts["CohortStatistics"][LABEL]
    assert told.startswith("Prediction: of the training people of each outer fold")
    assert told.endswith("those of all scans.")


def test_stored_embeddings_stay_those_of_identification(relative):
    cohort, encoder = relative
    stored = np.random.default_rng(1).standard_normal((len(cohort.scans), 6))
    facts = {LABEL: {"statistics": "read from the auxiliary files"}}
    cohort = dataclasses.replace(cohort, embeddings={LABEL: stored}, embedding_facts=facts)
    assert embed_where_missing(cohort, choose()).embeddings[LABEL] is stored
    assert not encoder.fitted
    assert describe_statistics(cohort)["CohortStatistics"][LABEL].endswith(
        "those stored (read from the auxiliary files)."
    )


def test_statistics_of_a_file_are_never_silent(relative):
    cohort, _ = relative
    stored = np.random.default_rng(1).standard_normal((len(cohort.scans), 6))
    facts = {LABEL: {"statistics": "read from the auxiliary files"}, "other": {"statistics": None}}
    cohort = dataclasses.replace(cohort, embeddings={LABEL: stored, "other": stored}, embedding_facts=facts, refits={})
    tables = ANALYSES["encoder_comparison"](cohort, choose(**CHOSEN, representations=("fc",)))
    told = tables["encoders"].facts["CohortStatistics"]
    assert list(told) == [LABEL]
    assert told[LABEL].startswith("Read from the auxiliary files, which may be of people who are tested here (a leak).")
    assert describe_statistics(dataclasses.replace(cohort, embedding_facts={})) == {}


def test_scans_that_cannot_be_embedded_are_left_out_with_a_note(relative):
    cohort, _ = relative
    short = list(cohort.series)
    whole = short[3]()[1]
    short[3] = lambda: [whole[:5]]
    short[4] = lambda: [whole[:5], whole]  # its longer run is enough
    cohort = dataclasses.replace(cohort, series=tuple(short), refits={LABEL: ScaledMeans(shortest=10)})
    made = embed_where_missing(cohort, choose())
    assert np.flatnonzero(np.isnan(made.embeddings[LABEL]).any(axis=1)).tolist() == [3]
    assert made.notes[-1] == f"No '{LABEL}' of 1 of {2 * N} scans: The recording is too short."
    study = open_study(made, choose(**CHOSEN, representations=(f"{EMBEDDING}:{LABEL}",)))
    (features,) = embed_relative_to(LABEL, study, [np.arange(12)])
    assert features.shape == (N, 6)
    assert np.isfinite(features).all()
    nobody = dataclasses.replace(cohort, refits={LABEL: ScaledMeans(shortest=100)})
    with pytest.raises(ValueError, match="can be computed of no scan: The recording is too short"):
        embed_where_missing(nobody, choose())
    with pytest.raises(ValueError, match="the series of the scans are not there"):
        embed_where_missing(dataclasses.replace(cohort, series=()), choose())
