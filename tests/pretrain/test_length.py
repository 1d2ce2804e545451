"""The length of a training in minutes, the way from a list of series to it, and one run at a time, by the command."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

from fcpower_bids.pretrain import train
from fcpower_bids.store import LOCKS, lock
from tests.cases.cohorts import write_series
from tests.command import main
from tests.pretrain.conftest import made_recordings
from tests.pretrain.outputs import HERE, TINY, in_child, plant_outputs, run_pretrain

SHORT = ("--held-out", "0.4", "--accept-unproven", "--checkpoint-every", "1000")


def state_of(folder) -> dict:
    (path,) = (folder / "encoder" / "checkpoints").glob("step-*/state.json")
    return json.loads(path.read_text())


def test_minutes_set_steps_and_warm_up_and_a_second_run_keeps_them(tmp_path, capsys):
    plant_outputs(tmp_path, made_recordings())
    words = (*TINY, *HERE, *SHORT, "--minutes", "0.02")
    assert run_pretrain(tmp_path, quick=words) == 0
    told = capsys.readouterr().err
    steps, warm = map(int, re.search(r"have time for (\d+) steps, (\d+) of warm-up", told).groups())
    assert steps >= 10
    assert warm == min(100, steps // 10)
    assert state_of(tmp_path / "out")["steps"] == steps
    rates = pd.read_csv(tmp_path / "out" / "encoder" / "log.tsv", sep="\t")["learning_rate"].dropna()
    assert rates.iloc[-1] < 0.1 * 8.5e-4  # the cosine ends where the minutes end
    assert not (tmp_path / "out" / "encoder" / "trial").exists()
    assert run_pretrain(tmp_path, quick=words) == 0  # nothing is timed again
    assert f"have time for {steps} steps" in capsys.readouterr().err
    assert run_pretrain(tmp_path, quick=(*TINY, *HERE, *SHORT, "--minutes", "5")) == 2
    assert "holds a run of 0.02 minutes" in capsys.readouterr().err


def test_minutes_are_the_steps_that_they_set(tmp_path, monkeypatch):
    """The same weights as of a run that is given these steps and this warm-up."""
    plant_outputs(tmp_path, made_recordings())
    monkeypatch.setattr(train, "TIMED", 1)
    assert run_pretrain(tmp_path, quick=(*TINY, *HERE, *SHORT, "--minutes", "0.003")) == 0
    schedule = json.loads((tmp_path / "out" / "encoder" / "schedule.json").read_text())
    told = ("--steps", str(schedule["steps"]), "--warmup", str(schedule["warmup"]))
    corpus = ("--corpus", tmp_path / "out" / "corpus")
    assert run_pretrain(tmp_path, *told, *corpus, quick=(*TINY, *HERE, *SHORT), out="told") == 0
    states = [
        next((tmp_path / out / "encoder" / "checkpoints").glob("step-*/optimizer.safetensors")).read_bytes()
        for out in ("out", "told")
    ]
    assert states[0] == states[1]


def test_two_processes_agree_on_what_the_minutes_have_time_for(tmp_path, meeting_place):
    plant_outputs(tmp_path, made_recordings())
    words = (*TINY, *HERE, *SHORT, "--minutes", "0.05", "--devices", "2")
    assert in_child(lambda: run_pretrain(tmp_path, quick=words)) == 0
    schedule = json.loads((tmp_path / "out" / "encoder" / "schedule.json").read_text())
    assert state_of(tmp_path / "out")["steps"] == schedule["steps"]


def test_the_time_that_is_left_is_said_after_the_first_steps(tmp_path, capsys):
    plant_outputs(tmp_path, made_recordings())
    assert run_pretrain(tmp_path, quick=(*TINY, *HERE, *SHORT, "--steps", "50", "--warmup", "5")) == 0
    assert "The 30 steps that are left take less than a minute (--minutes)." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--minutes", "0"), "--minutes 0 must be above 0"),
        (("--minutes", "3", "--steps", "9"), "--steps and --minutes both say how long is trained"),
    ],
)
def test_lengths_that_cannot_be_are_refused(tmp_path, words, sentence, capsys):
    assert main([tmp_path, tmp_path / "out", "pretrain", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_list_of_series_is_trained_on_by_one_command(tmp_path, capsys):
    folder = write_series(tmp_path, [f"sub-{number:02d}" for number in range(1, 17)], parcels=8, volumes=60)
    (folder / "bids" / "dataset_description.json").write_text('{"Name": "listed", "BIDSVersion": "1.9.0"}')
    words = (*TINY, *HERE, *SHORT, "--steps", "4", "--warmup", "1", "-d", f"list={folder / 'list.tsv'}")
    assert main([folder / "bids", folder / "out", "pretrain", *words]) == 0
    table = pd.read_csv(folder / "out" / "corpus" / "recordings.tsv", sep="\t", dtype=str)
    assert sorted(table["subject"]) == [f"{number:02d}" for number in range(1, 17)]
    assert set(table["T"]) == {"60"}
    assert (folder / "out" / "encoder" / "model" / "model.safetensors").is_file()
    assert main([folder / "bids", folder / "two", "pretrain", *words[:-1], f"a={folder / 'out'}"]) == 2
    assert "list=FILE or LAYOUT=FOLDER" in capsys.readouterr().err


def test_a_second_pretraining_in_the_same_folder_is_refused_and_starts_when_the_first_has_ended(tmp_path, capsys):
    plant_outputs(tmp_path, made_recordings())
    with lock(tmp_path / "out" / LOCKS / "pretrain"):
        assert run_pretrain(tmp_path) == 2
    assert "Another pretraining is at work in" in capsys.readouterr().err
    assert not (tmp_path / "out" / "encoder").exists()
    assert run_pretrain(tmp_path) == 0
    assert not (tmp_path / "out" / LOCKS).exists()
