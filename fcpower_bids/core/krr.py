"""Kernel ridge regression on every fold, exactly, from one inverse per penalty.

For a kernel K (n, n) and a penalty l, ``A = (K + l I)^-1`` and, with an unpenalised intercept, ``C = A - (A1)(A1)' /
(1'A1)`` (else C = A). The model trained without the rows R predicts them as ``y_R - (C_RR)^-1 (C y)_R``, whatever the
finite y_R: one inverse per penalty serves all folds, targets and permutations, and an inner fold is a downdate of the
block of its outer fold.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.linalg import blas, lapack

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.folds import PredictionPreset
from fcpower_bids.errors import Unfit
from fcpower_bids.resources import MEGA, available_bytes, given_bytes

DECADES = range(-3, 4)
"""A grid in units of the kernel: powers of ten of its mean diagonal, which every fold searches."""
LAST_DECADE = 6
"""How far such a grid goes on, to both sides; there a regression is interpolation, or predicts the mean."""
KERNELS, OTHER = 5, 150 * 2**20
"""Kernels in memory at once where one penalty follows the other, with those of the other representation, and bytes of
all else: a command on 5,000 people took 1,139 MB."""
STRIP = 512
"""Rows of a matrix that are changed at a time."""
DROPPED = "Penalty {:g} was dropped: with it the kernel is singular to working precision."
TOO_SMALL = "The smallest penalty is too small for this kernel; remove it from the grid."
SHORT_OF_MEMORY = "A kernel of {n:,} people needs {needed:,.0f} MB of memory; give it (--mem-mb), or use fewer people."


# --- One fold -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Split:
    """One fold for targets that are missing in the same rows."""

    test: Rows  # the rows to predict
    train: Rows  # the rows to train on
    inner: tuple[Rows, ...]  # the training rows divided into inner validation sets, none empty
    others: Rows  # all remaining rows: their target is missing, or the fold leaves them out


@dataclass(frozen=True, eq=False)
class Sides:
    """Right-hand sides: finite target values (n, m) and, per penalty, what a regression has multiplied them by."""

    values: FloatArray
    products: tuple[FloatArray, ...] = ()

    def columns(self, chosen: slice | NDArray[np.bool_]) -> Sides:
        """Return some of the targets."""
        return Sides(self.values[:, chosen], tuple(product[:, chosen] for product in self.products))


class Regression:
    """A regression with the grid of penalties that it searches; by default all of them go through a fold together."""

    penalties: FloatArray
    notes: tuple[str, ...] = ()  # penalties that were dropped
    unit: float = 0.0  # of a grid that goes on by decades where the best lies at its edge; 0 for one that does not
    fitted: bool = False  # whether the features are fitted in every fold: then all folds stay in one process

    def at(self, penalties: FloatArray) -> Regression:
        """Return the regression for some penalties, in the grid or beyond it; all else is shared."""
        other = copy.copy(self)
        other.penalties = penalties
        return other

    def passes(self, penalties: FloatArray) -> Iterable[FloatArray]:
        """Penalties that are held together in memory."""
        return (penalties,)

    def prepare(self, targets: FloatArray) -> Sides:
        """Do what depends on the targets and not on the split."""
        return Sides(targets)

    def predict(self, split: Split, sides: Sides) -> tuple[FloatArray, list[FloatArray]]:
        """Predictions (n_penalties, rows, m) of the test rows and, with these held out too, of each inner set."""
        return self.at(self.penalties).predict(split, sides)


# --- A kernel of everyone: one inverse per penalty ------------------------------------------------------------------


class Inverses(Regression):
    """The inverses C (n, n) of a kernel, one per penalty."""

    def __init__(self, penalties: FloatArray, inverses: tuple[FloatArray, ...]) -> None:
        self.penalties, self.inverses = penalties, inverses

    def prepare(self, targets: FloatArray) -> Sides:
        """Multiply the targets (n, m) by every C."""
        return Sides(targets, tuple(inverse @ targets for inverse in self.inverses))

    def predict(self, split: Split, sides: Sides) -> tuple[FloatArray, list[FloatArray]]:
        """Predict the test rows and, with these held out too, each inner validation set."""
        n, held = len(sides.values), np.concatenate([split.test, split.others])
        test = np.stack([sides.values[held]] * len(self.inverses))
        validation = [np.stack([sides.values[rows]] * len(self.inverses)) for rows in split.inner]
        # places of blocks in an inverse, row after row, computed once for all penalties
        within, cross = (held[:, None] * n + columns for columns in (held, np.concatenate([held[:0], *split.inner])))
        parts = [rows[:, None] * n + rows for rows in split.inner]
        ends = np.cumsum([rows.size for rows in split.inner[:-1]])
        for i, (inverse, product) in enumerate(zip(self.inverses, sides.products, strict=True)):
            root = _root(_block(inverse, within))
            half = solve_lower(root, product[held])
            test[i] -= solve_lower(root, half.copy(), transposed=True)
            # The held rows of all inner folds' columns are whitened at once, which is faster.
            white = np.split(solve_lower(root, _block(inverse, cross)), ends, axis=1) if parts else []
            for rows, part, factor, predicted in zip(
                split.inner, parts, map(np.ascontiguousarray, white), validation, strict=True
            ):
                # Schur complement, in its upper triangle only (row-major, which LAPACK reads as lower)
                block = blas.dsyrk(-1.0, factor.T, beta=1.0, c=_block(inverse, part).T, lower=1, overwrite_c=1)
                schur = _root(block.T)
                residual = product[rows]
                residual -= factor.T @ half
                predicted[i] -= solve_lower(schur, solve_lower(schur, residual), transposed=True)
        return test[:, : split.test.size], validation


class KernelRidge(Regression):
    """Regression on a kernel (n, n) of everyone, symmetric positive semidefinite; `intercept`: an unpenalised one.

    A penalty too small to make a singular kernel invertible (zero, as a rule) is dropped, with a note. Where all
    inverses fit in memory they are kept; else one penalty follows the other. Raises ValueError, and Unfit: no penalty
    is left, or there is not the memory of a few kernels.
    """

    def __init__(self, kernel: FloatArray, penalties: ArrayLike, intercept: bool = True, unit: float = 0.0) -> None:
        grid, n = check_penalties(penalties), len(kernel)
        check_memory(n)
        if not np.isfinite(kernel.sum()):
            raise ValueError("The kernel has missing or infinite values; exclude the people without features.")
        self.kernel, self.intercept, self.unit = kernel, intercept, unit
        self.one_by_one = grid.size * kernel.nbytes > available_bytes()
        self._kept: dict[float, FloatArray] = {}
        # Rounding of the order n eps |K| is all that can make K + l I singular: where memory is short only penalties
        # near it are tried.
        doubtful = 1e3 * n * np.finfo(float).eps * _norm(kernel) if self.one_by_one else np.inf
        tried = [penalty for penalty in grid.tolist() if penalty < doubtful]
        dropped = [penalty for penalty in tried if self._invert(penalty) is None]
        if len(dropped) == grid.size:
            raise Unfit("The kernel is singular for every penalty; use larger penalties.")
        self.notes = tuple(map(DROPPED.format, dropped))
        self.penalties = grid[~np.isin(grid, dropped)]

    def at(self, penalties: FloatArray) -> Inverses:
        """Return the regression for some penalties. Raises Unfit: one is too small."""
        inverses = [self._invert(penalty) for penalty in penalties.tolist()]
        usable = tuple(inverse for inverse in inverses if inverse is not None)
        if len(usable) < len(inverses):
            raise Unfit(TOO_SMALL)
        return Inverses(penalties, usable)

    def passes(self, penalties: FloatArray) -> Iterable[FloatArray]:
        """All penalties together, or one by one where memory is short."""
        return penalties[:, None] if self.one_by_one else (penalties,)

    def _invert(self, penalty: float) -> FloatArray | None:
        if penalty in self._kept:
            return self._kept[penalty]
        inverse = invert(self.kernel, penalty, self.intercept)
        if inverse is not None and not self.one_by_one:
            self._kept[penalty] = inverse
        return inverse


def kernel_ridge(kernel: FloatArray, preset: PredictionPreset) -> KernelRidge:
    """Return the regression on a kernel of everyone (n, n), with the penalties of a preset."""
    grid, unit = grid_of(preset, float(np.trace(kernel)) / len(kernel))
    return KernelRidge(kernel, grid, preset.intercept, unit)


def grid_of(preset: PredictionPreset, scale: float) -> tuple[FloatArray, float]:
    """Penalties of a preset, and the unit of a grid that goes on; `scale`: mean diagonal of the kernel."""
    if not preset.relative_penalties:
        return np.array(preset.penalties), 0.0
    if not (np.isfinite(scale) and scale > 0):
        raise ValueError(f"The kernel has a mean diagonal of {scale:g}: its features are all zero or missing.")
    return decades(scale, DECADES), scale


def decades(unit: float, powers: Iterable[int]) -> FloatArray:
    """Powers of ten of a unit."""
    return unit * 10.0 ** np.array(list(powers), dtype=float)


def fit_in_sample(
    kernel: FloatArray, penalty: float, targets: FloatArray, masks: NDArray[np.bool_], intercept: bool
) -> FloatArray:
    """Predictions of the people that a regression is trained on, from one inverse for all training sets.

    `targets` (n, m), each finite where its `masks` (n, m) say that it trains. Returns (n, m), of the others their
    predictions out of sample: with these for their targets, ``a = C y`` are the weights of the training people, whose
    residuals are ``l a``, and zero for the others.
    """
    inverse = invert(kernel, penalty, intercept)
    if inverse is None:
        raise Unfit(TOO_SMALL)
    inverses, values = Inverses(np.array([penalty]), (inverse,)), np.where(masks, targets, 0.0)
    sides = inverses.prepare(values)
    for j, trains in enumerate(masks.T):
        if not trains.all():
            split = Split(np.flatnonzero(~trains), np.flatnonzero(trains), (), np.array([], dtype=int))
            values[~trains, j] = inverses.predict(split, sides.columns(slice(j, j + 1)))[0][0, :, 0]
    return np.asarray(values - penalty * (inverse @ values))


def fit_weights(
    rows: FloatArray, y: FloatArray, penalties: FloatArray, intercept: bool
) -> tuple[FloatArray, FloatArray]:
    """Weights (E, m) and intercept (m,) of a ridge regression, by way of the smaller of the two Gram matrices.

    `rows` (n, E): features, normalised or z-scored. `y` (n, m). `penalties` (m,): one for each target, above 0.
    """
    centre = rows.mean(axis=0) if intercept else np.zeros(rows.shape[1])
    level = y.mean(axis=0) if intercept else np.zeros(y.shape[1])
    x, right = rows - centre, y - level
    primal = x.shape[1] < x.shape[0]
    eigenvalues, vectors = np.linalg.eigh(x.T @ x if primal else x @ x.T)
    coordinates = vectors.T @ (x.T @ right if primal else right)
    solution = vectors @ (coordinates / (np.maximum(eigenvalues, 0.0)[:, None] + penalties))
    weights = solution if primal else x.T @ solution
    return weights, level - centre @ weights


def check_memory(n: int) -> None:
    """Refuse n people whose kernels need more bytes than were given. Raises Unfit, with the memory that would do."""
    needed, given = KERNELS * 8.0 * n**2, given_bytes()
    if needed > max(given - OTHER, given / 2):  # what is given may be less than the program takes for few people
        raise Unfit(SHORT_OF_MEMORY.format(n=n, needed=(needed + OTHER) / MEGA))


def check_penalties(penalties: ArrayLike) -> FloatArray:
    """Return the grid as an array; a ValueError says why it cannot be used."""
    grid = np.atleast_1d(np.asarray(penalties, dtype=float))
    if grid.ndim != 1 or grid.size == 0 or not np.isfinite(grid).all() or (grid < 0).any():
        raise ValueError("Penalties must be a list of finite numbers, none negative.")
    if np.unique(grid).size != grid.size:
        raise ValueError("A penalty is given twice.")
    return grid


# --- The block of the training people, decomposed in every fold ------------------------------------------------------


@dataclass(eq=False)
class BlockRidge(Regression):
    """A kernel whose block of the training rows is decomposed in every fold, once for all penalties.

    The predictions are those of `KernelRidge`. With ``U diag(s) U'`` the block, centred where there is an intercept and
    without the direction of the ones then, C of the training rows is ``U diag(1 / (s + l)) U'``. The weights are ``a =
    C y``, and a test row with kernel values k is predicted as ``mean(y) - mean(K a) + k'a``.
    """

    # (n, n), or from training rows to the kernel of features that are fitted to these; the latest are kept
    kernel: FloatArray | Callable[[Rows], FloatArray]
    penalties: FloatArray  # a penalty that suits the kernel of all people suits every block of it
    intercept: bool = True
    unit: float = 0.0
    notes: tuple[str, ...] = ()
    memory: float | None = None  # bytes up to which kernels are kept; by default half of what one array may take
    _kept: dict[bytes, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fitted = callable(self.kernel)

    def predict(self, split: Split, sides: Sides) -> tuple[FloatArray, list[FloatArray]]:
        """Predict the test rows and, with these held out too, each inner validation set."""
        train, kernel = split.train, self._kernel_of(split.train)
        block, cross = kernel[np.ix_(train, train)], kernel[np.ix_(split.test, train)]
        place = np.empty(len(kernel), np.intp)
        place[train] = np.arange(train.size)
        scales, basis = _decompose(block, self.intercept)
        if not scales.size or scales[0] + self.penalties.min() <= train.size * np.finfo(float).eps * abs(scales[-1]):
            raise Unfit(TOO_SMALL)
        values = sides.values[train]
        level: FloatArray | float = 0.0
        if self.intercept:
            cross, level = cross - block.mean(axis=0), values.mean(axis=0)
        across, shared = cross @ basis, basis.T @ values
        shrunk = 1 / (scales + self.penalties[:, None])
        test = np.stack([across @ (weights[:, None] * shared) + level for weights in shrunk])
        validation = [np.stack([sides.values[rows]] * len(shrunk)) for rows in split.inner]
        for rows, predicted in zip(split.inner, validation, strict=True):
            vectors = basis[place[rows]]
            for i, weights in enumerate(shrunk):  # less (C_RR)^-1 (C y)_R
                half = vectors * np.sqrt(weights)
                _, residuals, failed = lapack.dposv(half @ half.T, vectors @ (weights[:, None] * shared), lower=1)
                if failed:
                    raise Unfit(TOO_SMALL)
                predicted[i] -= residuals
        return test, validation

    def _kernel_of(self, train: Rows) -> FloatArray:
        if not callable(self.kernel):
            return self.kernel
        key = train.tobytes()
        if key not in self._kept:
            kernel = self.kernel(train)
            memory = available_bytes() / 2 if self.memory is None else self.memory
            while self._kept and (len(self._kept) + 1) * kernel.nbytes > memory:
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


# --- Dense operations -----------------------------------------------------------------------------------------------


def _block(matrix: FloatArray, places: Rows) -> FloatArray:
    """Copy a block of a square matrix."""
    return matrix.ravel().take(places, mode="clip")  # all of them exist


def invert(kernel: FloatArray, penalty: float, intercept: bool) -> FloatArray | None:
    """(K + l I)^-1, with an intercept less the direction of the ones; None where singular to working precision."""
    penalised = np.array(kernel, dtype=float, order="F")
    penalised.flat[:: kernel.shape[0] + 1] += penalty
    norm = _norm(penalised)
    factor, failed = lapack.dpotrf(penalised, lower=1, clean=1, overwrite_a=1)
    if failed or lapack.dpocon(factor, norm, uplo="L")[0] < kernel.shape[0] * np.finfo(float).eps:
        return None
    lower, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    inverse: FloatArray = lower.T  # row-major; its upper triangle is filled
    for rows in _strips(len(inverse)):
        block = inverse[rows, : rows.stop]
        block += np.tril(inverse[: rows.stop, rows].T, rows.start - 1)
    if intercept:
        ones = inverse.sum(axis=1)
        share = ones / ones.sum()
        for rows in _strips(len(inverse)):
            inverse[rows] -= np.outer(ones[rows], share)
    return inverse


def _norm(matrix: FloatArray) -> float:
    """Largest sum of absolute values of a row."""
    return max(float(np.abs(matrix[rows]).sum(axis=1).max()) for rows in _strips(len(matrix)))


def _strips(n: int) -> list[slice]:
    """Rows, a few at a time: what is done to them needs no second matrix."""
    return [slice(start, min(start + STRIP, n)) for start in range(0, n, STRIP)]


def _root(matrix: FloatArray) -> FloatArray:
    """Lower Cholesky factor; LAPACK is called directly, since every inner fold and penalty needs it."""
    factor, failed = lapack.dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
    if failed:
        raise Unfit(TOO_SMALL)
    return factor


def solve_lower(root: FloatArray, right: FloatArray, transposed: bool = False) -> FloatArray:
    """Solve with the lower triangle of `root`, or with its transpose; the right-hand sides, columns, are lost."""
    if right.shape[1] == 1:
        solution, _ = lapack.dtrtrs(root, right, lower=1, trans=int(transposed), overwrite_b=1)
        return solution
    # From the right BLAS reads row-major columns as they lie; that is faster by a quarter than from the left.
    solved: FloatArray = blas.dtrsm(1.0, root, right.T, side=1, lower=1, trans_a=int(not transposed), overwrite_b=1)
    return solved.T
