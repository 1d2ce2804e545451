"""Rows of the paper's figures and tables, through the command, against what the files written and the series say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.core.folds import replicated_folds
from tests.cases.cohorts import PEOPLE as MANY
from tests.cases.cohorts import group, read, write_series, write_table
from tests.referee import identified, power_edges

PARCELS, VOLUMES, TR = 6, 240, 2.0


@pytest.fixture(scope="module")
def three_targets(tmp_path_factory):
    """Thirty people whose first correlation goes with a number, with a second one and with two classes."""
    random, signal = np.random.default_rng(1), np.sin(np.arange(30)) ** 2
    folder = tmp_path_factory.mktemp("targets")
    write_series(folder, MANY, parcels=12, volumes=100, signal=lambda number: 0.9 * signal[number])
    for name in MANY:  # a course that all parcels share, of another size in everyone: the first eigenvector is noise
        series = np.load(folder / f"{name}.npy")
        size = 2 * random.uniform(0.2, 2)
        np.save(folder / f"{name}.npy", series + size * random.standard_normal((len(series), 1)))
    noise = np.random.default_rng(5).standard_normal(30)
    score, other = signal + 0.2 * noise, signal - 0.3 * noise[::-1]
    group_of = np.where(signal + 0.1 * noise > np.median(signal), "high", "low")
    write_table(folder / "bids" / "participants.tsv", participant_id=MANY, score=score, other=other, arm=group_of)
    return folder


@pytest.mark.parametrize("criterion", ["grid", "align"])
def test_the_peak_of_an_exponent_is_that_of_the_parabola_through_its_table(three_targets, criterion):
    targets = ("score", "other", "arm")
    chosen = ("--analyses", "alpha_selection", "--alpha-selection", criterion)
    group(three_targets, "--targets", *targets, *chosen, "--replace", "--repeats", 4)
    curves = read(three_targets, "alpha")
    facts = json.loads((three_targets / "out" / "group" / "alpha.json").read_text())
    assert list(facts["QuadraticFit"]) == list(targets)
    known = 0
    for target in targets:
        rows = curves[(curves["target"] == target) & curves["alpha"].between(0.0999, 0.7501)]
        scores = rows.pivot_table("score", "alpha", ["repeat", "fold"], dropna=False).dropna(axis=1)
        assert scores.shape[0] == 10
        weights = 1 / scores.std(axis=1, ddof=0).to_numpy()
        design = np.vander(scores.index.to_numpy(), 3) * weights[:, None]
        expected = np.linalg.lstsq(design, scores.mean(axis=1).to_numpy() * weights, rcond=None)[0]
        stated = facts["QuadraticFit"][target]
        np.testing.assert_allclose(stated["Coefficients"], expected, rtol=1e-4, atol=1e-4)  # of rounded cells
        peak = -expected[1] / (2 * expected[0]) if expected[0] < 0 else np.nan
        if 0.11 < peak < 0.74:
            known += 1
            assert stated["Peak"] == pytest.approx(peak, abs=1e-3)
        elif not 0.09 < peak < 0.76:
            assert stated["Peak"] in (None, "n/a")
    assert known or criterion == "align"


def test_a_number_that_is_cut_in_two_is_predicted_as_a_column_of_classes(three_targets, tmp_path):
    """The paper's AUC of age: the same scores as of a column that was cut beforehand, one unknown value kept so."""
    table = pd.read_csv(three_targets / "bids" / "participants.tsv", sep="\t")
    age = (20 + 5 * table["score"]).round(1)
    age[4] = np.nan
    table = table.assign(age=age, cut=np.where(age.isna(), np.nan, age >= 22.5))
    shutil.copytree(three_targets, tmp_path / "cohort", ignore=shutil.ignore_patterns("out"))
    table.to_csv(tmp_path / "cohort" / "bids" / "participants.tsv", sep="\t", index=False, na_rep="n/a")
    words = ("--analyses", "prediction", "--permutations", 50, "--targets", "cut", "old = age>=22.5", "age")
    group(tmp_path / "cohort", *words)
    for name in ("prediction", "predictions", "comparisons", "prediction_summary"):
        rows = read(tmp_path / "cohort", name).round(9)
        cut, old = (rows[rows["target"] == target].drop(columns="target") for target in ("cut", "old"))
        assert len(cut) > 0
        assert cut.reset_index(drop=True).equals(old.reset_index(drop=True)), name
    observed = read(tmp_path / "cohort", "predictions").query("target == 'old'").groupby("participant_id")["observed"]
    expected = dict(zip(table["participant_id"], table["cut"], strict=True))
    assert observed.first().dropna().to_dict() == {name: value for name, value in expected.items() if value == value}
    known = read(tmp_path / "cohort", "prediction_baselines").set_index("target")["known"].dropna()
    assert "age" in " ".join(known[known.index == "cut"])
    assert "age" not in " ".join(known[known.index == "old"])


def test_scans_shorter_than_a_length_are_in_no_row_of_it(tmp_path):
    """Eight people twice; one second scan is of four minutes, so that its person is not among those of five."""
    people = MANY[:8]
    folder = write_series(tmp_path, people, ("a", "b"), PARCELS, VOLUMES, signal=lambda number: 0.1 * number)
    short = np.load(folder / "sub-003_b.npy")[:120]
    np.save(folder / "sub-003_b.npy", short)
    words = ("--analyses", "learning_curves", "--scan-minutes", 3.5, 5, 8)
    group(folder, *words)
    rows = read(folder, "identification_curves")
    rows = rows[rows["draw"].eq(rows.groupby(["minutes", "part", "n_people"])["draw"].transform("min"))]
    for minutes, of_short in ((3.5, True), (5.0, False), (8.0, False)):
        there = [person for person in people if of_short or person != "sub-003"]
        cell = rows[np.isclose(rows["minutes"], minutes) & rows["part"].eq("first")]
        assert cell["n_people"].max() == len(there)
        for name, alpha in (("fc", 1.0), ("fc_power", 0.35)):
            volumes = round(60 * minutes / TR)
            first, second = (
                [power_edges(np.corrcoef(np.load(folder / f"{name}_{day}.npy")[:volumes].T), alpha) for name in there]
                for day in "ab"
            )
            found = cell[cell["representation"].eq(name) & cell["n_people"].eq(len(there))]["accuracy"]
            assert found.tolist() == pytest.approx([identified(first, second)])
    excluded = read(folder, "excluded")
    assert "sub-003" not in set(excluded["participant_id"])  # only its rows are fewer


def test_a_random_subsample_has_the_scores_of_a_cohort_of_its_people(three_targets, tmp_path):
    words = ("--targets", "score", "--analyses", "learning_curves", "--sample-sizes", 18, "--subsamples", "--replace")
    group(three_targets, *words)
    folder, curves, draw = three_targets, read(three_targets, "learning_curves"), 7
    people = np.sort(np.random.default_rng((0, draw, 21)).permutation(30)[:18])
    names = [MANY[place] for place in people]
    for name in names:
        (tmp_path / f"{name}.npy").write_bytes((folder / f"{name}.npy").read_bytes())
    (tmp_path / "bids").mkdir()
    for source in ("list.tsv", "bids/participants.tsv"):
        table = pd.read_csv(folder / source, sep="\t")
        table[table["participant_id"].isin(names)].to_csv(tmp_path / source, sep="\t", index=False)
    rows = []
    for fold in replicated_folds(18, 3, 2, 1, 0):
        place = dict.fromkeys(fold.test.tolist(), ("test", -1))
        place |= {row: ("train", number) for number, inner in enumerate(fold.inner) for row in inner.tolist()}
        rows += [(0, fold.fold, names[row], *about) for row, about in sorted(place.items())]
    columns = ["repeat", "fold", "participant_id", "role", "inner_fold"]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "folds.tsv", sep="\t", index=False)
    words = ("--targets", "score", "--analyses", "prediction", "--folds-file", tmp_path / "folds.tsv")
    quick = ("--permutations", 0, "--min-time", 0, "--nprocs", 1)
    group(tmp_path, *words, quick=quick)
    keys = ["representation", "fold"]
    own = read(tmp_path, "prediction").set_index(keys)["r"].sort_index()
    part = curves[curves["n_people"].eq(18) & curves["repeat"].eq(draw) & curves["part"].eq("full")]
    part = part.set_index(keys)["r"].sort_index()
    assert len(part) == 3 * 2
    np.testing.assert_allclose(part, own[part.index], rtol=0, atol=1e-8)


def scores_in_tangent_space(folder: Path, reference: np.ndarray) -> list[float]:
    """Correlations in the folds of the quick run, of tangent vectors at a reference (P, P) and the penalty 0.1."""
    values, vectors = np.linalg.eigh(reference)
    whitener = (vectors / np.sqrt(values)) @ vectors.T
    tangents = []
    for name in MANY:
        fc = np.corrcoef(np.load(folder / f"{name}.npy").T)
        values, vectors = np.linalg.eigh(whitener @ fc @ whitener)
        tangents.append(((vectors * np.log(values)) @ vectors.T)[np.triu_indices(12, 1)])
    kernel, expected, ones = np.corrcoef(tangents), [], np.ones(20)
    table = pd.read_csv(folder / "bids" / "participants.tsv", sep="\t")["score"].to_numpy()
    for fold in replicated_folds(30, 3, 2, 1, 0):
        inverse = np.linalg.inv(kernel[np.ix_(fold.train, fold.train)] + 0.1 * np.eye(20))
        intercept = ones @ inverse @ table[fold.train] / (ones @ inverse @ ones)
        predicted = intercept + kernel[np.ix_(fold.test, fold.train)] @ inverse @ (table[fold.train] - intercept)
        expected.append(np.corrcoef(predicted, table[fold.test])[0, 1])
    return expected


def test_the_tangent_space_of_a_corpus_whitens_by_the_mean_of_its_people(three_targets, tmp_path):
    others = [np.corrcoef(np.random.default_rng(number).standard_normal((12, 100))) for number in range(20)]
    names = [f"parcel{number:04d}" for number in range(1, 13)]
    mean = pd.DataFrame(np.mean(others, axis=0), names, names)
    chosen = tmp_path / "more.toml"
    chosen.write_text(f'tangent_reference = "{tmp_path / "mean.tsv"}"\npenalties = [0.1]\n')
    words = ("--targets", "score", "--analyses", "transform_screen", "--preset", "paper", "--config-file", chosen)
    mean.iloc[::-1, ::-1].to_csv(tmp_path / "mean.tsv", sep="\t", index_label="Node")
    group(three_targets, *words, "--replace")
    screen = read(three_targets, "transform_screen").set_index("representation")
    folds = read(three_targets, "transform_screen_folds").query("representation == 'tangent_corpus'")
    assert screen.loc["tangent_corpus", "status"] == "scored"
    np.testing.assert_allclose(folds["r"], scores_in_tangent_space(three_targets, mean.to_numpy()), rtol=0, atol=1e-3)
    wrongs = ((mean.iloc[1:, 1:], "lacks 1 parcels"), (2 * mean, "no mean of correlations"))
    wrongs += ((mean - np.eye(12), "diagonal is not 1"), (None, "is no table of a mean FC"))
    for wrong, said in wrongs:
        (tmp_path / "mean.tsv").unlink(missing_ok=True)
        if wrong is not None:
            wrong.to_csv(tmp_path / "mean.tsv", sep="\t", index_label="Node")
        assert said in group(three_targets, *words, "--replace", code=3).err
