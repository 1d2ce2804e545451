"""State of a training run: tables, checkpoints, interruption and resumption."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd
import torch
from lightning.fabric.plugins.precision import Precision
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import Optimizer

from fcpower_bids.encoders.checkpoints import (
    CheckpointError,
    ModelCard,
    check_proof,
    load_strictly,
    read_tensors,
    write_model,
)
from fcpower_bids.encoders.fbert import FBert
from fcpower_bids.errors import DatasetError, FcPowerError, UsageError
from fcpower_bids.schema import TABLES
from fcpower_bids.store import atomic, digest_of, load_json, replace_folder, write_text

LOG = TABLES["log"]
MODEL, INITIAL, RANDOM, CHANCE = "model", "initial", "random-init", "chance"
FC, FC_POWER, PCA = "fc", "fc_power", "pca"
IN_WORDS = {
    MODEL: "this model",
    INITIAL: "before training",
    RANDOM: "random weights",
    FC: "FC of the window",
    FC_POWER: "FC^α of the window",
    PCA: "PCA of FC of the window",
    CHANCE: "chance",
}
"""Names of the rows of `ALIGNMENT`."""
ALIGNMENT = TABLES["alignment"]


SAVE, STOP = 1, 2
WISHES = {signal.SIGUSR1: SAVE, signal.SIGTERM: STOP, signal.SIGINT: STOP}


class Interrupted(FcPowerError):
    """The run was asked to stop and left a checkpoint."""

    exit_code = 130


class Wishes:
    """Request of signals since the last reading: none (0), `SAVE` or `STOP`."""

    def __init__(self) -> None:
        self.value = 0

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Note a signal."""
        self.value = max(self.value, WISHES[signal.Signals(number)])

    def take(self) -> int:
        """Read what is wished and forget it, but not a wish to stop."""
        value = self.value
        self.value = STOP if value == STOP else 0
        return value


@contextmanager
def heard() -> Iterator[Wishes]:
    """Hear signals instead of being ended by them."""
    wishes = Wishes()
    with _handled(wishes.hear):
        yield wishes


@contextmanager
def passed_on() -> Iterator[None]:
    """Hand signals to the processes that this one has started and waits for."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        for child in multiprocessing.active_children():
            if child.pid is not None:
                os.kill(child.pid, number)

    with _handled(pass_on):
        yield


@contextmanager
def _handled(handler: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers, and only it is interrupted
        return
    before = {number: signal.signal(number, handler) for number in WISHES}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


logger = logging.getLogger(__name__)

OPTIMIZER, OPTIMIZER_DIGEST = "optimizer.safetensors", "optimizer_sha256"
COLUMNS = tuple(LOG.columns)


@dataclass(frozen=True)
class RunFolder:
    """The output folder of one pretraining run."""

    path: Path
    fingerprint: str  # digest of everything that must be the same when the run is resumed
    # of the run; with 16-mixed it has the scale of the gradients as its state
    precision: Precision = field(default_factory=Precision)

    def checkpoint(self, step: int) -> Path:
        """Folder of the checkpoint of one step."""
        return self.path / "checkpoints" / f"step-{step:07d}"

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, in ascending order."""
        folders = (self.path / "checkpoints").glob("step-*")
        return sorted(int(match[1]) for f in folders if (match := re.fullmatch(r"step-(\d+)", f.name)))

    @property
    def interim(self) -> Path:
        """Folder of the one checkpoint that only serves to go on: it is not a candidate for the model."""
        return self.path / "interim"

    def save(
        self, step: int, model: FBert, optimizer: Optimizer, card: ModelCard, steps: int, interim: bool = False
    ) -> None:
        """Write the checkpoint of a step, whole or not at all; the ones before it stay. Raises DatasetError."""

        def write(folder: Path) -> None:
            write_model(folder, model, model.config, card)
            names = [name for name, _ in model.named_parameters()]
            stored = optimizer.state_dict()["state"]
            tensors = {f"{names[i]}|{key}": v.cpu().contiguous() for i, s in stored.items() for key, v in s.items()}
            with atomic(folder / OPTIMIZER, flush=False) as part:  # the folder is written whole
                save_file(tensors, part)
            state = {"step": step, "steps": steps, "fingerprint": self.fingerprint}
            state[OPTIMIZER_DIGEST] = digest_of(folder / OPTIMIZER)
            state["scaler"] = self.precision.state_dict()
            write_text(folder / "state.json", json.dumps(state) + "\n")

        try:
            replace_folder(self.interim if interim else self.checkpoint(step), write)
        except OSError as error:
            last = max((s for s in self.steps() if s < step), default=None)
            where = "there is none before it" if last is None else f"step {last} is intact"
            raise DatasetError(
                f"The checkpoint of step {step} could not be written to {self.path} ({error}); {where}. "
                "Make room and start again: training resumes from there."
            ) from error
        if interim:
            return
        shutil.rmtree(self.interim, ignore_errors=True)
        for other in self.steps():
            if other != step:
                (self.checkpoint(other) / OPTIMIZER).unlink(missing_ok=True)

    def resume(self, model: FBert, optimizer: Optimizer, steps: int) -> int:
        """Restore the newest checkpoint; return its step, or 0 without one. Raises UsageError, DatasetError."""
        regular = [one for step in self.steps() if ((one := self.checkpoint(step)) / OPTIMIZER).exists()]
        folders = regular[-1:] + ([self.interim] if (self.interim / OPTIMIZER).exists() else [])
        folder = max(folders, key=lambda one: int(_state(one)["step"]), default=None)
        if folder is None:
            return 0
        state = _state(folder)
        if state["fingerprint"] != self.fingerprint:
            raise UsageError(
                f"{self.path} holds a run with other choices or another corpus; remove it or give another folder."
            )
        if (before := int(state.get("steps", steps))) > steps:
            raise UsageError(
                f"{self.path} holds a run of {before} steps; --steps can be raised, not lowered to {steps}."
            )
        if before < steps:
            logger.warning(
                "The run is extended from %d to %d steps: from step %d on the learning rate is that of the longer run, "
                "so the result is not that of %d steps from the start.",
                *(before, steps, state["step"], steps),
            )
        try:
            load_strictly(model, read_tensors(folder / "model.safetensors"), str(folder))
            check_proof(folder, model.config, model.state_dict())
            stored = load_file(folder / OPTIMIZER)
            if state.get(OPTIMIZER_DIGEST) not in (None, digest_of(folder / OPTIMIZER)):
                raise CheckpointError(f"{OPTIMIZER} is not what was written")
        except (CheckpointError, SafetensorError, OSError) as error:
            raise _damaged(folder, error) from error
        _restore_optimizer(model, optimizer, stored, folder / OPTIMIZER)
        if state.get("scaler"):
            self.precision.load_state_dict(state["scaler"])
        return int(state["step"])

    def read_log(self, until: int) -> pd.DataFrame:
        """Rows of the log up to a step: steps after the resumed checkpoint happen again."""
        path = self.path / "log.tsv"
        if not path.exists():
            return pd.DataFrame(columns=list(COLUMNS))
        try:
            log = pd.read_csv(path, sep="\t", na_values="n/a")
            numbers = log.astype(float)
            complete = path.read_bytes().endswith(b"\n") and list(log) == [each for each in COLUMNS if each in log]
            complete &= set(LOG.needed) <= set(log)
        except ValueError as error:
            raise _damaged(path, error) from error
        if not complete:
            raise _damaged(path, "it ends too early")
        return log[numbers["step"] <= until].reindex(columns=list(COLUMNS))

    def write_log(self, rows: list[Mapping[str, Any]]) -> None:
        """Write the log in one step."""
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        table = table[[name for name in COLUMNS if name in LOG.needed or table[name].notna().any()]]
        text = table.to_csv(sep="\t", index=False, na_rep="n/a", lineterminator="\n")
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.path / "log.tsv", text)

    def write_alignment(self, table: pd.DataFrame, facts: Mapping[str, Any]) -> None:
        """Write what the model is compared with, and a sidecar with the verdict."""
        text = table.to_csv(sep="\t", index=False, na_rep="n/a", lineterminator="\n")
        write_text(self.path / "alignment.tsv", text)
        write_text(self.path / "alignment.json", json.dumps({**facts, **ALIGNMENT.describe()}, indent=2) + "\n")


def _state(folder: Path) -> dict[str, Any]:
    path = folder / "state.json"
    try:
        state = load_json(path)
        return {**state, "step": int(state["step"]), "fingerprint": str(state["fingerprint"])}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, why: object) -> DatasetError:
    return DatasetError(
        f"{path} is damaged ({why}), so the run cannot go on from there. Remove the folder of the encoder and run the "
        "same command again: training begins anew."
    )


def _restore_optimizer(model: nn.Module, optimizer: Optimizer, stored: Mapping[str, torch.Tensor], path: Path) -> None:
    names = {name: i for i, (name, _) in enumerate(model.named_parameters())}
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in stored.items():
        name, _, kind = key.partition("|")
        if name not in names:
            raise _damaged(path, f"it knows a parameter {name}, and the model does not")
        state.setdefault(names[name], {})[kind] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
