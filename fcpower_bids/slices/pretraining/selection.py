"""Choosing a checkpoint on people that training never saw, and what the choice itself adds to the score.

The held-out families are divided in two halves. The checkpoint with the best score on one half is chosen; the other
half measures its worth. Optimism is the difference between the two, averaged over both roles of the halves so
that a difference in difficulty between them cancels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.errors import Unfit
from fcpower_bids.slices.pretraining.configuration import cka, cka_debiased
from fcpower_bids.slices.pretraining.corpus.opened import Corpus
from fcpower_bids.slices.pretraining.engine import EVALUATION, SPLIT, draw_batch

Probe = Callable[[NDArray[np.float32], pd.DataFrame], float]
"""Score of embeddings (n, d) of recordings (the rows of the table); higher is better."""

Map = Callable[[torch.Tensor], FloatArray]
"""Windows (n, T, P) to vectors (n, d)."""

TRAIN, SELECT, CONFIRM = 0, 1, 2
MINIMUM = 5
"""Recordings that a half needs: the unbiased alignment is undefined below four."""
VIEWS = 8
"""Windows per held-out recording whose embeddings are averaged, as in the ``windows`` read."""


def split_families(families: ArrayLike, share: float, seed: int) -> NDArray[np.intp]:
    """Assign whole families to training, selection and confirmation.

    Shapes and units: families (n,); returns (n,).
    """
    unique, member = np.unique(np.asarray(families), return_inverse=True)
    role = np.full(len(unique), TRAIN)
    held_out = np.random.default_rng((seed, SPLIT)).permutation(len(unique))[: round(share * len(unique))]
    role[held_out[::2]] = SELECT
    role[held_out[1::2]] = CONFIRM
    return role[member]


@dataclass(frozen=True)
class HeldOut:
    """The recordings kept out of training, with fixed windows, so that scores of different steps are comparable.

    Attributes
    ----------
    corpus : Corpus
    rows : ndarray of int, shape (m,)
    roles : ndarray of int, shape (m,)
        `SELECT` or `CONFIRM`.
    window, seed : int
    probe : Probe or None
        Downstream score; None for the debiased alignment with the teacher.
    """

    corpus: Corpus
    rows: NDArray[np.intp]
    roles: NDArray[np.intp]
    window: int
    seed: int
    probe: Probe | None = None

    @property
    def sufficient(self) -> bool:
        """Whether both halves are large enough for a choice."""
        return min(int((self.roles == half).sum()) for half in (SELECT, CONFIRM)) >= MINIMUM

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Score a model: alignments over all held-out recordings, and the score on each half."""
        E = torch.from_numpy(self.average(encode(model)))
        K = self.corpus.kernel_of(self.rows).cpu().double()
        out = {"cka": float(cka(E, K)), "cka_debiased": float(cka_debiased(E, K))}
        for name, half in (("select", SELECT), ("confirm", CONFIRM)):
            members = torch.from_numpy(np.flatnonzero(self.roles == half))
            if self.probe is None:
                out[name] = float(cka_debiased(E[members], K[members][:, members]))
            else:
                table = self.corpus.table.iloc[self.rows[members.numpy()]]
                out[name] = self.probe(E[members].float().numpy(), table)
        return out

    def average(self, one: Map, batch: int = 256) -> FloatArray:
        """Mean over `VIEWS` windows of what a map makes of every held-out recording: (m, d)."""
        places = self.corpus.places(self.window)[self.rows]
        views = (self._view(one, places, view, batch) for view in range(VIEWS))
        total: FloatArray = reduce(np.add, views)  # features of FC are large: one view in memory at a time
        return total / VIEWS

    def _view(self, one: Map, places: NDArray[np.intp], view: int, batch: int) -> FloatArray:
        members, starts = draw_batch(places, len(places), (self.seed, EVALUATION, view), "recordings")
        first = starts[np.argsort(members)]
        each = (one(self.corpus.windows(self.rows[i], first[i], self.window)) for i in _batches(len(places), batch))
        return np.concatenate(list(each))


def encode(model: nn.Module) -> Map:
    """Embeddings of windows by a model, without its dropout."""
    place = next(model.parameters())

    @torch.no_grad()
    def embed(windows: torch.Tensor) -> FloatArray:
        training = model.training
        vectors: FloatArray = model.eval()(windows.to(place)).double().cpu().numpy()
        model.train(training)
        return vectors

    return embed


def _batches(n: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


@dataclass(frozen=True)
class Choice:
    """The chosen checkpoint.

    Attributes
    ----------
    position : int
        Which of the checkpoints.
    selected, confirmed : float
        Its score on the half that chose it, and on the other half.
    optimism : float
        Mean, over both roles of the halves, of (score on the choosing half - score on the other half).
    """

    position: int
    selected: float
    confirmed: float
    optimism: float


def choose_checkpoint(scores: ArrayLike) -> Choice:
    """Choose the checkpoint with the best score on the first half.

    Shapes and units: scores (n_checkpoints, 2). Raises ValueError.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if not len(scores) or not np.isfinite(scores).all():
        raise Unfit("A checkpoint can only be chosen by finite scores; look at the loss in the log.")
    first, second = scores.argmax(axis=0)
    optimism = (scores[first, 0] - scores[first, 1] + scores[second, 1] - scores[second, 0]) / 2
    return Choice(int(first), float(scores[first, 0]), float(scores[first, 1]), float(optimism))
