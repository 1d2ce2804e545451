"""Splits, the choice of a checkpoint by held-out families or a probe, and proofs of what was written."""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.core.folds import replicated_folds
from fcpower_bids.core.targets import fixed_target
from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.checkpoints import find_in_training
from fcpower_bids.encoders.fbert import FBert, FBertConfig
from fcpower_bids.outputs.tables import read_series
from fcpower_bids.pretrain.corpus import open_pack
from fcpower_bids.pretrain.judgement import CONFIRM, REPEATS, SELECT, TRAIN, HeldOut, choose_checkpoint, split_families
from tests.pretrain.conftest import made_recordings
from tests.pretrain.outputs import plant_outputs, read_log, run_pretrain
from tests.referee import identified, linear, nested
from tests.running import run as command
from tests.running import run_group as group


def test_no_family_is_on_two_sides():
    families = np.random.default_rng(0).integers(0, 30, 200).astype(str)
    roles = split_families(families, 0.4, seed=1)
    for family in np.unique(families):
        assert len(set(roles[families == family])) == 1
    counts = [len(np.unique(families[roles == role])) for role in (TRAIN, SELECT, CONFIRM)]
    assert counts == [18, 6, 6]
    assert (split_families(families, 0, 1) == TRAIN).all()
    assert (split_families(families, 0.4, 1) == roles).all()
    assert (split_families(families, 0.4, 2) != roles).any()


@pytest.mark.parametrize(
    ("errors", "position"),
    [
        ([0, 0, 0.03, 0], 2),  # .66 is not within .03 of .70
        ([0, 0, 0.05, 0], 3),  # the latest that is within one standard error of the best
        ([1, 1, 0.05, 1], 3),  # that of the best alone counts
        ([0, 0, np.nan, 0], 2),
        (None, 2),  # as in the paper
    ],
)
def test_the_latest_checkpoint_that_is_as_good_as_the_best_is_chosen(errors, position):
    halves = [[0.1, 0.3], [0.5, 0.2], [0.4, 0.6], [0.3, 0.5]]
    choice = choose_checkpoint(halves, [0.2, 0.69, 0.7, 0.66], errors)
    assert choice.position == position
    assert choice.selected == (0.7, 0.66)[position - 2]
    assert choice.optimism == pytest.approx(((0.5 - 0.2) + (0.6 - 0.4)) / 2)
    assert choice.confirmed == pytest.approx(choice.selected - choice.optimism)


def test_a_model_that_gives_no_numbers_has_no_score(written_once):
    """So the log has none, and the next step says why."""
    model = FBert(FBertConfig(10, d=8, layers=1, heads=2, ff=8))
    model.cls_token.data.fill_(np.nan)
    roles = np.array([SELECT, CONFIRM] * 10)
    corpus = open_pack(written_once[0] / "out" / "corpus")
    assert not HeldOut(corpus, np.arange(4, 24), roles, window=40, seed=3).evaluate(model)


def digest(salt: str, label: str) -> str:
    return hashlib.sha256(f"{salt}\nbids\n{label}".encode()).hexdigest()[:16]


def test_everyone_is_in_one_of_the_lists(tmp_path):
    recordings = made_recordings()
    for facts, _ in recordings:
        facts["subject"] = f"P{facts['subject']}x"
    recordings.append(({**recordings[0][0], "subject": "short"}, recordings[0][1][:15]))  # no window fits: not seen
    plant_outputs(tmp_path, recordings)
    run_pretrain(tmp_path, "--held-out", "0.4")
    model = tmp_path / "out" / "encoder" / "model"
    facts = json.loads((model / "config.json").read_text())
    everyone = {digest(facts["corpus_sha256"], f"P{number:02d}x") for number in range(16)}
    trained_on, held_out = facts["trained_on"], facts["held_out"]
    assert sorted(trained_on + held_out) == sorted(everyone)
    assert trained_on == sorted(trained_on)
    assert len(held_out) in (6, 7)  # of 17 families, one of them too short
    everything = "".join(path.read_text() for path in model.glob("*.[jm][sd]*"))
    assert not any(f"P{number:02d}x" in everything for number in range(16))
    assert load_encoder("fbert", model).card.trained_on == tuple(trained_on)
    card = load_encoder("fbert", model).card
    for number in range(16):
        seen = "trained" if digest(card.corpus_sha256, f"P{number:02d}x") in trained_on else "held out"
        assert find_in_training(card, "bids", f"sub-P{number:02d}x") == seen
    assert find_in_training(card, "bids", "new") == find_in_training(card, "other", "P00x") == "no"
    assert find_in_training(card, "", "new") == "unknown"
    assert load_encoder("random-init", model).card.trained_on == ()


def test_a_scan_under_two_names_is_not_learned_from_and_judged_on(tmp_path):
    recordings = made_recordings(people=10)
    twins = [({**facts, "subject": f"copy{facts['subject']}"}, 5 * series) for facts, series in recordings]
    plant_outputs(tmp_path, recordings + twins)
    told = " ".join(run_pretrain(tmp_path, code=3).err.split())
    twins = re.search(r"(\S+) and (\S+) are the same scan under two names \(pairs of this kind: (\d+)\)", told)
    assert twins[1].replace("copy", "") == twins[2].replace("copy", "")
    assert twins[1] != twins[2]
    corpus = open_pack(tmp_path / "out" / "corpus")
    trains = dict(zip(corpus.table["id"], split_families(corpus.families, 0.4, 0) == TRAIN, strict=True))
    apart = [name for name in trains if "copy" in name and trains[name] != trains[name.replace("copy", "")]]
    assert int(twins[3]) == len(apart) > 0
    assert not (tmp_path / "out" / "encoder" / "model").exists()
    run_pretrain(tmp_path, "--held-out", "0")  # nobody is judged


PEOPLE, WINDOW = 44, 20
PENALTIES = 10.0 ** np.arange(-3, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus of sixteen people, and a cohort of 44 others in two sessions with a score that follows their series."""
    folder = tmp_path_factory.mktemp("probed")
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
    asked = ("--analyses", "check", "--min-time", "0", "--nprocs", "1")
    group(people, folder / "other", "-d", f"list={people / 'list.tsv'}", *asked)
    (stored,) = (folder / "other").rglob("sub-00_ses-0*_timeseries.npy")
    plant_outputs(folder, [({**facts, "parcel_names": read_series(stored)[1]}, x) for facts, x in made_recordings()])
    return folder


@pytest.fixture(scope="module")
def run(folder):
    run_pretrain(folder, "--probe", folder / "other", "--targets", "score", "--steps", "4")
    return folder / "out"


def probe_of(features, target, names) -> float:
    """Nested cross-validation by scikit-learn; the inner folds are scaled as the outer training people."""
    folds = replicated_folds(len(features), 10, 5, REPEATS, families=names)
    predicted = np.zeros((REPEATS, len(features)))
    expected = nested(lambda train: linear(features, train), fixed_target(target[:, None]), folds, PENALTIES)
    for fold, (_, scores, _) in zip(folds, expected, strict=True):
        predicted[fold.repeat, fold.test] = scores
    return float(np.mean([np.corrcoef(one, target)[0, 1] for one in predicted]))


def test_the_checkpoint_is_the_one_that_the_probe_likes_best(folder, run):
    log = read_log(run / "encoder")
    saved = log.loc[[2, 4]]
    facts = json.loads((run / "encoder" / "model" / "config.json").read_text())
    assert facts["step"] == saved["probe"].idxmax()
    first, second = saved["select"].idxmax(), saved["confirm"].idxmax()
    falls = (saved["select"] - saved["confirm"])[first] + (saved["confirm"] - saved["select"])[second]
    assert facts["optimism"] == pytest.approx(falls / 2)
    said = "best of 2 checkpoints by the frozen probe of other (44 people: score), as in the paper"
    assert facts["selection"] == said
    about = json.loads((run / "encoder" / "alignment.json").read_text())
    assert about["Optimism"] == 0, "no held-out family chose the checkpoint"
    assert "less 0.000 by which choosing" in about["Verdict"]


def test_its_scores_are_those_of_scikit_learn(folder, run):
    log = read_log(run / "encoder")
    target = pd.read_csv(folder / "people" / "participants.tsv", sep="\t")["score"].to_numpy()
    encoder = load_encoder("fbert", run / "encoder" / "model")
    row = log.loc[encoder.card.step]
    rows = []
    for path in sorted((folder / "other").rglob("*_timeseries.npy")):
        (series, parcels), found = read_series(path), re.search(r"(sub-\d+)_ses-(\d)", path.name)
        rows.append((encoder.embed([series], parcels, np.nan)[0].astype(float), *found.groups()))
    vectors, people, sessions = map(np.array, zip(*rows, strict=True))
    names = np.unique(people)
    features = np.array([vectors[people == name].mean(axis=0) for name in names])
    assert row["probe"] == pytest.approx(probe_of(features, target, names), abs=1e-4)
    half = split_families(names, 1.0, 0) == SELECT
    assert row["select"] == pytest.approx(probe_of(features[half], target[half], names[half]), abs=1e-4)
    one, other = (vectors[sessions == session] for session in "01")
    assert row["probe_identification"] == pytest.approx(identified(one, other))


def test_without_targets_identification_chooses_and_what_cannot_be_is_said(folder, run):
    corpus = ("--corpus", run / "corpus")
    run_pretrain(folder, *corpus, "--probe", folder / "other", out="second")
    log = read_log(folder / "second" / "encoder")
    assert "probe" not in log
    facts = json.loads((folder / "second" / "encoder" / "model" / "config.json").read_text())
    assert facts["step"] == log.loc[[2, 4], "probe_identification"].idxmax()
    own = ("--corpus", folder / "own")
    words = ("pretrain", "--steps", "0", *own, "--quiet", "--nprocs", "1")
    command(folder / "people", folder / "other", *words, code=0)
    for options, code, said in (
        (("--probe", folder / "other", "--targets", "missing"), 3, "No phenotype table has a column 'missing'"),
        (("--probe", folder / "other", *own), 3, "88 scans of probe are in the corpus too"),
    ):
        told = run_pretrain(folder, *corpus, *options, out="third", code=code).err
        assert said in " ".join(told.split())
