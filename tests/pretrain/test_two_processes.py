"""Two gloo processes compute what one does: gradients, and runs that go on from each other's checkpoints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fcpower_bids.errors import UsageError
from fcpower_bids.pretrain.configuration import LOSSES, PretrainConfig
from fcpower_bids.pretrain.engine import Processes, make_fabric
from fcpower_bids.pretrain.packing import pack_corpus
from fcpower_bids.pretrain.train import pretrain, train
from tests.pretrain.conftest import as_sources, made_recordings
from tests.pretrain.test_engine import assert_same, gradients, single
from tests.pretrain.test_train import config, weights

CASES = [(name, chunk) for name in LOSSES for chunk in (None, 2)]
# Dropout depends on the process, so it is off.
ARCHITECTURE = {"d": 8, "layers": 1, "heads": 2, "ff": 8, "dropout": 0.0}


def run_config(devices: int) -> PretrainConfig:
    return config(architecture=ARCHITECTURE, precision="64-true", devices=devices)


def refuse() -> None:
    raise UsageError(f"refused by process {os.getpid()}")


def on_each_process(fabric, folder: str) -> None:
    """What needs two processes, in one launch: starting them takes longer than all of this."""
    torch.set_num_threads(1)
    path = Path(folder)
    for loss, chunk in CASES:
        save_file(gradients(fabric, loss, chunk), path / f"{loss}-{chunk}-{fabric.global_rank}.safetensors")
    processes = Processes(fabric)
    try:
        processes.first_only(refuse)
    except UsageError as told:
        (path / f"told-{fabric.global_rank}").write_text(str(told))
    train(processes, path / "pack", path / "two-one", run_config(2), 4)
    train(processes, path / "pack", path / "one-two", run_config(2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, meeting_place) -> Path:
    path = tmp_path_factory.mktemp("two")
    pack_corpus(as_sources(made_recordings()), path / "pack")
    pretrain(path / "pack", path / "one", run_config(1))
    pretrain(path / "pack", path / "one-two", run_config(1), stop_step=4)
    make_fabric(run_config(2)).launch(on_each_process, str(path))
    return path


@pytest.mark.parametrize(("loss", "chunk"), CASES)
def test_the_gradient_is_that_of_the_global_batch(folder, loss, chunk):
    """Also in chunks (GradCache); the same on both processes, after averaging."""
    expected = gradients(single(), loss, None)
    for rank in (0, 1):
        assert_same(expected, load_file(folder / f"{loss}-{chunk}-{rank}.safetensors"), atol=1e-10)


def test_all_processes_meet_the_error_of_the_first(folder):
    told = [(folder / f"told-{rank}").read_text() for rank in (0, 1)]
    assert told[0] == told[1]
    assert "refused by process" in told[0]


def test_one_process_resumes_the_checkpoint_of_two(folder):
    outcome = pretrain(folder / "pack", folder / "two-one", run_config(1))
    assert_same(weights(folder / "one", 4), weights(folder / "two-one", 4), atol=1e-7)
    assert_same(weights(folder / "one"), weights(folder / "two-one"), atol=1e-7)
    assert outcome.last_step == 8


def test_two_processes_resume_the_checkpoint_of_one(folder):
    assert_same(weights(folder / "one"), weights(folder / "one-two"), atol=1e-7)
    expected = pretrain(folder / "pack", folder / "one", run_config(1))
    found = pretrain(folder / "pack", folder / "one-two", run_config(1))
    assert found.step == expected.step
    assert found.selected == pytest.approx(expected.selected, abs=1e-6)
