"""Processes and devices of a run, the student's gradient over microbatches, and batches of windows."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.distributed as distributed
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments import LightningEnvironment, SLURMEnvironment
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from fcpower_bids.errors import FcPowerError, UsageError
from fcpower_bids.pretrain.configuration import Loss, PretrainConfig

BATCH, DROPOUT, _, EVALUATION, SPLIT = range(5)
"""Streams of random numbers that must not share their seeds."""
PATIENCE = timedelta(days=7)
"""How long the others wait for the first process to pack; when it dies they know at once."""
SAVE, STOP = 1, 2
WISHES = {signal.SIGUSR1: SAVE, signal.SIGTERM: STOP, signal.SIGINT: STOP}
T = TypeVar("T")


# --- Batches and gradients ------------------------------------------------------------------------------------------


def draw_batch(
    places: NDArray[np.integer], size: int, key: tuple[int, ...], uniform: str = "windows"
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Draw distinct recordings and one window of each. Places (n,); returns members (size,), chosen (size,)."""
    rng = np.random.default_rng(key)
    if uniform == "windows":  # the largest of log(weight) + Gumbel noise are a weighted draw without replacement
        members = np.argsort(-np.log(places) - rng.gumbel(size=len(places)), kind="stable")[:size]
    else:
        members = rng.permutation(len(places))[:size]
    return members, rng.integers(0, places[members])


@dataclass(frozen=True)
class Gradient:
    """Computes gradients of one loss."""

    fabric: Any
    model: nn.Module  # as set up by `fabric`
    loss: Loss
    chunk: int | None = None  # recordings in memory at a time, None for all

    def accumulate(self, x: Tensor, K: Tensor, key: tuple[int, int]) -> Tensor:
        """Add the gradient of the global loss, K (B, B), of windows (b, T, P) to the parameters."""
        if self.chunk is None or self.chunk >= len(x):
            value = self.loss(self._gather(self._embed(x, key, 0), with_gradient=True), K)
            self.fabric.backward(value)
            return value.detach()
        return self._in_chunks(x.split(self.chunk), K, key)

    def _in_chunks(self, chunks: Sequence[Tensor], K: Tensor, key: tuple[int, int]) -> Tensor:
        """GradCache (Gao et al. 2021): embed without graph, differentiate the loss, embed again chunk by chunk."""
        with torch.no_grad():
            local = torch.cat([self._embed(chunk, key, i) for i, chunk in enumerate(chunks)])
        E = self._gather(local, with_gradient=False).detach().requires_grad_()
        value = self.loss(E, K)
        (gradient,) = torch.autograd.grad(value, E)
        # Data-parallel training averages over processes, and each one contributes its own rows only.
        world, rank = self.fabric.world_size, self.fabric.global_rank
        mine = gradient.view(world, *local.shape)[rank] * world
        pieces = mine.split([len(chunk) for chunk in chunks])
        for i, (chunk, piece) in enumerate(zip(chunks, pieces, strict=True)):
            waits = world > 1 and i < len(chunks) - 1
            with self.fabric.no_backward_sync(self.model) if waits else nullcontext():
                self.fabric.backward(self._embed(chunk, key, i), piece)
        return value.detach()

    def _embed(self, x: Tensor, key: tuple[int, int], chunk: int) -> Tensor:
        seed = np.random.SeedSequence((key[0], DROPOUT, key[1], self.fabric.global_rank, chunk))
        torch.manual_seed(int(seed.generate_state(1, np.uint64)[0] >> np.uint64(1)))
        out: Tensor = self.model(x)
        return out

    def _gather(self, E: Tensor, with_gradient: bool) -> Tensor:
        if self.fabric.world_size == 1:
            return E
        gathered: Tensor = self.fabric.all_gather(E, sync_grads=with_gradient)
        return gathered.flatten(0, 1)


def make_optimizer(model: nn.Module, config: PretrainConfig, device: torch.device) -> Optimizer:
    """AdamW at the rate of step 0; in one kernel for all parameters on a GPU."""
    fused = True if device.type == "cuda" else None
    return AdamW(model.parameters(), lr=config.rate(0), weight_decay=config.weight_decay, fused=fused)


# --- Processes and signals ------------------------------------------------------------------------------------------


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
    (devices, nodes), by = layout(config), started()
    for name in ("lightning.fabric", "lightning.pytorch"):  # they would speak in spite of --quiet
        logging.getLogger(name).setLevel(logging.WARNING)
    # An allocation of SLURM without srun must not be taken for its tasks.
    plugin = LightningEnvironment() if by is None else SlurmStep() if by.by == "srun" else None
    return Fabric(
        devices=devices,
        num_nodes=nodes,
        strategy="auto" if devices * nodes == 1 else "ddp_spawn" if by is None else "ddp",
        precision=config.precision,  # type: ignore[arg-type]
        plugins=plugin,
    )


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
        outcome: list[Any] = [None]
        if self.fabric.is_global_zero:
            outcome = [_guarded(work)]
        distributed.broadcast_object_list(outcome, src=0, group=self._waiting)
        return _result(outcome[0])

    def agree(self, wish: int) -> int:
        """Return the largest of the wishes of all processes, so that all do the same after the same step."""
        if self._waiting is None:
            return wish
        largest = torch.tensor(wish)
        distributed.all_reduce(largest, distributed.ReduceOp.MAX, group=self._waiting)
        return int(largest)


def on_all_processes(config: PretrainConfig, work: Callable[[Processes], T]) -> T:
    """Run `work` on every process of the run and return what it returns on the first. Raises FcPowerError."""

    def pass_on(number: int, frame: object) -> None:
        for child in multiprocessing.active_children():
            if child.pid is not None:
                os.kill(child.pid, number)

    by = started()
    try:
        fabric, spawns = make_fabric(config), by is None and layout(config)[0] > 1
        # Nothing is handed over but the function: Lightning takes arguments apart and breaks frozen classes.
        with handled(pass_on) if spawns else nullcontext():
            return _result(fabric.launch(partial(_launched, work)))
    except FcPowerError as error:
        if by is not None and by.rank > 0:
            raise SystemExit(error.exit_code) from error
        raise


def _launched(work: Callable[[Processes], T], fabric: Any) -> tuple[FcPowerError | None, T | None]:
    return _guarded(lambda: work(Processes(fabric)))


def _guarded(work: Callable[[], T]) -> tuple[FcPowerError | None, T | None]:
    """Return an expected error as a value: raised in a spawned process it would arrive as a traceback."""
    try:
        return None, work()
    except FcPowerError as error:
        return error, None


def _result(outcome: Any) -> Any:
    problem, result = outcome
    if problem is not None:
        raise problem
    return result


@contextmanager
def handled(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Hand signals to a function instead of being ended by them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers, and only it is interrupted
        return
    before = {number: signal.signal(number, handler) for number in WISHES}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
