"""Processes and devices of a run, the student's gradient a few windows at a time, and batches of windows."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.distributed as distributed
import torch.nn.functional as F
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments import LightningEnvironment, SLURMEnvironment
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from fcpower_bids.encoders.fbert import SIZES, FBertConfig
from fcpower_bids.errors import FcPowerError, UsageError
from fcpower_bids.resources import machine_bytes

Loss = Callable[[Tensor, Tensor], Tensor]


def centre(K: Tensor) -> Tensor:
    """Doubly centred kernel H K H with H = I - 11'/B."""
    return K - K.mean(0, keepdim=True) - K.mean(1, keepdim=True) + K.mean()


def cka(E: Tensor, K: Tensor) -> Tensor:
    """Centred kernel alignment of E E' and K, Equation 5 of the paper. E (B, d), K (B, B)."""
    E, K = _at_least_float32(E, K)
    e = E - E.mean(0)
    gram = e @ e.T if E.shape[1] > E.shape[0] else e.T @ e
    return (e * (K @ e)).sum() / (gram.norm() * centre(K).norm())


def teacher_logits(K: Tensor, temperature: float = 0.2) -> Tensor:
    """Logits -d~^2 / T_t of the KL target, d~^2 standardised over the pairs i != j of the batch; diagonal -inf."""
    others = ~torch.eye(len(K), dtype=torch.bool, device=K.device)
    squared = 2 - 2 * K
    pairs = squared[others]
    standardised = (squared - pairs.mean()) / pairs.std(correction=0)
    return (-standardised / temperature).masked_fill(~others, -torch.inf)


def kl(E: Tensor, K: Tensor, temperature: float = 0.07, teacher_temperature: float = 0.2) -> Tensor:
    """Mean over i of KL(softmax_{j != i} t_i || softmax_{j != i} s_i), Equation 6 of the paper. E (B, d), K (B, B)."""
    E, K = _at_least_float32(E, K)
    n = len(K)
    others = ~torch.eye(n, dtype=torch.bool, device=K.device)
    e = F.normalize(E, dim=1)
    student = (e @ e.T / temperature)[others].view(n, n - 1).log_softmax(1)
    teacher = teacher_logits(K, teacher_temperature)[others].view(n, n - 1).log_softmax(1)
    return F.kl_div(student, teacher, reduction="batchmean", log_target=True)


def diagonal_share(K: Tensor) -> float:
    """Share of the diagonal in the squared norm of the centred teacher kernel."""
    H = centre(K.double())
    return float(H.diagonal().square().sum() / H.square().sum())


def _at_least_float32(E: Tensor, K: Tensor) -> tuple[Tensor, Tensor]:
    E = E.float() if E.dtype in (torch.float16, torch.bfloat16) else E
    return E, K.to(E.dtype)


LOSSES: dict[str, Loss] = {"cka": lambda E, K: 1 - cka(E, K), "kl": kl}
"""Losses by name; the default of the paper is ``cka``."""
DOES_NOT_CHANGE_THE_RUN = ("devices", "log_every", "checkpoint_minutes")
"""Fields that may differ when a run is resumed: they decide where and how fast, not what, is computed.

But for dropout, whose masks are drawn for each process and chunk: with it other devices are as another seed.
"""


@dataclass(frozen=True)
class PretrainConfig:
    """Everything that decides a pretraining run, apart from the corpus."""

    encoder: str = "fbert-1m"  # ``"fbert-1m"`` or ``"fbert-8m"``
    # fields of `FBertConfig` that differ from that size, e.g. ``{"d": 64, "layers": 2}``.
    architecture: Mapping[str, Any] = field(default_factory=dict)
    loss: str = "cka"  # ``"cka"`` or ``"kl"``
    steps: int = 300_000  # steps of the cosine schedule, and of the run
    minutes: float | None = None  # length of the run in place of `steps`, which it sets with the warm-up
    batch_size: int = 1024  # windows per step over all devices; reduced to the corpus if that is smaller
    window: int = 80  # timepoints that the student sees
    learning_rate: float = 8.5e-4  # peak rate of AdamW
    warmup: int = 100  # steps of linear warm-up
    weight_decay: float = 1e-4
    clip: float = 1.0  # largest norm of the gradient
    seed: int = 0  # of the initial weights, the batches, the split and dropout
    precision: str = "32-true"  # as in Lightning Fabric: ``"32-true"``, ``"bf16-mixed"``
    devices: int | None = None  # processes per node; None for as many as torchrun or srun started, else one
    # share of the families kept out of training: half of them select the checkpoint, the other half confirm it
    held_out: float = 0.1
    probe: str = ""  # what chooses the checkpoint besides the held-out families: an external cohort, in words
    checkpoint_every: int = 2000  # steps
    # minutes after which the run can be resumed at the latest; 0 for regular checkpoints only
    checkpoint_minutes: float = 15.0
    log_every: int = 50  # steps

    def model_config(self, n_parcels: int) -> FBertConfig:
        """Architecture of the student on `n_parcels` parcels."""
        try:
            return FBertConfig(**{"n_parcels": n_parcels, **SIZES[self.encoder], **self.architecture})
        except (TypeError, ValueError) as error:
            raise UsageError(f"The architecture of the encoder is impossible: {error}") from None

    def fingerprint(self) -> str:
        """Digest of the choices that a resumed run must share."""
        values = {k: v for k, v in dataclasses.asdict(self).items() if k not in DOES_NOT_CHANGE_THE_RUN}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def in_words(self) -> str:
        """Name the choices that decide what the encoder learns."""
        views = "" if self.precision == "32-true" else f", {self.precision}"
        length = f"{self.minutes:g} minutes" if self.minutes else f"warm-up {self.warmup}, {self.steps} steps"
        return (
            f"{self.loss}, batch {self.batch_size}, learning rate {self.learning_rate:g}, {length}, windows of "
            f"{self.window} volumes drawn by windows{views}"
        )

    def rate(self, step: int) -> float:
        """Learning rate of a step counted from 0: linear warm-up, then cosine to 0 at `steps`."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def paper_optimisation(encoder: str, loss: str) -> dict[str, Any]:
    """Return batch, learning rate and warm-up of the paper for one size and objective (Appendix J)."""
    if loss != "kl":
        return {"batch_size": 1024, "learning_rate": 8.5e-4, "warmup": 100}
    rate, warmup = (1e-4, 2000) if encoder == "fbert-8m" else (3e-4, 100)
    return {"batch_size": 128, "learning_rate": rate, "warmup": warmup}


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


def windows_that_fit(config: PretrainConfig, student: FBertConfig, device: torch.device) -> int:
    """Windows (a power of two) whose activations leave a quarter of the memory: `Gradient` takes them in chunks."""
    # bytes, of each token and layer: what the backward pass reads, in single precision, with the masks of dropout
    per_window = 4 * (12 * student.d + 4 * student.ff) * student.layers * (config.window + 1)
    if device.type == "cuda":  # what torch keeps in reserve is free too
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + kept
    else:
        free = machine_bytes() // layout(config)[0]
    return int(2 ** math.floor(math.log2(max(1, 3 * free // 4 // per_window))))


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
