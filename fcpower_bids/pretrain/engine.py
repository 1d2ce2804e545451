"""Steps of the training: the student's gradient over microbatches, and batches of windows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from fcpower_bids.pretrain.configuration import Loss, PretrainConfig

BATCH, DROPOUT, _, EVALUATION, SPLIT = range(5)
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
        torch.manual_seed(_seed(key[0], DROPOUT, key[1], self.fabric.global_rank, chunk))
        out: Tensor = self.model(x)
        return out

    def _gather(self, E: Tensor, with_gradient: bool) -> Tensor:
        if self.fabric.world_size == 1:
            return E
        gathered: Tensor = self.fabric.all_gather(E, sync_grads=with_gradient)
        return gathered.flatten(0, 1)


def _seed(*key: int) -> int:
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))


def make_optimizer(model: nn.Module, config: PretrainConfig, device: torch.device) -> Optimizer:
    """AdamW at the rate of step 0; in one kernel for all parameters on a GPU."""
    fused = device.type == "cuda" and config.precision != "16-mixed"
    return AdamW(model.parameters(), lr=config.rate(0), weight_decay=config.weight_decay, fused=fused or None)
