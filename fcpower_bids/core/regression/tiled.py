"""Inverses of a kernel that lies on disk, tile by tile: a few square tiles are in memory, never a whole matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.regression.dense import Block, HeldOut, Host, solve_lower, strips
from fcpower_bids.ondisk import RowsOnDisk, ScratchRows
from fcpower_bids.resources import available_bytes

HELD = 4
"""Tiles in memory together: the one that is made, two that are multiplied, and their product."""


class Tiled(Host):
    """Numpy and scipy on tiles of matrices in a folder."""

    name = "numpy and scipy, by tiles on disk"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def invert(self, kernel: Any, penalty: float, intercept: bool) -> Any:
        """Factorise a copy on disk, and invert in its place."""
        n = len(kernel)
        side = max(64, math.isqrt(available_bytes() // (8 * HELD)))
        inverse = ScratchRows(self.folder, (n, n), np.float64)
        tiles = _Tiles(inverse, [slice(start, min(start + side, n)) for start in range(0, n, side)])
        norm = _penalise(kernel, penalty, tiles)
        if not _factorise(tiles):
            return None
        _invert_factor(tiles)
        _multiply_factor(tiles)
        sums, sizes = _sum_rows(tiles)
        if 1 / (norm * sizes.max()) < n * np.finfo(float).eps:
            return None
        _mirror(tiles, sums if intercept else None)
        return inverse

    def multiply(self, inverse: RowsOnDisk, targets: FloatArray) -> FloatArray:  # type: ignore[override]
        """Multiply targets (n, m) by an inverse, some rows at a time."""
        return np.concatenate([inverse[rows] @ targets for rows in strips(len(inverse))])

    def blocks(self, inverse: RowsOnDisk, held: HeldOut, root: FloatArray) -> Iterator[FloatArray]:  # type: ignore[override]
        """Whiten the columns of one inner fold after the other."""
        for columns in held.inner:
            yield solve_lower(root, Block(held.rows, columns).copy(inverse))


class _Tiles:
    """The lower tiles of a symmetric matrix on disk."""

    def __init__(self, matrix: ScratchRows, parts: Sequence[slice]) -> None:
        self.matrix, self.parts = matrix, parts

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, place: tuple[int, int]) -> FloatArray:
        return self.matrix[self.parts[place[0]], self.parts[place[1]]]

    def __setitem__(self, place: tuple[int, int], tile: FloatArray) -> None:
        self.matrix[self.parts[place[0]], self.parts[place[1]]] = tile

    def lower(self) -> Iterator[tuple[int, int]]:
        """Places of the tiles, row by row."""
        return ((i, j) for i in range(len(self)) for j in range(i + 1))


def _penalise(kernel: RowsOnDisk, penalty: float, tiles: _Tiles) -> float:
    """Write K + l I; return its largest sum of absolute values of a row."""
    norms = np.zeros(len(kernel))
    for i, j in tiles.lower():
        tile = np.asarray(kernel[tiles.parts[i], tiles.parts[j]], dtype=float)
        if i == j:
            tile.flat[:: len(tile) + 1] += penalty
        tiles[i, j] = tile
        _add_sums(norms, np.abs(tile), tiles, i, j)
    return float(norms.max())


def _factorise(tiles: _Tiles) -> bool:
    """Put the Cholesky factor L in the place of the matrix; whether there is one."""
    for j in range(len(tiles)):
        root = np.empty(0)
        for i in range(j, len(tiles)):
            tile = tiles[i, j]
            for k in range(j):
                tile -= tiles[i, k] @ tiles[j, k].T
            if i == j:
                root, failed = lapack.dpotrf(tile, lower=1, clean=1)
                if failed:
                    return False
                tile = root
            else:
                tile = blas.dtrsm(1.0, root, tile, side=1, lower=1, trans_a=1)
            tiles[i, j] = tile
    return True


def _invert_factor(tiles: _Tiles) -> None:
    """Put X = L^-1 in the place of L: ``L_ii X_ij = - sum L_ik X_kj`` over j <= k < i."""
    for i in range(len(tiles)):
        root = tiles[i, i]
        for j in range(i):
            tile = np.zeros((len(root), tiles[j, j].shape[1]))
            for k in range(j, i):
                tile -= tiles[i, k] @ tiles[k, j]
            tiles[i, j] = blas.dtrsm(1.0, root, tile, lower=1)
        tiles[i, i] = lapack.dtrtri(root, lower=1)[0]


def _multiply_factor(tiles: _Tiles) -> None:
    """Put X' X in the place of X, lower tiles: those of a row need no row above, and their last one is read last."""
    for i, j in tiles.lower():
        tile = tiles[i, i].T @ tiles[i, j]
        for k in range(i + 1, len(tiles)):
            tile += tiles[k, i].T @ tiles[k, j]
        tiles[i, j] = tile


def _sum_rows(tiles: _Tiles) -> tuple[FloatArray, FloatArray]:
    """Sums of the rows of a symmetric matrix, and of their absolute values."""
    sums, sizes = np.zeros((2, len(tiles.matrix)))
    for i, j in tiles.lower():
        tile = tiles[i, j]
        _add_sums(sums, tile, tiles, i, j)
        _add_sums(sizes, np.abs(tile), tiles, i, j)
    return sums, sizes


def _add_sums(sums: FloatArray, tile: FloatArray, tiles: _Tiles, i: int, j: int) -> None:
    sums[tiles.parts[i]] += tile.sum(axis=1)
    if i != j:
        sums[tiles.parts[j]] += tile.sum(axis=0)


def _mirror(tiles: _Tiles, ones: FloatArray | None) -> None:
    """Write the upper tiles too, and take out the direction of the ones, A - (A1)(A1)' / (1'A1), where A1 is given."""
    for i, j in tiles.lower():
        tile = tiles[i, j]
        if ones is not None:
            tile -= np.outer(ones[tiles.parts[i]], ones[tiles.parts[j]] / ones.sum())
        tiles[i, j] = tile
        if i != j:
            tiles[j, i] = tile.T
