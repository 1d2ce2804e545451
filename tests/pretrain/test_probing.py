"""`pretrain --probe`: another cohort chooses the checkpoint, and its scores are those of scikit-learn on its tables."""

from __future__ import annotations

import json
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.checkpoints import HELD_OUT, find_in_training
from fcpower_bids.notebook import load_cohort
from fcpower_bids.outputs.tables import read_series
from fcpower_bids.pretrain import engine
from fcpower_bids.pretrain.selection import REPEATS, SELECT, split_families
from tests.command import main
from tests.pretrain.conftest import NAMES, made_recordings
from tests.pretrain.outputs import plant_outputs, read_log, run_pretrain

PEOPLE, WINDOW = 44, 20
PENALTIES = 10.0 ** np.arange(-3, 4)
PROBED = ["probe", "probe_identification", "select", "confirm"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus of sixteen people, and a cohort of 44 others in two sessions with a score that follows their series."""
    folder = tmp_path_factory.mktemp("probed")
    plant_outputs(folder, made_recordings())
    recordings = made_recordings(people=PEOPLE, seed=7)
    score = [float(np.corrcoef(series.T)[0, 1]) for facts, series in recordings if facts["session"] == "0"]
    rows, people = [], folder / "people"
    people.mkdir()
    for number, (facts, series) in enumerate(recordings):
        np.save(people / f"{number}.npy", series)
        names = {"participant_id": f"sub-{facts['subject']}", "session_id": facts["session"]}
        rows.append({**names, "path": f"{number}.npy", "kind": "series"})
    pd.DataFrame(rows).to_csv(people / "list.tsv", sep="\t", index=False)
    table = pd.DataFrame({"participant_id": [f"sub-{i:02d}" for i in range(PEOPLE)], "score": score})
    table.to_csv(people / "participants.tsv", sep="\t", index=False)
    (people / "dataset_description.json").write_text('{"Name": "other", "BIDSVersion": "1.9.0", "DatasetDOI": "other"}')
    words = [people, folder / "other", "group", "-d", f"list={people / 'list.tsv'}", "--analyses", "check", "--quiet"]
    assert main([*map(str, words), "--min-time", "0", "--nprocs", "1"]) == 0
    return folder


def corpus_named_alike(folder):
    """The cohort's parcels are numbered, so the corpus is packed from tables that are named like them."""
    (stored,) = list((folder / "other").rglob("sub-00_ses-0*_timeseries.npy"))
    names = read_series(stored)[1]
    for path in (folder / "out").rglob("*_timeseries.tsv"):
        table = pd.read_csv(path, sep="\t")
        if list(table.columns) == NAMES:
            table.set_axis(names, axis=1).to_csv(path, sep="\t", index=False)


@pytest.fixture(scope="module")
def run(folder):
    corpus_named_alike(folder)
    assert run_pretrain(folder, "--probe", folder / "other", "--targets", "score", "--steps", "4") == 0
    return folder / "out"


def embeddings(folder, encoder) -> tuple[np.ndarray, list[str], list[str]]:
    rows = []
    for path in sorted((folder / "other").rglob("*_timeseries.npy")):
        series, names = read_series(path)
        label, session = re.search(r"sub-(\d+)_ses-(\d)", path.name).groups()
        vector = encoder.embed([series], names, np.nan)[0]
        rows.append((vector.astype(float), f"sub-{label}", session))
    return np.array([row[0] for row in rows]), [row[1] for row in rows], [row[2] for row in rows]


def probe_of(features, target, names) -> float:
    """Nested cross-validation by scikit-learn; the inner folds are scaled as the outer training people."""
    folds = replicated_folds(len(features), 10, 5, REPEATS, families=names)
    predicted = np.zeros((REPEATS, len(features)))
    for fold in folds:
        x = StandardScaler().fit(features[fold.train]).transform(features)
        copies = np.repeat(target[:, None], len(PENALTIES), axis=1)  # scikit-learn takes a penalty per target
        inner = np.zeros(copies.shape)
        for rows in fold.inner:
            others = np.setdiff1d(fold.train, rows)
            inner[rows] = Ridge(PENALTIES).fit(x[others], copies[others]).predict(x[rows])
        scores = [np.corrcoef(guess, target[fold.train])[0, 1] for guess in inner[fold.train].T]
        best = Ridge(PENALTIES[int(np.argmax(scores))]).fit(x[fold.train], target[fold.train])
        predicted[fold.repeat, fold.test] = best.predict(x[fold.test])
    return float(np.mean([np.corrcoef(one, target)[0, 1] for one in predicted]))


def test_the_checkpoint_is_the_one_that_the_probe_likes_best(folder, run):
    log = read_log(run / "encoder")
    saved = log.loc[[2, 4]]
    facts = json.loads((run / "encoder" / "model" / "config.json").read_text())
    assert facts["step"] == saved["probe"].idxmax()
    first, second = saved["select"].idxmax(), saved["confirm"].idxmax()
    fall = (
        saved.loc[first, "select"]
        - saved.loc[first, "confirm"]
        + saved.loc[second, "confirm"]
        - saved.loc[second, "select"]
    )
    assert facts["optimism"] == pytest.approx(fall / 2)
    assert (
        facts["selection"] == "best of 2 checkpoints by the frozen probe of other (44 people: score), as in the paper"
    )
    about = json.loads((run / "encoder" / "alignment.json").read_text())
    assert about["Optimism"] == 0, "no held-out family chose the checkpoint"
    assert "less 0.000 by which choosing" in about["Verdict"]


def test_its_scores_are_those_of_scikit_learn(folder, run):
    log = read_log(run / "encoder")
    target = pd.read_csv(folder / "people" / "participants.tsv", sep="\t")["score"].to_numpy()
    encoder = load_encoder("fbert", run / "encoder" / "model")
    row = log.loc[encoder.card.step]
    vectors, people, sessions = embeddings(folder, encoder)
    names = np.unique(people)
    features = np.array([vectors[np.array(people) == name].mean(axis=0) for name in names])
    assert row["probe"] == pytest.approx(probe_of(features, target, names), abs=1e-4)
    half = split_families(names, 1.0, 0) == SELECT
    assert row["select"] == pytest.approx(probe_of(features[half], target[half], names[half]), abs=1e-4)
    one, other = (vectors[np.array(sessions) == session] for session in "01")
    similar = np.corrcoef(one, other)[:PEOPLE, PEOPLE:]
    found = np.mean([(similar.argmax(axis) == np.arange(PEOPLE)).mean() for axis in (0, 1)])
    assert row["probe_identification"] == pytest.approx(found)


def test_two_devices_train_and_probe_as_one(folder, run, meeting_place, capfd, monkeypatch):
    """The first process alone has the series of the cohort and tells of the run; all choose the same checkpoint."""

    class Forked(engine.Fabric):
        """Processes that need not import anything; what they are handed can be handed to others, too."""

        def __init__(self, **choices):
            super().__init__(**choices | {"strategy": "ddp_fork"})

        def launch(self, function):
            return super().launch(pickle.loads(pickle.dumps(function)))  # noqa: S301  (our own)

    monkeypatch.setattr(engine, "Fabric", Forked)
    words = ("--corpus", run / "corpus", "--probe", folder / "other", "--targets", "score", "--steps", "4")
    assert run_pretrain(folder, *words, "--devices", "2", out="two") == 0
    told = capfd.readouterr().err
    assert [told.count(said) for said in ("Encoder: ", "Page: ")] == [1, 1]
    alone, together = (read_log(path)[["loss", *PROBED]] for path in (run / "encoder", folder / "two" / "encoder"))
    pd.testing.assert_frame_equal(alone, together, atol=1e-3)
    np.testing.assert_allclose(alone["loss"], together["loss"], rtol=0, atol=1e-4)
    steps = [load_encoder("fbert", path / "encoder" / "model").card.step for path in (run, folder / "two")]
    assert steps[0] == steps[1]


def test_its_people_are_among_those_who_chose(folder, run):
    card = load_encoder("fbert", run / "encoder" / "model").card
    assert find_in_training(card, "other", "03") == HELD_OUT


def test_without_targets_identification_chooses_and_what_cannot_be_is_said(folder, run, capsys):
    corpus = ("--corpus", run / "corpus")
    assert run_pretrain(folder, *corpus, "--probe", folder / "other", out="second") == 0
    log = read_log(folder / "second" / "encoder")
    assert "probe" not in log
    facts = json.loads((folder / "second" / "encoder" / "model" / "config.json").read_text())
    assert facts["step"] == log.loc[[2, 4], "probe_identification"].idxmax()
    own = ("--corpus", folder / "own")
    words = [folder / "people", folder / "other", "pretrain", "--steps", "0", *own, "--quiet", "--nprocs", "1"]
    assert main([*map(str, words)]) == 0
    capsys.readouterr()
    for options, code, said in (
        (("--probe", folder / "other", "--targets", "missing"), 3, "No phenotype table has a column 'missing'"),
        (("--probe", folder / "none"), 3, "does not exist"),
        (("--probe", folder / "other", *own), 3, "88 scans of probe are in the corpus too"),
        (("--probe", folder / "other", "--window", "64"), 3, "and 40 are needed"),
    ):
        assert run_pretrain(folder, *corpus, *options, out="third") == code
        assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("shipped", "named"), [("hcp58", "{0} {1}"), ("g=hcp58", "g={0},{1}"), ("score hcp58", "score {0} {1}")]
)
def test_a_shipped_set_is_its_columns_that_are_there(folder, run, tmp_path, shipped, named):
    columns = ("PicSeq_Unadj", "CardSort_Unadj")
    table = pd.read_csv(folder / "people" / "participants.tsv", sep="\t")
    noise = np.random.default_rng(3).standard_normal((len(table), 2)) / 5
    table[list(columns)] = table[["score"]].to_numpy() + noise
    table.drop(columns="score").to_csv(tmp_path / "hcp.tsv", sep="\t", index=False)
    words = ("--corpus", run / "corpus", "--probe", folder / "other", "--phenotypes", tmp_path / "hcp.tsv", "--targets")
    found = {}
    for number, targets in enumerate((shipped, named.format(*columns))):
        out = f"{tmp_path.name}_{number}"
        assert run_pretrain(folder, *words, *targets.split(), out=out) == 0
        card = json.loads((folder / out / "encoder" / "model" / "config.json").read_text())
        found[number] = read_log(folder / out / "encoder")[PROBED], card["selection"]
    pd.testing.assert_frame_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]
    targets = tuple(shipped.split())
    cohort = load_cohort(
        folder / "other", folder / "people", targets=targets, phenotypes=(tmp_path / "hcp.tsv",), min_time=0
    )
    assert cohort.choices.targets == tuple(named.format(*columns).split())
