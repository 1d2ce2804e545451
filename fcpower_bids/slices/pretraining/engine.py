"""Steps of the training: the student's gradient over microbatches, surrogates, and batches of windows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from fcpower_bids.slices.pretraining.configuration import PAIRED, Loss, PretrainConfig
from fcpower_bids.slices.pretraining.corpus.opened import Corpus, to_device

BATCH, DROPOUT, SURROGATE, EVALUATION, SPLIT = range(5)
"""Streams of random numbers that must not share their seeds."""


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

    def accumulate(self, inputs: tuple[Tensor, ...], K: Tensor, key: tuple[int, int]) -> Tensor:
        """Add the gradient of the global loss, K (B, B), of windows (b, T, P) to the parameters."""
        if self.chunk is None or self.chunk >= len(inputs[0]):
            value = self.loss(self._gather(self._embed(inputs, key, 0), with_gradient=True), K)
            self.fabric.backward(value)
            return value.detach()
        return self._in_chunks(list(zip(*(one.split(self.chunk) for one in inputs), strict=True)), K, key)

    def _in_chunks(self, chunks: list[tuple[Tensor, ...]], K: Tensor, key: tuple[int, int]) -> Tensor:
        """GradCache (Gao et al. 2021): embed without graph, differentiate the loss, embed again chunk by chunk."""
        with torch.no_grad():
            local = torch.cat([self._embed(chunk, key, i) for i, chunk in enumerate(chunks)])
        E = self._gather(local, with_gradient=False).detach().requires_grad_()
        value = self.loss(E, K)
        (gradient,) = torch.autograd.grad(value, E)
        # Data-parallel training averages over processes, and each one contributes its own rows only.
        world, rank = self.fabric.world_size, self.fabric.global_rank
        mine = gradient.view(world, *local.shape)[rank] * world
        pieces = mine.split([len(chunk[0]) for chunk in chunks])
        for i, (chunk, piece) in enumerate(zip(chunks, pieces, strict=True)):
            waits = world > 1 and i < len(chunks) - 1
            with self.fabric.no_backward_sync(self.model) if waits else nullcontext():
                self.fabric.backward(self._embed(chunk, key, i), piece)
        return value.detach()

    def _embed(self, inputs: tuple[Tensor, ...], key: tuple[int, int], chunk: int) -> Tensor:
        torch.manual_seed(_seed(key[0], DROPOUT, key[1], self.fabric.global_rank, chunk))
        out: Tensor = self.model(*inputs)
        return out

    def _gather(self, E: Tensor, with_gradient: bool) -> Tensor:
        if self.fabric.world_size == 1:
            return E
        gathered: Tensor = self.fabric.all_gather(E, sync_grads=with_gradient)
        return gathered.flatten(0, 1)


def _seed(*key: int) -> int:
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))


def surrogate_generator(seed: int, step: int) -> torch.Generator:
    """Generator of the phases of one step."""
    return torch.Generator().manual_seed(_seed(seed, SURROGATE, step))


def make_optimizer(model: nn.Module, config: PretrainConfig, device: torch.device) -> Optimizer:
    """AdamW at the rate of step 0; in one kernel for all parameters on a GPU."""
    fused = device.type == "cuda" and config.precision != "16-mixed"
    return AdamW(model.parameters(), lr=config.rate(0), weight_decay=config.weight_decay, fused=fused or None)


@cache
def measure_gemm_rate(device: torch.device, precision: str, seconds: float = 0.2) -> float:
    """Floating-point operations per second of a large matrix product on this device: the limit that MFU refers to."""
    dtype = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16, "64-true": torch.float64}.get(precision)
    size = 1024 if device.type == "cpu" else 8192
    a = torch.ones(size, size, device=device, dtype=dtype or torch.float32)
    _ = float((a @ a)[0, 0])
    start, n = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        _ = float((a @ a)[0, 0])  # reading one number waits for the device
        n += 1
    return n * 2 * size**3 / (time.perf_counter() - start)


def surrogate_phases(n: int, length: int, generator: torch.Generator) -> Tensor:
    """Random phases (n, length // 2 + 1) in float64: uniform, 0 at frequency 0, 0 or pi at the Nyquist frequency."""
    phases = 2 * math.pi * torch.rand(n, length // 2 + 1, generator=generator, dtype=torch.float64)
    phases[:, 0] = 0
    if length % 2 == 0:
        phases[:, -1] = math.pi * (phases[:, -1] > math.pi).double()
    return phases


def phase_surrogate(x: Tensor, phases: Tensor) -> Tensor:
    """Rotate the spectrum of every parcel of x (n, T, P) by the same phases (n, T // 2 + 1): the same covariance."""
    spectrum = torch.fft.rfft(x, dim=1)
    rotation = torch.polar(torch.ones_like(phases), phases).to(spectrum)
    return torch.fft.irfft(spectrum * rotation[:, :, None], n=x.shape[1], dim=1)


def _far_from(
    first: NDArray[np.intp], places: NDArray[np.intp], others: NDArray[np.intp], same: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """Return a window of another recording, as far along as the first; in the same recording half of it away."""
    return np.where(same, (first + places // 2) % places, first * others // places)


def people_of(corpus: Corpus, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Number of the person of each recording. Shapes and units: rows (n,); returns (n,)."""
    people: NDArray[np.intp] = corpus.table.iloc[rows].groupby(["dataset", "subject"]).ngroup().to_numpy()
    return people


@dataclass(frozen=True)
class Batches:
    """Batches by step; each is a function of its step, so nothing has to be saved to resume."""

    corpus: Corpus  # on the device
    rows: NDArray[np.intp]  # (n,): recordings of the training
    places: NDArray[np.intp]  # (n,): windows that each of them has
    size: int  # windows of a batch, over all processes
    config: PretrainConfig
    # rank, world: which of how many processes this is
    rank: int = 0
    world: int = 1
    # what the model adds to, of windows (b, T, P) of these recordings (b,): (b, d)
    start: Callable[[Tensor, NDArray[np.intp]], Tensor] | None = None

    def draw(self, step: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows of the table (B,), and which window of each."""
        key = (self.config.seed, BATCH, step)
        if self.config.loss in PAIRED:
            return self._draw_pairs(key)
        members, chosen = draw_batch(self.places, self.size, key, self.config.sampling_unit)
        return self.rows[members], chosen

    def _draw_pairs(self, key: tuple[int, ...]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """A window of each of B/2 people, and then another one of each: of another recording where there is one."""
        order, chosen = draw_batch(self.places, len(self.places), key, self.config.sampling_unit)
        people = self._people[order]
        first, back = (np.unique(each, return_index=True)[1] for each in (people, people[::-1]))
        drawn = np.argsort(first)[: self.size // 2]
        members, others, chosen = order[first[drawn]], order[::-1][back[drawn]], chosen[first[drawn]]
        second = _far_from(chosen, self.places[members], self.places[others], members == others)
        return self.rows[np.concatenate((members, others))], np.concatenate((chosen, second))

    @cached_property
    def _people(self) -> NDArray[np.intp]:
        return people_of(self.corpus, self.rows)

    def kernel(self, step: int) -> Tensor:
        """Teacher kernel (B, B)."""
        return self.corpus.kernel_of(self.draw(step)[0])

    def read(self, step: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Inputs of the model of this process, (b, T, P) and what it adds to, and the teacher kernel (B, B) of all."""
        rows, chosen = self.draw(step)
        share = self.size // self.world
        mine = slice(self.rank * share, (self.rank + 1) * share)
        x, K = self.corpus.batch(rows, chosen, self.config.window, mine)
        if self.config.surrogates:
            phases = surrogate_phases(self.size, self.config.window, surrogate_generator(self.config.seed, step))
            x = phase_surrogate(x, to_device(phases[mine].float(), x.device))
        return ((x,) if self.start is None else (x, self.start(x, rows[mine]))), K
