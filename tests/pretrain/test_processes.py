"""The pretrain level on several processes: the losses of one, told once; what was not started is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from fcpower_bids.errors import UsageError
from fcpower_bids.pretrain.configuration import PretrainConfig
from fcpower_bids.pretrain.engine import layout
from tests.command import in_file, main
from tests.pretrain.conftest import made_recordings
from tests.pretrain.outputs import QUICK, plant_outputs

SRUN = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "2", "SLURM_PROCID": "0"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "1", "RANK": "0"}
LONG = ("--steps", "150", "--checkpoint-every", "50")
PROGRAM = ("-m", "fcpower_bids")


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    plant_outputs(folder, made_recordings())
    return folder


def run(folder, name: str, *options: str, launcher: tuple[str, ...] = PROGRAM) -> subprocess.CompletedProcess[str]:
    """Run the command in its own processes, with a pack and an encoder of its own."""
    out = folder / name
    shutil.copytree(folder / "out", out)
    words = [sys.executable, *launcher, *in_file([folder / "bids", out, "pretrain", *QUICK, *options])]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, env=environment, check=False)


def losses(folder, name: str) -> list[float]:
    log = pd.read_csv(folder / name / "encoder" / "log.tsv", sep="\t", na_values="n/a")
    return log["loss"].dropna().tolist()


@pytest.fixture(scope="module")
def alone(planted) -> list[float]:
    shutil.copytree(planted / "out", planted / "alone")
    assert main([str(planted / "bids"), str(planted / "alone"), "pretrain", *QUICK]) == 0
    return losses(planted, "alone")


def test_two_devices_train_as_one(planted, alone, meeting_place):
    finished = run(planted, "devices", "--devices", "2")
    assert finished.returncode == 0, finished.stderr
    assert losses(planted, "devices") == pytest.approx(alone, abs=1e-4)
    assert [finished.stderr.count(said) for said in ("Corpus: 32", "Encoder: ", "Page: ")] == [1, 1, 1]


def test_torchrun_packs_and_tells_once(planted, alone):
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *PROGRAM)
    finished = run(planted, "torchrun", launcher=torchrun)
    assert finished.returncode == 0, finished.stderr
    assert losses(planted, "torchrun") == pytest.approx(alone, abs=1e-4)
    assert [finished.stderr.count(said) for said in ("Corpus: 32", "Encoder: ", "Page: ")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("env", "options", "told"),
    [
        (SRUN, ("--devices", "1"), "srun started 4 processes on 2 nodes, and --devices 1 asks for 2"),
        (SRUN, ("--devices", "3"), "srun started 4 processes on 2 nodes"),
        (TORCHRUN, ("--devices", "4"), "torchrun started 2 processes on 1 nodes"),
    ],
)
def test_what_was_not_started_is_refused(planted, monkeypatch, capsys, env, options, told):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert main([str(planted / "bids"), str(planted / "out"), "pretrain", *QUICK, *options]) == 2
    assert told in capsys.readouterr().err
    assert not (planted / "out" / "corpus").exists()


def test_only_the_first_process_tells_of_a_refusal(planted, monkeypatch, capsys):
    for name, value in (SRUN | {"SLURM_PROCID": "3"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="2"):
        main([str(planted / "bids"), str(planted / "out"), "pretrain", *QUICK, "--devices", "1"])
    assert capsys.readouterr().err == ""


def test_the_layout_is_that_of_srun_or_torchrun(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "8")  # an allocation in which nothing was started by srun
    assert layout(PretrainConfig()) == (1, 1)
    assert layout(PretrainConfig(devices=3)) == (3, 1)
    for name, value in SRUN.items():
        monkeypatch.setenv(name, value)
    assert layout(PretrainConfig()) == layout(PretrainConfig(devices=2)) == (2, 2)
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert layout(PretrainConfig()) == (2, 1)
    with pytest.raises(UsageError, match="leave it out"):
        layout(PretrainConfig(devices=4))


SIGNALLED = """
import shutil, signal, sys
from pathlib import Path
from fcpower_bids.app import main
from fcpower_bids.pretrain.train import _Run

number, at, folder, *words = sys.argv[1:]
read = _Run._one_step

def signal_and_read(run, step):
    if step == int(at):
        signal.raise_signal(int(number))
    if step == int(at) + 1:
        shutil.copyfile(Path(folder, "encoder", "interim", "state.json"), Path(folder, "seen.json"))
    return read(run, step)

_Run._one_step = signal_and_read
sys.exit(main(words))
"""
"""The program, in which a signal comes while the batch of a step is read; notes what is saved when the next one is."""
AT = 60


def run_signalled(folder, name: str, number: int, *options: str) -> subprocess.CompletedProcess[str]:
    """A long run that gets a signal after 60 steps, ten steps after a checkpoint."""
    launcher = ("-c", SIGNALLED, str(int(number)), str(AT), str(folder / name))
    return run(folder, name, *LONG, *options, launcher=launcher)


def weights_of(folder, name: str) -> dict[str, np.ndarray]:
    return load_file(folder / name / "encoder" / "model" / "model.safetensors")


@pytest.fixture(scope="module")
def undisturbed(planted):
    shutil.copytree(planted / "out", planted / "undisturbed")
    assert main([str(planted / "bids"), str(planted / "undisturbed"), "pretrain", *QUICK, *LONG]) == 0
    return weights_of(planted, "undisturbed"), losses(planted, "undisturbed")


@pytest.mark.parametrize(
    ("number", "code", "options", "saved"),
    [
        (signal.SIGTERM, 130, (), AT + 1),
        (signal.SIGKILL, -signal.SIGKILL, ("--checkpoint-minutes", "1e-9"), AT),
    ],
)
def test_a_run_that_is_stopped_goes_on_to_the_same_weights(planted, undisturbed, number, code, options, saved):
    """Asked to stop, it ends its step; killed, it goes on from what the clock made it save after every step."""
    name = f"stopped-{int(number)}"
    finished = run_signalled(planted, name, number, *options)
    assert finished.returncode == code, finished.stderr
    interim = planted / name / "encoder" / "interim" / "state.json"
    assert json.loads(interim.read_text())["step"] == saved
    if number == signal.SIGTERM:
        assert f"Stopped as asked after step {saved}; the same command goes on from there." in finished.stderr
    assert main([str(planted / "bids"), str(planted / name), "pretrain", *QUICK, *LONG]) == 0
    expected, expected_losses = undisturbed
    for key, value in weights_of(planted, name).items():
        np.testing.assert_array_equal(value, expected[key])
    assert losses(planted, name) == expected_losses
    assert not interim.exists()


def test_sigusr1_saves_and_the_run_goes_on(planted, undisturbed):
    finished = run_signalled(planted, "saved", signal.SIGUSR1)
    assert finished.returncode == 0, finished.stderr
    assert json.loads((planted / "saved" / "seen.json").read_text())["step"] == AT + 1
    assert losses(planted, "saved") == undisturbed[1]


def test_steps_can_be_raised_and_not_lowered(planted, undisturbed, capsys, caplog):
    words = [str(planted / "bids"), str(planted / "undisturbed"), "pretrain", *QUICK, *LONG]
    assert main([*words, "--steps", "100"]) == 2
    assert "holds a run of 150 steps; --steps can be raised, not lowered to 100" in capsys.readouterr().err
    assert main([*words, "--steps", "152"]) == 0
    assert "The run is extended from 150 to 152 steps: from step 150 on" in caplog.text
    assert "of 152)" in capsys.readouterr().err
