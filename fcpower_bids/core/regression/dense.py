"""The dense operations of kernel ridge regression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.errors import Unfit

TOO_SMALL = "The smallest penalty is too small for this kernel; remove it from the grid."
STRIP = 512
"""Rows of a matrix that are changed at a time."""


@dataclass(eq=False)
class Block:
    """Rows and columns of square matrices of one size."""

    rows: Rows
    columns: Rows
    places: Rows | None = None  # in such a matrix, row after row; computed once for the inverses of all penalties

    def copy(self, matrix: FloatArray) -> FloatArray:
        """Copy the block of a matrix."""
        if self.places is None:
            self.places = self.rows[:, None] * len(matrix) + self.columns
        return matrix.ravel().take(self.places, mode="clip")  # all of them exist


class HeldOut:
    """Rows that are not trained on, and the training rows in parts, each of which is held out together with them."""

    def __init__(self, rows: Rows, inner: Sequence[Rows]) -> None:
        self.rows, self.inner = rows, inner
        self.own, self.parts = Block(rows, rows), [Block(each, each) for each in inner]
        self.cross = Block(rows, np.concatenate([rows[:0], *inner]))


def hold_out(
    inverse: FloatArray, held: HeldOut, product: FloatArray, inner_products: Sequence[FloatArray]
) -> tuple[FloatArray, list[FloatArray]]:
    """Return what held rows R have beyond their predictions, ``(C_RR)^-1 (C y)_R``.

    `inverse`: C. `product` (n, m): C y. `inner_products` (n, m): C y of each part, the object `product` itself where
    the targets are the same. Returns (held, m), and a list of ndarray, shape (rows, m): of the held rows, and of each
    part.
    """
    root = _root(held.own.copy(inverse))
    half = solve_lower(root, product[held.rows])
    test = solve_lower(root, half.copy(), transposed=True)
    validation = []
    for part, own, block in zip(held.parts, inner_products, _whitened(inverse, held, root), strict=True):
        own_half = half if own is product else solve_lower(root, own[held.rows])
        schur = _root(_less_square(part.copy(inverse), block))
        residual = own[part.rows]
        residual -= block.T @ own_half
        validation.append(solve_lower(schur, solve_lower(schur, residual), transposed=True))
    return test, validation


def _whitened(inverse: FloatArray, held: HeldOut, root: FloatArray) -> Iterator[FloatArray]:
    """Yield the held rows of each inner fold's columns, whitened: all are solved at once, which is faster."""
    if held.inner:
        cross = solve_lower(root, held.cross.copy(inverse))
        for part in np.split(cross, np.cumsum([rows.size for rows in held.inner[:-1]]), axis=1):
            yield np.ascontiguousarray(part)


def norm_of(matrix: FloatArray) -> float:
    """Largest sum of absolute values of a row."""
    return max(float(np.abs(matrix[rows]).sum(axis=1).max()) for rows in strips(len(matrix)))


def invert(kernel: FloatArray, penalty: float, intercept: bool) -> FloatArray | None:
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
