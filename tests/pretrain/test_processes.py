"""Several processes, and processes that are ended: losses, gradients and weights of one that is left alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from fcpower_bids.errors import Unproven, UsageError
from fcpower_bids.pretrain import engine
from fcpower_bids.pretrain.engine import LOSSES, PretrainConfig, Processes, layout, make_fabric
from fcpower_bids.pretrain.packing import pack_corpus
from fcpower_bids.pretrain.train import _Run, train
from tests.command import main
from tests.pretrain.conftest import as_sources, made_recordings
from tests.pretrain.outputs import (
    QUICK,
    checkpoints,
    in_child,
    plant_outputs,
    pretrain,
    read_log,
    run_pretrain,
)
from tests.pretrain.test_training import assert_same, config, gradients, single, weights

SRUN = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "2", "SLURM_PROCID": "0"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "1", "RANK": "0"}
LONG, EVERY = ("--steps", "30"), 10


def run(folder, name: str, *options: str, every: int = 2) -> int:
    """Run the command with a pack and an encoder of its own."""
    shutil.copytree(folder / "out", folder / name, dirs_exist_ok=True)
    with checkpoints(every):
        code = main([folder / "bids", folder / name, "pretrain", *QUICK, *options])
    return 0 if code == Unproven.exit_code else code


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    plant_outputs(folder, made_recordings())
    assert run(folder, "undisturbed", *LONG, every=EVERY) == 0
    return folder


def losses(folder, name: str) -> list[float]:
    log = read_log(folder / name / "encoder")
    return log["loss"].dropna().tolist()


def test_torchrun_packs_and_tells_once(planted, capfd):
    assert run(planted, "alone") == 0
    capfd.readouterr()
    once = LaunchConfig(1, 1, 2, rdzv_backend="c10d", rdzv_endpoint="localhost:0", start_method="fork", max_restarts=0)
    assert elastic_launch(once, run)(planted, "torchrun") == {0: 0, 1: 0}
    assert losses(planted, "torchrun") == pytest.approx(losses(planted, "alone"), abs=1e-4)
    told = capfd.readouterr().err
    assert [told.count(said) for said in ("Corpus: 32", "Encoder: ", "Page: ")] == [1, 1, 1]


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


INTERIM = Path("encoder", "interim", "optimizer.safetensors")


def run_signalled(folder, name: str, signals: dict[int, int], *options: str) -> int | None:
    """A long run in a process that gets signals while the batch of a step is read; notes what is saved after one."""
    read = _Run._one_step

    def signal_and_read(run, step):
        if step in signals:
            signal.raise_signal(signals[step])
        if step - 1 in signals:
            shutil.copyfile(folder / name / INTERIM, folder / f"{name}-{step}.safetensors")
        return read(run, step)

    def work() -> int:
        _Run._one_step = signal_and_read
        return run(folder, name, *LONG, *options, every=EVERY)

    return in_child(work)


def saved_step(path: Path) -> int:
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["state"])["step"]


def assert_goes_on_as_if_undisturbed(folder, name: str) -> None:
    run_pretrain(folder, *LONG, out=name, every=EVERY)
    assert losses(folder, name) == losses(folder, "undisturbed")
    assert_same(*(load_file(folder / each / "encoder/model/model.safetensors") for each in ("undisturbed", name)))


def test_a_run_asked_to_save_goes_on_and_one_asked_to_stop_ends_its_step(planted, capfd):
    assert run_signalled(planted, "asked", {12: signal.SIGUSR1, 15: signal.SIGTERM}) == 130
    assert saved_step(planted / "asked-13.safetensors") == 13
    assert "Stopped as asked after step 16; the same command goes on from there." in capfd.readouterr().err
    assert saved_step(planted / "asked" / INTERIM) == 16
    assert_goes_on_as_if_undisturbed(planted, "asked")


def test_a_killed_run_goes_on_from_what_the_clock_made_it_save(planted):
    options = ("--checkpoint-minutes", "1e-9")
    assert run_signalled(planted, "killed", {12: signal.SIGKILL}, *options) == -signal.SIGKILL
    assert saved_step(planted / "killed" / INTERIM) == 12
    output = planted / "killed"
    halves = [output / place / ".x.0123456789abcdef.part" for place in ("encoder", "encoder/checkpoints", ".", "logs")]
    for half in halves:  # as a kill at another moment leaves them
        half.touch() if half.parent.name == "logs" else half.mkdir()
    assert_goes_on_as_if_undisturbed(planted, "killed")
    assert not any(half.exists() for half in halves)


CASES = [(name, chunk) for name in LOSSES for chunk in (None, 2)]
# Dropout depends on the process, so it is off.
ARCHITECTURE = {"d": 8, "layers": 1, "heads": 2, "ff": 8, "dropout": 0.0}


def run_config(devices: int) -> PretrainConfig:
    return config(architecture=ARCHITECTURE, precision="64-true", devices=devices)


def refuse() -> None:
    raise UsageError(f"refused by process {os.getpid()}")


def on_each_process(fabric, folder: str) -> None:
    """What needs two processes, in one launch."""
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
def two(tmp_path_factory, meeting_place) -> Path:
    path, fabric = tmp_path_factory.mktemp("two"), engine.Fabric
    pack_corpus(as_sources(made_recordings()), path / "pack")
    pretrain(path / "pack", path / "one", run_config(1))
    pretrain(path / "pack", path / "one-two", run_config(1), stop_step=4)
    with pytest.MonkeyPatch.context() as patch:  # forked, as nothing has to be imported then
        patch.setattr(engine, "Fabric", lambda **choices: fabric(**choices | {"strategy": "ddp_fork"}))
        make_fabric(run_config(2)).launch(on_each_process, str(path))
    return path


@pytest.mark.parametrize(("loss", "chunk"), CASES)
def test_the_gradient_is_that_of_the_global_batch(two, loss, chunk):
    """Also in chunks (GradCache); the same on both processes, after averaging."""
    expected = gradients(single(), loss, None)
    for rank in (0, 1):
        assert_same(expected, load_file(two / f"{loss}-{chunk}-{rank}.safetensors"), atol=1e-10)


def test_processes_meet_the_error_of_the_first_and_go_on_from_the_checkpoint_of_another_number(two):
    told = [(two / f"told-{rank}").read_text() for rank in (0, 1)]
    assert told[0] == told[1]
    assert "refused by process" in told[0]
    one, of_two, of_one = (pretrain(two / "pack", two / name, run_config(1)) for name in ("one", "two-one", "one-two"))
    assert_same(weights(two / "one", 4), weights(two / "two-one", 4), atol=1e-7)
    for name, outcome in (("two-one", of_two), ("one-two", of_one)):
        assert_same(weights(two / "one"), weights(two / name), atol=1e-7)
        assert (outcome["step"], outcome["last_step"]) == (one["step"], 8)
        assert outcome["selected"] == pytest.approx(one["selected"], abs=1e-6)
