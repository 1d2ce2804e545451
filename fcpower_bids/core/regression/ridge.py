"""Kernel ridge regression on every fold, exactly, from one inverse per penalty."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.linalg import lapack

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.dense import TOO_SMALL, HeldOut, hold_out, invert, norm_of, strips
from fcpower_bids.errors import Unfit
from fcpower_bids.resources import MEGA, available_bytes, given_bytes

DROPPED = "Penalty {:g} was dropped: with it the kernel is singular to working precision."
KERNELS, OTHER = 5, 150 * 2**20
"""Kernels in memory at once where one penalty follows the other, with those of the other representation, and bytes of
all else: a command on 5,000 people took 1,139 MB."""
SHORT_OF_MEMORY = "A kernel of {n:,} people needs {needed:,.0f} MB of memory; give it (--mem-mb), or use fewer people."
ALL_SINGULAR = "The kernel is singular for every penalty; use larger penalties."


@dataclass(frozen=True, eq=False)
class Split:
    """One fold for targets that are missing in the same rows."""

    test: Rows  # the rows to predict
    train: Rows  # the rows to train on
    inner: tuple[Rows, ...]  # the training rows divided into inner validation sets, none empty
    others: Rows  # all remaining rows: their target is missing, or the fold leaves them out


@dataclass(frozen=True, eq=False)
class Sides:
    """Right-hand sides: finite target values (n, m) and, per penalty, what the solver has multiplied them by."""

    values: FloatArray
    products: tuple[FloatArray, ...] = ()

    def columns(self, chosen: slice | NDArray[np.bool_]) -> Sides:
        """Return some of the targets."""
        return Sides(self.values[:, chosen], tuple(product[:, chosen] for product in self.products))


class Solver(Protocol):
    """Protocol of a regression for the nested cross-validation: predictions for every penalty at once."""

    @property
    def penalties(self) -> FloatArray:
        """The grid, shape (n_penalties,)."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about the grid, for the sidecar."""

    def prepare(self, targets: FloatArray) -> Sides:
        """Do what depends on the targets and not on the split."""

    def predict(self, split: Split, outer: Sides, inner: Sequence[Sides]) -> tuple[FloatArray, list[FloatArray]]:
        """Return predictions (n_penalties, rows, m) of the test rows, and of each inner validation set.

        `inner` holds the right-hand sides of each inner fold; they are the object `outer` itself unless the targets
        were built anew for it.
        """


@dataclass(frozen=True, eq=False)
class KernelSolver:
    """A kernel on all people with its penalised inverses; one object serves all folds, targets and permutations.

    For penalty l, ``A = (K + l I)^-1`` and, with an unpenalised intercept, ``C = A - (A1)(A1)' / (1'A1)`` (else C = A).
    The model trained without the rows R predicts them as ``y_R - (C_RR)^-1 (C y)_R``, whatever the finite y_R.
    """

    penalties: FloatArray  # (n_penalties,): the grid, without a zero that the kernel does not allow
    inverses: tuple[FloatArray, ...]  # (n, n): C of each penalty
    notes: tuple[str, ...] = ()  # penalties that were dropped

    def prepare(self, targets: FloatArray) -> Sides:
        """Multiply the targets (n, m) by every C."""
        return Sides(targets, tuple(inverse @ targets for inverse in self.inverses))

    def predict(self, split: Split, outer: Sides, inner: Sequence[Sides]) -> tuple[FloatArray, list[FloatArray]]:
        """Predict the test rows and, with these held out too, each inner validation set."""
        held = np.concatenate([split.test, split.others])
        # Predictions start as the targets, from which every penalty takes its residuals.
        test = np.stack([outer.values[held]] * len(self.inverses))
        validation = [
            np.stack([sides.values[rows]] * len(self.inverses)) for rows, sides in zip(split.inner, inner, strict=True)
        ]
        blocks = HeldOut(held, split.inner)
        for i, inverse in enumerate(self.inverses):
            products = [sides.products[i] for sides in inner]
            beyond, each = hold_out(inverse, blocks, outer.products[i], products)
            test[i] -= beyond
            for own, residual in zip(validation, each, strict=True):
                own[i] -= residual
        return test[:, : split.test.size], validation


def factorise_kernel(kernel: FloatArray, penalties: ArrayLike, intercept: bool = True) -> KernelSolver:
    """Invert a kernel once per penalty.

    `kernel` (n, n): symmetric positive semidefinite. `penalties`: ridge penalties, none negative. `intercept`: whether
    the regression has an unpenalised intercept. Returns: holds ``n_penalties * n**2`` numbers. A penalty too small to
    make a singular kernel invertible (zero, as a rule) is dropped, with a warning that is also kept in `notes`. Raises
    ValueError: if the kernel is not square, symmetric and finite, a penalty is negative, or no penalty is left.
    """
    grid = check_penalties(penalties)
    _check_kernel(kernel)
    kept, inverses, notes = [], [], []
    for penalty in grid:
        inverse = invert(kernel, penalty, intercept)
        if inverse is None:
            notes.append(DROPPED.format(penalty))
            continue
        kept.append(penalty)
        inverses.append(inverse)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    if not kept:
        raise Unfit(ALL_SINGULAR)
    return KernelSolver(np.asarray(kept), tuple(inverses), tuple(notes))


@dataclass(frozen=True, eq=False)
class KernelPenalties:
    """A kernel for which all inverses together are too large: one penalty after the other, `KernelSolver` each."""

    kernel: FloatArray  # (n, n): symmetric positive semidefinite
    penalties: FloatArray  # (n_penalties,): the grid, without those that the kernel does not allow
    intercept: bool = True  # whether the regression has an unpenalised intercept
    notes: tuple[str, ...] = ()  # penalties that were dropped

    def part(self, penalty: float) -> Solver:
        """Return the regression for one penalty; keep no more than one."""
        return _invert_once(self.kernel, penalty, self.intercept)

    def prepare(self, targets: FloatArray) -> Sides:
        """Nothing, before there is an inverse."""
        return Sides(targets)

    def predict(self, split: Split, outer: Sides, inner: Sequence[Sides]) -> tuple[FloatArray, list[FloatArray]]:
        """Predict for every penalty; for many splits go through each `part` instead."""
        each = [
            part.predict(split, part.prepare(outer.values), [part.prepare(sides.values) for sides in inner])
            for part in map(self.part, self.penalties)
        ]
        test, validation = zip(*each, strict=True)
        return np.concatenate(test), [np.concatenate(rows) for rows in zip(*validation, strict=True)]


def fit_in_sample(
    kernel: FloatArray, penalty: float, targets: FloatArray, masks: NDArray[np.bool_], intercept: bool
) -> FloatArray:
    """Predictions of the people that a regression is trained on, from one inverse for all training sets.

    `targets` (n, m), each finite where its `masks` (n, m) say that it trains. Returns (n, m), of the others their
    predictions out of sample: with these in the place of their targets, ``a = C y`` are the weights of the training
    people, whose residuals are ``l a``, and zero for the others.
    """
    solver, values = _invert_once(kernel, penalty, intercept), np.where(masks, targets, 0.0)
    sides = solver.prepare(values)
    for j, trains in enumerate(masks.T):
        if not trains.all():
            split = Split(np.flatnonzero(~trains), np.flatnonzero(trains), (), np.array([], dtype=int))
            values[~trains, j] = solver.predict(split, sides.columns(slice(j, j + 1)), [])[0][0, :, 0]
    return np.asarray(values - penalty * solver.prepare(values).products[0])


def _invert_once(kernel: FloatArray, penalty: float, intercept: bool) -> KernelSolver:
    inverse = invert(kernel, penalty, intercept)
    if inverse is None:
        raise Unfit(TOO_SMALL)
    return KernelSolver(np.array([penalty]), (inverse,))


def check_memory(n: int) -> None:
    """Refuse n people whose kernels need more bytes than were given. Raises Unfit, with the memory that would do."""
    needed, given = KERNELS * 8.0 * n**2, given_bytes()
    if needed > max(given - OTHER, given / 2):  # what is given may be less than the program takes for few people
        raise Unfit(SHORT_OF_MEMORY.format(n=n, needed=(needed + OTHER) / MEGA))


def open_kernel(kernel: FloatArray, penalties: ArrayLike, intercept: bool = True) -> KernelSolver | KernelPenalties:
    """Return the regression on a kernel: factorised for all penalties, or where memory is short for one at a time.

    Parameters, errors and numbers are those of `factorise_kernel`.
    """
    grid, n = check_penalties(penalties), len(kernel)
    check_memory(n)
    if grid.size * kernel.nbytes <= available_bytes():
        return factorise_kernel(kernel, grid, intercept)
    _check_kernel(kernel)
    # Rounding of the order n eps |K| is all that can make K + l I singular: only penalties near it are tried.
    doubtful = 1e3 * n * np.finfo(float).eps * norm_of(kernel)
    dropped = [each for each in grid if each < doubtful and invert(kernel, each, False) is None]
    if len(dropped) == grid.size:
        raise Unfit(ALL_SINGULAR)
    notes = tuple(DROPPED.format(each) for each in dropped)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return KernelPenalties(kernel, grid[~np.isin(grid, dropped)], intercept, notes)


def check_penalties(penalties: ArrayLike) -> FloatArray:
    """Return the grid as an array; a ValueError says why it cannot be used."""
    grid = np.atleast_1d(np.asarray(penalties, dtype=float))
    if grid.ndim != 1 or grid.size == 0 or not np.isfinite(grid).all() or (grid < 0).any():
        raise ValueError("Penalties must be a list of finite numbers, none negative.")
    if np.unique(grid).size != grid.size:
        raise ValueError("A penalty is given twice.")
    return grid


def _check_kernel(kernel: FloatArray) -> None:
    if kernel.ndim != 2 or kernel.shape[0] != kernel.shape[1] or kernel.shape[0] < 3:
        raise ValueError(f"A kernel must be square with three people or more, not of shape {kernel.shape}.")
    largest = apart = 0.0
    for rows in strips(len(kernel)):
        finite = np.isfinite(kernel[rows]).all(axis=1)
        if not finite.all():
            row = rows.start + int(np.argmin(finite))
            raise ValueError(f"The kernel has missing or infinite values, first in row {row}; exclude that person.")
        largest = max(largest, np.abs(kernel[rows]).max())
    for rows in strips(len(kernel)):
        apart = max(apart, np.abs(kernel[rows] - kernel[:, rows].T).max())
    if apart > 1e-6 * largest:
        raise ValueError("The kernel is not symmetric.")


@dataclass(frozen=True, eq=False)
class SubsetSolver:
    """A kernel on all people whose block of the training rows is decomposed in every fold, once for all penalties.

    The predictions are those of `ridge.KernelSolver`. With ``U diag(s) U'`` the block, centred where there is an
    intercept and without the direction of the ones then, C of the training rows (see there) is ``U diag(1 / (s + l))
    U'``. The weights are ``a = C y``, and a test row with kernel values k is predicted as ``mean(y) - mean(K a) +
    k'a``.
    """

    kernel: FloatArray  # (n, n): symmetric positive semidefinite
    # (n_penalties,): the grid; a penalty that suits the kernel of all people suits every block of it
    penalties: FloatArray
    intercept: bool = True  # whether the regression has an unpenalised intercept
    notes: tuple[str, ...] = ()  # notes about the grid, for the sidecar

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
            raise Unfit(TOO_SMALL)
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


@dataclass(frozen=True, eq=False)
class FoldSolver:
    """A regression on features that are themselves fitted to the training people of every fold.

    The inner folds share the fit to their outer training rows, which holds no test person.
    """

    # from training rows and penalties to the regression on everyone's features as fitted to these rows
    make: Callable[[Rows, FloatArray], Solver]
    penalties: FloatArray  # (n_penalties,): the grid
    notes: tuple[str, ...] = ()  # notes about the grid, for the sidecar

    def prepare(self, targets: FloatArray) -> Sides:
        """Nothing here depends on the targets alone."""
        return Sides(targets)

    def predict(self, split: Split, outer: Sides, inner: Sequence[Sides]) -> tuple[FloatArray, list[FloatArray]]:
        """Predict with the regression of the training rows."""
        return self.make(split.train, self.penalties).predict(split, outer, inner)


class FoldKernels:
    """Kernels of features that are fitted to the training rows of a fold, the latest kept for further targets.

    `compute`: from training rows to the kernel of everyone, shape (n, n). `memory`: bytes up to which kernels are kept;
    by default half of what one large array may take.
    """

    def __init__(self, compute: Callable[[Rows], FloatArray], memory: float | None = None) -> None:
        self.compute, self.memory = compute, available_bytes() / 2 if memory is None else memory
        self._kept: dict[bytes, FloatArray] = {}

    def __call__(self, train: Rows) -> FloatArray:
        """Return the kernel of some training rows."""
        key = train.tobytes()
        if key not in self._kept:
            kernel = self.compute(train)
            while self._kept and (len(self._kept) + 1) * kernel.nbytes > self.memory:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = kernel
        return self._kept[key]


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
        raise Unfit(TOO_SMALL)
    return np.asarray(residuals)
