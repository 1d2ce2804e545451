"""The protocol, the choice of the exponent, and what every analysis keeps to: the same numbers, refusals said early."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.analyses import OF_COHORTS
from fcpower_bids.analyses.alpha import nested_exponent
from fcpower_bids.analyses.catalogue import ANALYSES, FIRST_LOOKS
from fcpower_bids.analyses.features import AveragedEdges, PowerFamily, similarity
from fcpower_bids.analyses.prediction import tabulate_folds
from fcpower_bids.analyses.study import open_study
from fcpower_bids.cohort.assembly import load_folds
from fcpower_bids.errors import FcPowerError
from fcpower_bids.outputs.group import digest_cohort
from fcpower_bids.outputs.tables import plain
from fcpower_bids.parallel import executing
from fcpower_bids.schema import TABLES
from tests.analyses.cohorts import choose, demo_cohort, single_session
from tests.analyses.conftest import TARGETS
from tests.core.test_means_and_kernels import target_alignment


def open_with(many, splits, tmp_path):
    """The study on the folds of a table of splits, given as a file."""
    path = tmp_path / "splits.tsv"
    splits.to_csv(path, sep="\t", index=False)
    settings = choose(folds_file=path, representations=("fc",), targets=("score",), inner_folds=3)
    folds, _ = load_folds(settings.group, many.scans["participant_id"])
    return open_study(dataclasses.replace(many, folds=folds), settings)


def test_repeats_and_folds_are_numbered_in_the_order_of_the_file(tmp_path):
    rng = np.random.default_rng(1)
    many = single_session(rng, 400, 4, score=rng.standard_normal(400))
    names = many.phenotypes.index.to_numpy()
    seeds = [f"seed_{number}" for number in range(1, 6)]
    splits = pd.DataFrame({"participant_id": rng.permutation(names)})
    for seed in seeds:
        splits[seed] = rng.permutation(np.arange(400) % 12 + 1).astype(str)
    splits.loc[splits["participant_id"] == names[0], seeds[0]] = "n/a"  # the first person is not of the first repeat
    study = open_with(many, splits, tmp_path)
    table = tabulate_folds(study, {}).frame
    tested = table[table["role"] == "test"]
    long = splits.melt("participant_id").query("value != 'n/a'")
    long = long.assign(repeat=long["variable"].map(seeds.index), fold=long["value"].astype(int) - 1)
    keys = ["repeat", "fold", "participant_id"]
    assert set(map(tuple, tested[keys].to_numpy())) == set(map(tuple, long[keys].to_numpy()))
    table.to_csv(tmp_path / "folds.tsv", sep="\t", index=False)
    again = open_with(many, pd.read_csv(tmp_path / "folds.tsv", sep="\t", dtype=str).sample(frac=1), tmp_path)
    pd.testing.assert_frame_equal(tabulate_folds(again, {}).frame, table)


def select(cohort, **choices):
    return ANALYSES["alpha_selection"](dataclasses.replace(cohort, series=()), choose(**{**TARGETS, **choices}))


def test_the_choice_follows_the_inner_score_and_its_prediction_is_the_outer_score_there(cohort):
    grid = select(cohort, alpha_selection="grid")
    frame, optimum = grid["alpha"].frame, grid["alpha_optimum"].frame
    keys = ["target", "repeat", "fold"]
    best = frame.loc[frame.groupby(keys, sort=False)["inner_score"].idxmax()].set_index(keys)
    optimum = optimum.set_index(keys)
    assert (best["alpha"] == optimum["alpha"].loc[best.index]).all()
    np.testing.assert_array_equal(best["score"], optimum["score"].loc[best.index])
    facts = grid["alpha"].facts
    assert "optimistic" in facts["Optimism"]
    nested = optimum.groupby("target")["score"].mean()
    assert facts["NestedScore"] == pytest.approx(nested.to_dict())
    assert all(facts["BestOfGridScore"][name] >= facts["NestedScore"][name] for name in facts["NestedScore"])


def test_nested_predictions_do_not_depend_on_the_people_of_the_test_fold(cohort):
    settings = choose(**TARGETS)
    study = open_study(cohort, settings)
    fold = study.folds[3]
    changed = cohort.phenotypes.copy()
    changed.loc[[study.people.names[row] for row in fold.test], "planted_score"] = 1e4
    other = open_study(dataclasses.replace(cohort, phenotypes=changed), settings)
    ours, theirs = (nested_exponent(each, (0.2, 0.35, 1.0)) for each in (study, other))
    np.testing.assert_array_equal(ours.best[3], theirs.best[3])
    np.testing.assert_allclose(ours.result.predicted[3], theirs.result.predicted[3], atol=1e-7)
    assert not np.array_equal(ours.inner[:, 0], theirs.inner[:, 0])


def test_alignment_optimum_is_the_maximum_of_the_exact_curve(cohort):
    cohort = cohort.keep(np.arange(0, len(cohort.scans), 2))
    targets = (*TARGETS["targets"], "g=memory,speed")
    tables = select(cohort, targets=targets, alpha_selection="align", covariates=("age",))
    optimum = tables["alpha_optimum"].frame
    assert len(optimum) == 3 * 2 * 5
    planted = optimum[optimum["target"] == "planted_score"]
    assert planted["alpha"].between(0.1, 0.6).all()
    assert not planted["at_bound"].any()
    # The slope vanishes at a maximum, up to what the interpolation leaves out.
    assert planted["slope"].abs().max() < 0.01
    plain = select(cohort, alpha_selection="align")["alpha_optimum"].frame.query("target == 'planted_score'").iloc[0]
    study = open_study(cohort, choose(**TARGETS))
    mask = np.zeros((1, len(study.people.names)), dtype=bool)
    mask[0, study.folds[0].train] = True
    family = PowerFamily(AveragedEdges(cohort.edges, study.people.scans), choose(), keep=True)

    def aligned(alpha):
        return target_alignment(similarity(family.features(alpha)), mask, study.targets[0].measures)[0, 0]

    assert plain["score"] == pytest.approx(aligned(plain["alpha"]), abs=1e-4)
    assert plain["score_at_star"] == pytest.approx(aligned(0.35), abs=1e-4)
    assert aligned(plain["alpha"]) > max(aligned(plain["alpha"] - 0.01), aligned(plain["alpha"] + 0.01))


CHOICES = {"targets": ("planted_score",), "repeats": 1, "folds": 3, "inner_folds": 2, "permutations": 9}


@pytest.fixture(scope="module")
def few():
    return demo_cohort(n_people=12, n_volumes=80, n_parcels=20)


@pytest.fixture(params=ANALYSES)
def name(request, monkeypatch) -> str:
    monkeypatch.setattr("fcpower_bids.analyses.spectral_controls.N_RANDOM_FILTERS", 2)
    return request.param


def given_to(name, few):
    return {"one": few, "other": few} if name in OF_COHORTS else few


def outcome(looks, name, few, **choices):
    """What an analysis or its first look finds, or the sentence of the refusal; any other error is a slip."""
    try:
        return looks[name](given_to(name, few), choose(**CHOICES | choices)), ""
    except FcPowerError as error:
        return None, str(error)


NO_PHENOTYPES = pd.DataFrame(index=pd.Index([], name="participant_id"))
PLANTED = {
    "no scan": lambda few: (few.keep(np.arange(0)), {}),
    "one session": lambda few: (few.keep(np.arange(0, len(few.scans), 2)), {}),
    "three people": lambda few: (few.keep(np.arange(6)), {}),
    "no phenotypes": lambda few: (dataclasses.replace(few, phenotypes=NO_PHENOTYPES), {"targets": ()}),
    "no motion": lambda few: (dataclasses.replace(few, scans=few.scans.assign(mean_fd=np.nan)), {}),
    "an unknown target": lambda few: (few, {"targets": ("weight",)}),
    "embeddings that are not there": lambda few: (few, {"representations": ("embedding",)}),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_the_look_before_the_first_analysis_says_what_the_analysis_would_say(few, name, fault):
    """So that nobody waits for hours for a refusal; and what is refused is refused in a sentence, by both."""
    spoilt, choices = PLANTED[fault](few)
    tables, sentence = outcome(ANALYSES, name, spoilt, **choices)
    assert outcome(FIRST_LOOKS, name, spoilt, **choices)[1] == sentence
    assert bool(tables) != bool(sentence)
    if sentence:
        assert len(sentence.split()) > 4
        assert sentence.endswith((".", "?")), sentence
    assert fault != "no scan" or sentence, f"{name} has tables of nobody"


@pytest.mark.parametrize("name", ANALYSES)
def test_two_processes_give_the_tables_of_one(few, name, monkeypatch):
    monkeypatch.setattr("fcpower_bids.parallel.WORTH", 0.0)
    monkeypatch.setattr("fcpower_bids.analyses.features.BLOCK", 4)
    monkeypatch.setattr("fcpower_bids.analyses.spectral_controls.N_RANDOM_FILTERS", 2)
    before, made = digest_cohort(few), []
    for number in (1, 2):
        settings = choose(**CHOICES | {"permutations": 19}, nprocs=number)
        with executing(settings.run):
            made.append(ANALYSES[name](given_to(name, few), settings))
    alone, shared = made
    assert digest_cohort(few) == before
    assert alone.keys() == shared.keys() != set()
    declared = {spec.name for spec in TABLES.values() if spec.owner == name}
    for label, table in alone.items():
        pd.testing.assert_frame_equal(table.frame, shared[label].frame, check_exact=True)
        assert table.spec.name in declared
        assert re.fullmatch(re.sub("[A-Z]+", "[A-Za-z0-9-]+", table.spec.name), label)
        (TABLES[label] if table.spec.name == label else table.spec).check(list(table.frame.columns))
        keys = [key for key in table.spec.keys if key in table.frame]
        assert not keys or not table.frame.duplicated(keys).any(), f"{label}: {keys} tell a row from all others"
        json.dumps(plain(table.facts), allow_nan=False)
