"""Processes and devices of a training run, and its log."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as distributed
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments import ClusterEnvironment, LightningEnvironment, SLURMEnvironment

from fcpower_bids.errors import FcPowerError, UsageError
from fcpower_bids.pretrain.configuration import PretrainConfig
from fcpower_bids.pretrain.run_state import passed_on
from fcpower_bids.resources import peak_megabytes


def peak_memory() -> float:
    """Largest memory so far: of the accelerator, or of this process where there is none."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return round(torch.cuda.max_memory_allocated() / 2**20, 1)
    return peak_megabytes()


class Clock:
    """Speed since the last reading."""

    def __init__(self, step: int, steps: int) -> None:
        self.step, self.steps = step, steps
        self.time = time.perf_counter()

    def read(self, step: int) -> dict[str, float]:
        """Steps per second, memory and time left."""
        now = time.perf_counter()
        rate = (step - self.step) / (now - self.time)
        self.step, self.time = step, now
        return {
            "steps_per_s": rate,
            "peak_mb": peak_memory(),
            "seconds_left": (self.steps - step) / rate,
        }


T = TypeVar("T")
PATIENCE = timedelta(days=7)
"""How long the others wait for the first process to pack; when it dies they know at once."""


class Started(NamedTuple):
    """Launcher of this process, and the number of its processes."""

    by: str
    tasks: int
    nodes: int
    rank: int


def started() -> Started | None:
    """Return the launcher of this process as one of several, or None."""
    env = os.environ
    if "TORCHELASTIC_RUN_ID" in env:
        return Started("torchrun", int(env["WORLD_SIZE"]), int(env.get("GROUP_WORLD_SIZE", "1")), int(env["RANK"]))
    tasks = int(env.get("SLURM_STEP_NUM_TASKS", "1")) if "SLURM_STEP_ID" in env else 1
    if tasks > 1:  # an allocation alone, without srun, has started nothing
        return Started("srun", tasks, int(env.get("SLURM_STEP_NUM_NODES", "1")), int(env["SLURM_PROCID"]))
    return None


class SlurmStep(SLURMEnvironment):
    """The tasks of one ``srun``, however they were asked for (Lightning insists on ``--ntasks-per-node``)."""

    @staticmethod
    def _validate_srun_variables() -> None:
        return

    def world_size(self) -> int:
        """Tasks of the step, which may be fewer than those of the job."""
        return int(os.environ["SLURM_STEP_NUM_TASKS"])

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """Done in `layout`, in words for the person who typed the command."""


def layout(config: PretrainConfig) -> tuple[int, int]:
    """Processes per node, and nodes: as asked for, or as they were started. Raises UsageError."""
    by = started()
    if by is None:
        return config.devices or 1, 1
    devices = config.devices or by.tasks // by.nodes
    if devices * by.nodes != by.tasks:
        raise UsageError(
            f"{by.by} started {by.tasks} processes on {by.nodes} nodes, and --devices {devices} asks for "
            f"{devices * by.nodes}: start as many, or leave it out."
        )
    return devices, by.nodes


def best_precision() -> str:
    """Default arithmetic: bfloat16 products on a GPU that has them, else float32."""
    has = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return "bf16-mixed" if has else "32-true"


def make_fabric(config: PretrainConfig) -> Fabric:
    """Lightning Fabric for this run."""
    devices, nodes = layout(config)
    by = started()
    several = devices * nodes > 1
    for name in ("lightning.fabric", "lightning.pytorch"):  # they would speak in spite of --quiet
        logging.getLogger(name).setLevel(logging.WARNING)
    return Fabric(
        devices=devices,
        num_nodes=nodes,
        strategy="auto" if not several else "ddp_spawn" if by is None else "ddp",
        precision=config.precision,  # type: ignore[arg-type]
        plugins=_environment(by),
    )


def _environment(by: Started | None) -> ClusterEnvironment | None:
    if by is None:
        return LightningEnvironment()  # an allocation of SLURM without srun must not be taken for its tasks
    return SlurmStep() if by.by == "srun" else None


@dataclass
class Processes:
    """The processes of this run, seen from one of them; made by all of them together."""

    fabric: Any  # launched

    def __post_init__(self) -> None:
        several = self.fabric.world_size > 1
        self._waiting = distributed.new_group(backend="gloo", timeout=PATIENCE) if several else None
        if not self.fabric.is_global_zero:
            logging.getLogger("fcpower_bids").setLevel(logging.CRITICAL)

    def first_only(self, work: Callable[[], T]) -> T:
        """Let the first process do something while the others wait; all of them get the result, or the error."""
        if self._waiting is None:
            return work()
        outcome: list[Any] = [(None, None)]
        if self.fabric.is_global_zero:
            try:
                outcome = [(None, work())]
            except FcPowerError as error:
                outcome = [(error, None)]
        distributed.broadcast_object_list(outcome, src=0, group=self._waiting)
        problem, result = outcome[0]
        if problem is not None:
            raise problem
        found: T = result
        return found

    def agree(self, wish: int) -> int:
        """Return the largest of the wishes of all processes, so that all do the same after the same step."""
        if self._waiting is None:
            return wish
        largest = torch.tensor(wish)
        distributed.all_reduce(largest, distributed.ReduceOp.MAX, group=self._waiting)
        return int(largest)


def on_all_processes(config: PretrainConfig, work: Callable[[Processes], T]) -> T:
    """Run `work` on every process of the run and return what it returns on the first. Raises FcPowerError."""
    try:
        fabric, spawns = make_fabric(config), started() is None and layout(config)[0] > 1
        # Nothing is handed over but the function: Lightning takes arguments apart and breaks frozen classes.
        with passed_on() if spawns else nullcontext():
            problem, result = fabric.launch(partial(_guarded, work))
        if problem is not None:
            raise problem
    except FcPowerError as error:
        by = started()
        if by is not None and by.rank > 0:
            raise SystemExit(error.exit_code) from error
        raise
    found: T = result
    return found


def _guarded(work: Callable[[Processes], T], fabric: Any) -> tuple[FcPowerError | None, T | None]:
    """Return an expected error as a value: raised in a spawned process it would arrive as a traceback."""
    try:
        return None, work(Processes(fabric))
    except FcPowerError as error:
        return error, None
