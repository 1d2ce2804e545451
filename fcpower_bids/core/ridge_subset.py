"""Kernel ridge regression that decomposes the training block of every fold anew: cheaper where few people train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import lapack

from fcpower_bids.core.ridge import Sides, Split

FloatArray = NDArray[np.float64]
TOO_SMALL = "The smallest penalty is too small for this kernel; remove it from the grid."


@dataclass(frozen=True, eq=False)
class SubsetSolver:
    """A kernel on all people whose block of the training rows is decomposed in every fold, once for all penalties.

    The predictions are those of `core.ridge.KernelSolver`. With ``U diag(s) U'`` the block, centred where there is an
    intercept and without the direction of the ones then, C of the training rows (see there) is
    ``U diag(1 / (s + l)) U'``. The weights are ``a = C y``, and a test row with kernel values k is predicted as
    ``mean(y) - mean(K a) + k'a``.

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
        scales, basis = _decompose(block, self.intercept)
        if not scales.size or scales[0] + self.penalties.min() <= train.size * np.finfo(float).eps * abs(scales[-1]):
            raise ValueError(TOO_SMALL)
        values = outer.values[train]
        level: FloatArray | float = 0.0
        if self.intercept:
            cross, level = cross - block.mean(axis=0), values.mean(axis=0)
        across, shared = cross @ basis, basis.T @ values
        shrunk = 1 / (scales + self.penalties[:, None])
        test = np.stack([across @ (each[:, None] * shared) + level for each in shrunk])
        validation = []
        for held, sides in zip(split.inner, inner, strict=True):
            own = basis[place[held]]
            seen = shared if sides is outer else basis.T @ sides.values[train]
            validation.append(np.stack([sides.values[held] - _residuals(own, each, seen) for each in shrunk]))
        return test, validation


def _decompose(block: FloatArray, intercept: bool) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and eigenvectors of a kernel, of the centred one without the ones where there is an intercept."""
    if not intercept:
        return linalg.eigh(block, driver="evd", check_finite=False)
    means = block.mean(axis=0)
    # Lifted above all others the direction of the ones comes last, as a direction of its own.
    lifted = block - means - means[:, None] + means.mean() + 2 * np.trace(block) / len(block)
    scales, basis = linalg.eigh(lifted, driver="evd", check_finite=False)
    return scales[:-1], basis[:, :-1]


def _residuals(own: FloatArray, shrunk: FloatArray, shared: FloatArray) -> FloatArray:
    """(C_RR)^-1 (C y)_R of the rows R whose part of the eigenvectors is `own`."""
    half = own * np.sqrt(shrunk)
    _, residuals, failed = lapack.dposv(half @ half.T, own @ (shrunk[:, None] * shared), lower=1)
    if failed:
        raise ValueError(TOO_SMALL)
    return np.asarray(residuals)
