"""The protocol: folds of a file as it has them, inner folds of the preset, permutations within sites."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.analyses.evaluate import cross_validate, cross_validate_anew, make_solver
from fcpower_bids.analyses.prediction import tabulate_folds
from fcpower_bids.analyses.study import open_study
from fcpower_bids.cohort.assembly import load_folds
from tests.analyses.cohorts import choose, single_session

PEOPLE = 400
SITES = np.array([f"s{number % 5}" for number in range(PEOPLE)])


@pytest.fixture(scope="module")
def cohort():
    rng = np.random.default_rng(0)
    score, place = rng.standard_normal(PEOPLE), rng.permutation(SITES)
    columns = {"score": score, "told": score + 3 * (place == "s1"), "site": place, "batch": rng.permutation(SITES)}
    return single_session(rng, PEOPLE, 4, **columns)


def open_with(cohort, splits, tmp_path, **choices):
    """The study on the folds of a table of splits, given as a file."""
    path = tmp_path / "splits.tsv"
    splits.to_csv(path, sep="\t", index=False)
    settings = choose(folds_file=path, representations=("fc",), **{"targets": ("score",), "inner_folds": 3} | choices)
    folds, _ = load_folds(settings.group, cohort.scans["participant_id"])
    return open_study(dataclasses.replace(cohort, folds=folds), settings)


def test_repeats_and_folds_keep_the_order_and_the_labels_of_the_file(cohort, tmp_path):
    rng = np.random.default_rng(1)
    names = cohort.phenotypes.index.to_numpy()
    seeds = [f"seed_{number}" for number in range(1, 6)]
    splits = pd.DataFrame({"participant_id": rng.permutation(names)})
    for seed in seeds:
        splits[seed] = rng.permutation(np.arange(PEOPLE) % 12 + 1).astype(str)
    splits.loc[splits["participant_id"] == names[0], seeds[0]] = "n/a"  # the first person is not of the first repeat
    study = open_with(cohort, splits, tmp_path)
    table = tabulate_folds(study, {}).frame
    assert table["repeat_label"].drop_duplicates().tolist() == seeds
    assert table["fold_label"].drop_duplicates().tolist() == [str(fold) for fold in range(1, 13)]
    tested = table[table["role"] == "test"]
    long = splits.melt("participant_id").query("value != 'n/a'")
    expected = set(map(tuple, long[["variable", "value", "participant_id"]].to_numpy()))
    assert set(map(tuple, tested[["repeat_label", "fold_label", "participant_id"]].to_numpy())) == expected
    numbers = tested["repeat_label"].map({seed: number for number, seed in enumerate(seeds)})
    assert (tested["repeat"] == numbers).all()
    assert (tested["fold"] == tested["fold_label"].astype(int) - 1).all()
    table.to_csv(tmp_path / "folds.tsv", sep="\t", index=False)
    again = open_with(cohort, pd.read_csv(tmp_path / "folds.tsv", sep="\t", dtype=str).sample(frac=1), tmp_path)
    pd.testing.assert_frame_equal(tabulate_folds(again, {}).frame, table)


@pytest.mark.parametrize("named", [{"site_column": "site"}, {}])
def test_folds_of_a_file_that_hold_out_sites_have_inner_folds_by_site(cohort, tmp_path, named):
    sites = cohort.phenotypes["site"]
    splits = pd.DataFrame({"participant_id": sites.index, "split": sites.to_numpy()})
    study = open_with(cohort, splits, tmp_path, preset="recommended", **named)
    drawn = open_study(
        cohort, choose(preset="recommended", targets=("score",), sites="hold-out", site_column="site", repeats=1)
    )
    assert study.protocol.held_out == drawn.protocol.held_out == "site"
    for ours, theirs in zip(study.folds, drawn.folds, strict=True):
        np.testing.assert_array_equal(ours.test, theirs.test)
        assert [rows.tolist() for rows in ours.inner] == [rows.tolist() for rows in theirs.inner]


def test_repeats_of_held_out_sites_stay_in_the_order_of_the_study():
    rng = np.random.default_rng(2)
    cohort = single_session(rng, 24, y=rng.standard_normal(24), site=np.repeat(["a", "b", "c"], 8))
    held_out = {"sites": "hold-out", "site_column": "site", "repeats": 2, "inner_folds": 2}
    study = open_study(cohort, choose(targets=("y",), representations=("fc",), **held_out))
    solver = make_solver(next(study.representations()), study.preset)
    fitted = []

    def fit(training_sets):
        for train in training_sets:
            fitted.append(tuple(sorted(train.tolist())))
            yield solver

    anew, once = cross_validate_anew(fit, study), cross_validate(solver, study, "fc")
    assert len(fitted) == len(set(fitted)) == 3  # once per training set, not per repeat
    assert anew.folds == study.folds
    np.testing.assert_array_equal(anew.chosen, once.chosen)
    for mine, theirs in zip(anew.predicted, once.predicted, strict=True):
        np.testing.assert_array_equal(mine, theirs)
