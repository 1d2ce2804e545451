"""The dense operations of kernel ridge regression, by numpy and scipy or by the device of the settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.errors import Unfit

TOO_SMALL = "The smallest penalty is too small for this kernel; remove it from the grid."
STRIP = 512
"""Rows of a matrix that are changed at a time."""


@dataclass(eq=False)
class Block:
    """Rows and columns of square matrices of one size, in memory or on disk."""

    rows: Rows
    columns: Rows
    places: Rows | None = None  # in such a matrix, row after row; computed once for the inverses of all penalties

    def copy(self, matrix: Any) -> FloatArray:
        """Copy the block of a matrix."""
        if isinstance(matrix, np.ndarray):
            if self.places is None:
                self.places = self.rows[:, None] * len(matrix) + self.columns
            return matrix.ravel().take(self.places, mode="clip")  # all of them exist
        block = np.empty((len(self.rows), len(self.columns)))
        for part in strips(len(block)):  # on disk: a few rows at a time
            block[part] = matrix[self.rows[part]][:, self.columns]
        return block


class HeldOut:
    """Rows that are not trained on, and the training rows in parts, each of which is held out together with them."""

    def __init__(self, rows: Rows, inner: Sequence[Rows]) -> None:
        self.rows, self.inner = rows, inner
        self.own, self.parts = Block(rows, rows), [Block(each, each) for each in inner]
        self.cross = Block(rows, np.concatenate([rows[:0], *inner]))


class Gram(Protocol):
    """Inner products between the rows of a matrix that comes in panels of columns."""

    def add(self, panel: NDArray[np.floating]) -> None:
        """Take further columns, shape (n, width): multiplied in their precision, summed in double precision."""

    def total(self) -> FloatArray:
        """Return the sum, shape (n, n); nothing is added after that."""


class Dense(Protocol):
    """Who does the dense operations; an inverse is what `invert` returned, and only this object need understand it."""

    name: str  # for sidecars
    shared: bool  # whether other processes can be sent the inverses

    def gram(self, n: int, dtype: type[np.floating]) -> Gram:
        """Begin the inner products of n rows in some precision."""

    def invert(self, kernel: Any, penalty: float, intercept: bool) -> Any:
        """(K + l I)^-1, with an intercept less the direction of the ones; None where singular to working precision."""

    def multiply(self, inverse: Any, targets: FloatArray) -> FloatArray:
        """Multiply targets (n, m) by an inverse."""

    def hold_out(
        self, inverse: Any, held: HeldOut, product: FloatArray, inner_products: Sequence[FloatArray]
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Return what held rows R have beyond their predictions, ``(C_RR)^-1 (C y)_R``.

        `inverse`: C. `product` (n, m): C y. `inner_products` (n, m): C y of each part, the object `product` itself
        where the targets are the same. Returns (held, m), and a list of ndarray, shape (rows, m): of the held rows, and
        of each part.
        """


class Host:
    """Numpy and scipy, in this process."""

    name, shared = "numpy and scipy", True

    def gram(self, n: int, dtype: type[np.floating]) -> Gram:
        """Begin the inner products of n rows in some precision."""
        return _HostGram(n, dtype)

    def invert(self, kernel: FloatArray, penalty: float, intercept: bool) -> FloatArray | None:
        """Factorise a copy, and invert in its place."""
        return _penalised_inverse(kernel, penalty, intercept)

    def multiply(self, inverse: FloatArray, targets: FloatArray) -> FloatArray:
        """Multiply targets (n, m) by an inverse: all of it at once, since parts would have other last bits."""
        return np.asarray(inverse) @ targets

    def hold_out(
        self, inverse: FloatArray, held: HeldOut, product: FloatArray, inner_products: Sequence[FloatArray]
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Return what held rows have beyond their predictions: see `Dense`."""
        root = _root(held.own.copy(inverse))
        half = solve_lower(root, product[held.rows])
        test = solve_lower(root, half.copy(), transposed=True)
        validation = []
        for part, own, block in zip(held.parts, inner_products, self.blocks(inverse, held, root), strict=True):
            own_half = half if own is product else solve_lower(root, own[held.rows])
            schur = _root(_less_square(part.copy(inverse), block))
            residual = own[part.rows]
            residual -= block.T @ own_half
            validation.append(solve_lower(schur, solve_lower(schur, residual), transposed=True))
        return test, validation

    def blocks(self, inverse: FloatArray, held: HeldOut, root: FloatArray) -> Iterator[FloatArray]:
        """Yield the held rows of each inner fold's columns, whitened: all are solved at once, which is faster."""
        if held.inner:
            cross = solve_lower(root, held.cross.copy(inverse))
            for part in np.split(cross, np.cumsum([rows.size for rows in held.inner[:-1]]), axis=1):
                yield np.ascontiguousarray(part)


class _HostGram:
    def __init__(self, n: int, dtype: type[np.floating]) -> None:
        self.sum, self.product = np.zeros((n, n)), np.empty((n, n), dtype)

    def add(self, panel: NDArray[np.floating]) -> None:
        self.sum += np.matmul(panel, panel.T, out=self.product)

    def total(self) -> FloatArray:
        return self.sum


HOST = Host()
_CHOSEN: ContextVar[Dense] = ContextVar("who does the dense operations", default=HOST)


def dense() -> Dense:
    """Return who does the dense operations, numpy and scipy by default."""
    return _CHOSEN.get()


@contextmanager
def solving_with(chosen: Dense) -> Iterator[None]:
    """Use another implementation of the dense operations."""
    token = _CHOSEN.set(chosen)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def norm_of(matrix: Any) -> float:
    """Largest sum of absolute values of a row."""
    return max(float(np.abs(matrix[rows]).sum(axis=1).max()) for rows in strips(len(matrix)))


def trace_of(matrix: Any) -> float:
    """Sum of the diagonal of a matrix in memory or on disk."""
    if isinstance(matrix, np.ndarray):
        return float(np.trace(matrix))
    return float(sum(np.trace(matrix[rows, rows]) for rows in strips(len(matrix))))


def _penalised_inverse(kernel: FloatArray, penalty: float, intercept: bool) -> FloatArray | None:
    """(K + l I)^-1, with an intercept less the direction of the ones; None where singular to working precision."""
    penalised = np.array(kernel, dtype=float, order="F")
    penalised.flat[:: kernel.shape[0] + 1] += penalty
    norm = norm_of(penalised)
    factor, failed = lapack.dpotrf(penalised, lower=1, clean=1, overwrite_a=1)
    if failed or lapack.dpocon(factor, norm, uplo="L")[0] < kernel.shape[0] * np.finfo(float).eps:
        return None
    lower, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    inverse: FloatArray = lower.T  # row-major; its upper triangle is filled
    for rows in strips(len(inverse)):
        block = inverse[rows, : rows.stop]
        block += np.tril(inverse[: rows.stop, rows].T, rows.start - 1)
    if intercept:
        _centre(inverse)
    return inverse


def _centre(inverse: FloatArray) -> None:
    """Take the direction of the ones out of an inverse: A - (A1)(A1)' / (1'A1), in place."""
    ones = inverse.sum(axis=1)
    share = ones / ones.sum()
    for rows in strips(len(inverse)):
        inverse[rows] -= np.outer(ones[rows], share)


def strips(n: int) -> list[slice]:
    """Rows, a few at a time: what is done to them needs no second matrix."""
    return [slice(start, min(start + STRIP, n)) for start in range(0, n, STRIP)]


def _less_square(matrix: FloatArray, factor: FloatArray) -> FloatArray:
    """Matrix - factor' factor, in its upper triangle only (row-major, which LAPACK reads as lower)."""
    reduced: FloatArray = blas.dsyrk(-1.0, factor.T, beta=1.0, c=matrix.T, lower=1, overwrite_c=1)
    return reduced.T


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
