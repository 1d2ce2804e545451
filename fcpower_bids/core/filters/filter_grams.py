"""One table of inner products for all filters that are sums of the same few: kernels without new matrix products.

With basis filters g_b >= 0 the edges of a connectome under ``sum_b c_b g_b(lambda)`` are ``sum_b c_b M_b``, where M_b
are those under g_b alone. The correlation kernel is then a quadratic form in c, so that one Gram matrix of everyone per
pair of basis filters serves every c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.core.arrays import FloatArray

Floats = NDArray[np.floating]

PANEL_BYTES = 4e8
"""Memory for the edges that are multiplied at a time."""


@dataclass(frozen=True, eq=False)
class FilterGrams:
    """Inner products of the centred edges of all pairs of people, for every pair of B basis filters.

    Attributes
    ----------
    packed : ndarray, shape (B (B + 1) / 2, n (n + 1) / 2)
        Upper triangles; a pair of different filters holds its Gram matrix plus its transpose.
    n_people, n_filters : int
    """

    packed: Floats
    n_people: int
    n_filters: int

    @staticmethod
    def size(n_people: int, n_filters: int) -> int:
        """Count the numbers that are held."""
        return n_filters * (n_filters + 1) // 2 * n_people * (n_people + 1) // 2

    def kernel(self, coefficients: FloatArray) -> FloatArray:
        """Correlation kernel (n, n) of the filter with coefficients c (B,)."""
        return self._normalise(coefficients)[0]

    def gradient(self, coefficients: FloatArray, upstream: FloatArray) -> FloatArray:
        """Derivative with respect to c (B,) of a function whose derivative by each kernel entry is given."""
        kernel, norms = self._normalise(coefficients)
        upstream = (upstream + upstream.T) / 2
        inner = upstream / np.outer(norms, norms)
        inner[np.diag_indices_from(inner)] -= (upstream * kernel).sum(axis=1) / norms**2
        inner *= 2
        inner[np.diag_indices_from(inner)] /= 2
        by_pair = self.packed @ inner[np.triu_indices(self.n_people)]
        first, second = np.triu_indices(self.n_filters)
        gradient = np.zeros(self.n_filters)
        np.add.at(gradient, first, by_pair * coefficients[second])
        np.add.at(gradient, second, by_pair * coefficients[first])
        return gradient

    def _normalise(self, coefficients: FloatArray) -> tuple[FloatArray, FloatArray]:
        first, second = np.triu_indices(self.n_filters)
        rows, columns = np.triu_indices(self.n_people)
        products = (coefficients[first] * coefficients[second]).astype(self.packed.dtype)
        gram = np.empty((self.n_people, self.n_people))
        gram[rows, columns] = products @ self.packed
        gram[columns, rows] = gram[rows, columns]
        norms = np.sqrt(np.diag(gram))
        kernel = gram / np.outer(norms, norms)
        np.fill_diagonal(kernel, 1.0)
        return kernel, norms


def filter_grams(
    eigenvectors: Callable[[], Iterable[FloatArray]],
    weights: FloatArray,
    dtype: type[np.floating] = np.float64,
    panel_bytes: float = PANEL_BYTES,
) -> FilterGrams:
    """Multiply the edges of everyone under every basis filter.

    Parameters
    ----------
    eigenvectors : callable
        Returns those of each person in turn, (P, P) in columns; called once for every panel of rows.
    weights : ndarray, shape (n, B, P)
        Weight of each mode under each basis filter, none negative.
    dtype : float64 or float32
        Of the products. In single precision, half the time, kernels are off by some 1e-6.
    panel_bytes : float
        Memory for the edges that are multiplied at a time; decides how many rows of the connectomes a panel has.
    """
    n, n_filters, n_parcels = weights.shape
    packed = np.zeros((n_filters * (n_filters + 1) // 2, n * (n + 1) // 2), dtype)
    totals, upper = np.zeros((n_filters, n)), np.triu_indices(n)
    height = max(1, int(panel_bytes / (n_filters * n * n_parcels * np.dtype(dtype).itemsize)))
    for start in range(0, n_parcels - 1, height):
        panel = _panel(eigenvectors(), weights, slice(start, min(start + height, n_parcels - 1)), dtype)
        totals += panel.sum(axis=2, dtype=float)
        _add_products(packed, panel, upper)
    _take_off_means(packed, totals, upper, n_parcels * (n_parcels - 1) // 2)
    return FilterGrams(packed, n, n_filters)


def _panel(eigenvectors: Iterable[FloatArray], weights: FloatArray, rows: slice, dtype: type[np.floating]) -> Floats:
    """Edges of some rows of the connectomes under every basis filter, shape (B, n, edges)."""
    n, n_filters, n_parcels = weights.shape
    edges = np.arange(rows.start + 1, n_parcels) > np.arange(rows.start, rows.stop)[:, None]
    panel = np.empty((n_filters, n, int(edges.sum())), dtype)
    for person, vectors in enumerate(eigenvectors):
        left, right = vectors[rows].astype(dtype), vectors[rows.start + 1 :].astype(dtype)
        for number, own in enumerate(weights[person]):
            modes = np.flatnonzero(own)
            scaled = left[:, modes] * own[modes].astype(dtype)
            panel[number, person] = (scaled @ right[:, modes].T)[edges]
    return panel


def _add_products(packed: Floats, panel: Floats, upper: tuple[NDArray[np.intp], ...]) -> None:
    """Add A A' of every filter and A B' + B A' of every two, both with one triangle to compute.

    With s = ||A|| / ||B|| the latter is ((A + s B) (A + s B)' - A A') / s - s B B': half the work of a product, and the
    rounding of what is taken off is that of the larger of the two.
    """
    own = [edges @ edges.T for edges in panel]
    sizes = [np.sqrt(np.trace(gram)) for gram in own]
    for pair, (first, second) in enumerate(zip(*np.triu_indices(len(panel)), strict=True)):
        if first == second:
            packed[pair] += own[first][upper]
        elif sizes[first] and sizes[second]:
            share = sizes[first] / sizes[second]
            sums = panel[first] + share * panel[second]
            packed[pair] += ((sums @ sums.T - own[first]) / share - share * own[second])[upper]


def _take_off_means(packed: Floats, totals: FloatArray, upper: tuple[NDArray[np.intp], ...], n_edges: int) -> None:
    """Centre the edges of every person, whose sums are given by filter (B, n)."""
    for pair, (first, second) in enumerate(zip(*np.triu_indices(len(totals)), strict=True)):
        product = np.outer(totals[first], totals[second]) / n_edges
        both = product if first == second else product + product.T
        packed[pair] -= both[upper].astype(packed.dtype)
