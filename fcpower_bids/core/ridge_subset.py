"""Kernel ridge regression that inverts the training block of every fold anew: cheaper where few people train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from fcpower_bids.core.ridge import Sides, Split, factorise_kernel

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SubsetSolver:
    """A kernel on all people whose block of the training rows is factorised in every fold.

    The predictions are those of `core.ridge.KernelSolver`. With C of the training rows (see there), the weights are
    ``a = C y`` and sum to zero; a test row with kernel values k is predicted as ``mean(y) - mean(K a) + k'a``.

    Attributes
    ----------
    kernel : ndarray, shape (n, n)
        Symmetric positive semidefinite.
    penalties : ndarray, shape (n_penalties,)
        The grid; what the kernel of all people allows is allowed by every block of it.
    intercept : bool
        Whether the regression has an unpenalised intercept.
    notes : tuple of str
        What a reader must know about the grid.
    """

    kernel: FloatArray
    penalties: FloatArray
    intercept: bool = True
    notes: tuple[str, ...] = ()

    def prepare(self, targets: FloatArray) -> Sides:
        """Nothing here depends on the targets alone."""
        return Sides(targets)

    def predict(self, split: Split, outer: Sides, inner: Sequence[Sides]) -> tuple[FloatArray, list[FloatArray]]:
        """Predict the test rows and, with these held out too, each inner validation set."""
        train = split.train
        block, cross = self.kernel[np.ix_(train, train)], self.kernel[np.ix_(split.test, train)]
        place = np.empty(len(self.kernel), np.intp)
        place[train] = np.arange(train.size)
        values = outer.values[train]
        test: list[FloatArray] = []
        validation: list[list[FloatArray]] = [[] for _ in split.inner]
        for inverse in factorise_kernel(block, self.penalties, self.intercept).inverses:
            weights = inverse @ values
            level = values.mean(axis=0) - block.mean(axis=0) @ weights if self.intercept else 0.0
            test.append(cross @ weights + level)
            for v, held in enumerate(split.inner):
                rows = place[held]
                own = weights if inner[v] is outer else inverse @ inner[v].values[train]
                _, residual, failed = lapack.dposv(inverse[np.ix_(rows, rows)], own[rows], lower=1)
                if failed:
                    raise ValueError("The smallest penalty is too small for this kernel; remove it from the grid.")
                validation[v].append(inner[v].values[held] - residual)
        return np.stack(test), [np.stack(each) for each in validation]
