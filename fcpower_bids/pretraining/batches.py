"""The batch of a step: which recordings and windows, in which view, and the share of one process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fcpower_bids.pretraining.configuration import PretrainConfig
from fcpower_bids.pretraining.corpus.opened import Corpus, to_device
from fcpower_bids.pretraining.engine import BATCH, draw_batch, surrogate_generator
from fcpower_bids.pretraining.surrogate import phase_surrogate, surrogate_phases


@dataclass(frozen=True)
class Batches:
    """Batches by step; each is a function of its step, so nothing has to be saved to resume.

    Attributes
    ----------
    corpus : Corpus
        On the device.
    rows : ndarray of int, shape (n,)
        Recordings of the training.
    places : ndarray of int, shape (n,)
        Windows that each of them has.
    size : int
        Recordings of a batch, over all processes.
    config : PretrainConfig
    rank, world : int
        Which of how many processes this is.
    """

    corpus: Corpus
    rows: NDArray[np.intp]
    places: NDArray[np.intp]
    size: int
    config: PretrainConfig
    rank: int = 0
    world: int = 1

    def draw(self, step: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows of the table (B,), and which window of each."""
        key = (self.config.seed, BATCH, step)
        members, chosen = draw_batch(self.places, self.size, key, self.config.sampling_unit)
        return self.rows[members], chosen

    def kernel(self, step: int) -> Tensor:
        """Teacher kernel (B, B)."""
        return self.corpus.kernel_of(self.draw(step)[0])

    def read(self, step: int) -> tuple[Tensor, Tensor]:
        """Windows of this process (b, T, P) and the teacher kernel of the global batch (B, B)."""
        rows, chosen = self.draw(step)
        share = self.size // self.world
        mine = slice(self.rank * share, (self.rank + 1) * share)
        x, K = self.corpus.batch(rows, chosen, self.config.window, mine)
        if self.config.surrogates:
            phases = surrogate_phases(self.size, self.config.window, surrogate_generator(self.config.seed, step))
            x = phase_surrogate(x, to_device(phases[mine].float(), x.device))
        return x, K
