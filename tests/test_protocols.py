"""What the protocols do, through the command: predictions are made again from the series by scikit-learn."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.planting.participant_outputs import P, add_output, series_of, write_participants
from tests.planting.planted import Planted
from tests.referee import ridge
from tests.running import Finished

PEOPLE = 15
QUICK = ["--folds", "3", "--inner-folds", "3", "--repeats", "1", "--quiet", "--nprocs", "1", "--min-time", "30"]
QUICK += ["--replace"]


@dataclass
class Tree(Planted):
    series: dict[str, list[np.ndarray]] = field(default_factory=dict)
    """Of every person: one array per recording, z-scored."""

    def group(self, *options: object, code: int = 0) -> Finished:
        return super().group(*QUICK, "--analyses", "prediction", *options, code=code)

    def facts(self, name: str) -> dict:
        return json.loads((self.out / "group" / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Two sessions, one of them with two runs, all of different lengths; ages that follow nothing."""
    tree = Tree(tmp_path_factory.mktemp("protocols"))
    for person in range(1, PEOPLE + 1):
        for number, (name, volumes) in enumerate((("ses-a_run-1", 20), ("ses-a_run-2", 35), ("ses-b", 60))):
            one = series_of(1000 * person + number, volumes + person)
            add_output(tree.out, f"sub-{person:02d}_{name}", one)
            tree.series.setdefault(f"sub-{person:02d}", []).append(one)
    ages = np.random.default_rng(5).normal(40, 10, PEOPLE).round(2)
    write_participants(tree.bids / "participants.tsv", PEOPLE, age=ages)
    return tree


def edges_end_to_end(tree: Tree) -> np.ndarray:
    """FC of the series of every person, put end to end."""
    upper = np.triu_indices(P, 1)
    return np.stack([np.corrcoef(np.concatenate(tree.series[name]).T)[upper] for name in sorted(tree.series)])


def inner_score(kernel, y, fold, penalty):
    """Pearson correlation of all inner predictions together, of a target (n,) or of each of several (n, m)."""
    train, inner = fold
    predicted = np.full(y.shape, np.nan)
    for label in np.unique(inner[train]):
        rows = train[inner[train] == label]
        predicted[rows] = ridge(kernel, y, np.setdiff1d(train, rows), rows, penalty)
    return (stats.zscore(y[train]) * stats.zscore(predicted[train])).mean(axis=0)


def folds_of(tree: Tree):
    """Yield test people, training people and the inner fold of everyone, as the command wrote them."""
    names = sorted(tree.series)
    for _, rows in tree.table("folds").groupby(["repeat", "fold"]):
        rows = rows.set_index(rows["participant_id"].astype(str)).loc[names]
        role, inner = rows["role"].to_numpy(), rows["inner_fold"].to_numpy()
        yield np.flatnonzero(role == "test"), np.flatnonzero(role == "train"), inner


def climb(score, unit):
    """The rule of the preset by hand: the best of seven decades, then on while it gains 1e-4, to 1e-6 and 1e6."""
    scores = {decade: score(unit * 10.0**decade) for decade in range(-3, 4)}
    at = max(scores, key=lambda decade: (scores[decade], -decade))
    step = {3: 1, -3: -1}.get(at)
    while step and abs(at) < 6:
        further = score(unit * 10.0 ** (at + step))
        if not further > scores[at] + 1e-4:
            break
        at += step
        scores[at] = further
    return unit * 10.0**at, step is not None and abs(at) == 6


def ages_of(tree):
    return tree.phenotypes.set_index("participant_id")["age"].loc[sorted(tree.series)].to_numpy(float)


def expected_predictions(tree: Tree, features: np.ndarray, kernel_name: str):
    """Yield the person, the prediction, the penalty and whether it was still rising."""
    names, y = sorted(tree.series), ages_of(tree)
    unit = 1.0 if kernel_name == "correlation" else features.shape[1]
    for test, train, inner in folds_of(tree):
        standard = (features - features[train].mean(axis=0)) / features[train].std(axis=0)
        kernel = np.corrcoef(features) if kernel_name == "correlation" else standard @ standard.T
        penalty, rising = climb(lambda p, of=(kernel, y, (train, inner)): inner_score(*of, p), unit)
        yield from zip(
            [names[row] for row in test],
            ridge(kernel, y, train, test, penalty),
            [penalty] * len(test),
            [rising] * len(test),
            strict=True,
        )


@pytest.mark.parametrize("kernel", ["linear", "correlation"])
def test_the_recommended_protocol_is_what_it_says(tree, kernel):
    tree.group("--preset", "recommended", "--targets", "age", "--kernel", kernel)
    wrote = tree.table("predictions")
    wrote = wrote[wrote["representation"] == "fc"].set_index("participant_id")
    folds = tree.table("prediction")
    folds = folds[folds["representation"] == "fc"].set_index("fold")
    n, rising = 0, []
    for name, predicted, penalty, at_edge in expected_predictions(tree, edges_end_to_end(tree), kernel):
        assert wrote.loc[name, "predicted"] == pytest.approx(predicted, abs=1e-6)
        fold = folds.loc[wrote.loc[name, "fold"]]
        assert fold["penalty"] == pytest.approx(penalty, rel=1e-6)
        assert (str(fold["at_grid_edge"]).lower() == "true") == at_edge
        n += 1
        rising.append(at_edge)
    assert n == PEOPLE
    assert folds["penalty"].max() > 1e3 or folds["penalty"].min() < 1e-3  # else nothing went on
    summary = tree.table("prediction_summary").set_index("representation")
    at_edge = folds["at_grid_edge"].astype(str).str.lower() == "true"
    assert summary.loc["fc", "share_at_grid_edge"] == pytest.approx(at_edge.mean())
    assert tree.facts("prediction")["Preset"]["fit_transforms_on"] == "fold"
    assert "end to end" in tree.facts("prediction")["FeaturesOfAPerson"]


def assert_predicted(tree, repeat, test, train, penalty=0.5):
    """The predictions of the test people by a regression on the training people, and on nobody else."""
    names = sorted(tree.series)
    kernel, y = np.corrcoef(edges_end_to_end(tree)), ages_of(tree)
    wrote = tree.table("predictions")
    wrote = wrote[(wrote["representation"] == "fc") & (wrote["repeat"] == repeat)].set_index("participant_id")
    rows = [names.index(name) for name in test]
    expected = ridge(kernel, y, np.array([names.index(name) for name in train]), np.array(rows), penalty)
    np.testing.assert_allclose(wrote.loc[test, "predicted"], expected, rtol=0, atol=1e-6)


OF_FAMILIES = "participant_id\tsplit\n" + "".join(f"sub-{n:02d}\t{'ab'[n > 7]}\n" for n in range(1, PEOPLE + 1))
"""Two by two people are of one family: one of these is on both sides."""
FIXED = ("--targets", "age", "--penalties", "0.5", "--random-seed", "7")


def test_a_table_of_splits_says_who_tests_in_which_repeat(tree, tmp_path):
    names = sorted(tree.series)
    first = ["train", "n/a", *("abc"[i % 3] for i in range(PEOPLE - 3)), "n/a"]
    second = [*("x" if i < 7 else "y" for i in range(PEOPLE - 1)), "n/a"]
    table = pd.DataFrame({"participant_id": names, "published": first, "halves": second})
    stranger = pd.DataFrame({"participant_id": ["sub-77"], "published": ["a"], "halves": ["x"]})
    path = tmp_path / "splits.tsv"
    pd.concat([table, stranger]).to_csv(path, sep="\t", index=False)
    tree.group(*FIXED, "--folds-file", path, "--inner-folds", "2")
    for label in "abc":
        train = [name for name, fold in zip(names, first, strict=True) if fold not in (label, "n/a")]
        assert_predicted(tree, 0, [name for name, fold in zip(names, first, strict=True) if fold == label], train)
    assert_predicted(tree, 1, names[:7], names[7:-1])
    wrote = tree.table("predictions")
    assert set(wrote.loc[wrote["repeat"] == 0, "participant_id"]) == set(names[2:-1])
    assert tree.table("excluded").query("what == 'person'")["participant_id"].tolist() == names[-1:]
    assert "such as sub-77" in " ".join(tree.facts("prediction")["CohortNotes"])


@pytest.mark.parametrize("preset", ["recommended", "paper"])
def test_equal_minutes_are_the_first_volumes_of_every_session(tree, preset):
    tree.group(*FIXED, "--preset", preset)
    whole = tree.table("scans")
    tree.group(*FIXED, "--preset", preset, "--equal-minutes")
    scans, names = tree.table("scans"), sorted(tree.series)
    sessions = {name: (np.concatenate(runs[:2]), runs[2]) for name, runs in tree.series.items()}
    shortest = min(len(scan) for scans_of in sessions.values() for scan in scans_of)
    cut = {name: [stats.zscore(scan[:shortest]) for scan in pair] for name, pair in sessions.items()}
    first = replace(tree, series=cut)
    for test, train, _ in folds_of(tree):
        assert_predicted(first, 0, [names[row] for row in test], [names[row] for row in train])
    assert (scans["volumes"] == shortest).all()
    kept = whole["degrees_of_freedom"] * shortest / whole["volumes"]
    np.testing.assert_allclose(scans["degrees_of_freedom"], kept)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("participant_id\tsplit\nsub-01\ttrain\n", "has no column of folds other than 'train'"),
        ("participant_id\tsplit\nsub-01\ta\nsub-01\ta\n", "sub-01 twice"),
        ("participant_id\tsplit\nsub-01\ta\nsub-02\tb\n", "trains on 1 of the people"),
        (OF_FAMILIES, "sub-07 is tested in fold a and sub-08 trains there"),
    ],
)
def test_folds_that_cannot_be_used_are_told_in_one_sentence(tree, tmp_path, text, words):
    (tmp_path / "folds.tsv").write_text(text)
    told = tree.group(*FIXED, "--family-column", "family_id", "--folds-file", tmp_path / "folds.tsv", code=3).err
    assert words in told
