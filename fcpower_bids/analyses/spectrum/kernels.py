"""Kernels beside the correlation kernel: dot products of FC^alpha, and RBF on distances between connectomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import numpy as np
from scipy import linalg
from threadpoolctl import threadpool_limits

from fcpower_bids.analyses.engine.connectomes import AveragedEdges, PowerFamily, precision, similarity
from fcpower_bids.analyses.spectrum.filters import Filter, FilteredFamily, leading_modes, logarithm
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import full_rank, spectral_map, spectral_power
from fcpower_bids.core.regression.kernels import FeatureSource, linear_kernel
from fcpower_bids.errors import Unfit
from fcpower_bids.progress import track
from fcpower_bids.settings import Analysis
from fcpower_bids.transforms.cholesky import Cholesky, LogCholesky

DOT_PRODUCTS = ("pearson", "cosine", "centred_dot", "raw_dot")

PAIRWISE_LIMIT = 1e11
"""Pairs times cubed parcels (minutes of work) above which a distance with an eigendecomposition per pair is refused."""


def dot_kernel(name: str, features: FeatureSource) -> FloatArray:
    """Kernel (n, n) of features (n, E) by one of `DOT_PRODUCTS`.

    The two that are not normalised per person are divided by their mean diagonal, so that one grid of penalties suits
    all four.

    Raises
    ------
    Unfit
        The name is unknown.
    """
    if name not in DOT_PRODUCTS:
        raise ValueError(f"There is no kernel called '{name}'. Choose from: {', '.join(DOT_PRODUCTS)}.")
    if name == "pearson":
        return similarity(features)
    gram = linear_kernel(features, dtype=precision(features.shape))
    if name == "cosine":
        norms = np.sqrt(np.diag(gram))
        return gram / np.outer(norms, norms)
    if name == "centred_dot":
        sums = np.array([np.asarray(features[row : row + 1]).sum(dtype=float) for row in range(len(gram))])
        gram -= np.outer(sums, sums) / features.shape[1]
    return gram / np.diag(gram).mean()


def rbf_kernel(squared: FloatArray) -> FloatArray:
    """exp(-d^2 / (2 s^2)) of squared distances (n, n), with s the median distance between two people."""
    median = float(np.median(squared[np.triu_indices(len(squared), 1)]))
    if not median > 0:
        raise Unfit("Most connectomes are the same, so distances between them say nothing.")
    return np.asarray(np.exp(-squared / (2 * median)))


def squared_distances(metric: str, family: PowerFamily, settings: Analysis) -> FloatArray:
    """Squared distances (n, n) between the connectomes of all pairs under one of `METRICS`.

    Parameters
    ----------
    metric : str
    family : PowerFamily
        FC of n people and its eigendecompositions.
    settings : Analysis
        ``alpha`` for the power-Euclidean metric; the remedies of those that need full rank.

    Raises
    ------
    Unfit
        The metric is unknown, a connectome is rank-deficient without a remedy, or a metric that takes an
        eigendecomposition per pair would take too long.
    """
    if metric in PAIRWISE:
        return _by_pair(metric, family.connectivity, settings)
    if metric not in EMBEDDED:
        raise ValueError(f"There is no metric called '{metric}'. Choose from: {', '.join(METRICS)}.")
    weighted = "cholesky" not in metric  # a triangular factor has each entry once
    n, n_edges = family.connectivity.shape
    embedded = np.empty((n, n_edges + family.n_parcels))
    images = EMBEDDED[metric](family, settings)
    for unit, matrix in enumerate(track(images, f"{metric} distances", settings, n)):
        embedded[unit] = np.concatenate([vectorise_edges(matrix, weighted=weighted), np.diag(matrix)])
    gram = linear_kernel(embedded)
    sizes = np.diag(gram)
    squared = np.maximum(sizes[:, None] + sizes - 2 * gram, 0.0)
    np.fill_diagonal(squared, 0.0)
    return squared


def _connectomes(family: PowerFamily) -> Iterator[FloatArray]:
    return (family.connectivity.connectome(unit) for unit in range(family.connectivity.shape[0]))


def _filtered(family: PowerFamily, weigh: Filter) -> Iterator[FloatArray]:
    for values, vectors in FilteredFamily(family).spectra():
        yield spectral_map(values, vectors, weigh(values, family.tolerance))


def _factors(family: PowerFamily, transform: Cholesky | LogCholesky) -> Iterator[FloatArray]:
    return (transform.apply(connectome) for connectome in _connectomes(family))


EMBEDDED: Mapping[str, Callable[[PowerFamily, Analysis], Iterator[FloatArray]]] = MappingProxyType(
    {
        "euclidean": lambda family, _: _connectomes(family),
        "power_euclidean": lambda family, of: _filtered(family, leading_modes(family.n_parcels, of.alpha)),
        "log_euclidean": lambda family, of: _filtered(family, logarithm(*of.full_rank_remedy.values())),
        "cholesky": lambda family, of: _factors(family, Cholesky(**of.full_rank_remedy)),
        "log_cholesky": lambda family, of: _factors(family, LogCholesky(**of.full_rank_remedy)),
    }
)
"""Metrics that are the Frobenius distance between images of the two matrices."""


def _wasserstein(first: FloatArray, second: FloatArray, root: FloatArray) -> float:
    """Tr A + tr B - 2 tr (A^1/2 B A^1/2)^1/2 with A^1/2 given."""
    eigenvalues = linalg.eigvalsh(root @ second @ root, check_finite=False)
    return float(np.trace(first) + np.trace(second) - 2 * np.sqrt(np.maximum(eigenvalues, 0)).sum())


def _affine_invariant(first: FloatArray, second: FloatArray, root: FloatArray) -> float:
    """Sum of squared logarithms of the eigenvalues of A^-1 B."""
    return float((np.log(linalg.eigvalsh(second, first, check_finite=False)) ** 2).sum())


PAIRWISE: Mapping[str, Callable[[FloatArray, FloatArray, FloatArray], float]] = MappingProxyType(
    {"wasserstein": _wasserstein, "affine_invariant": _affine_invariant}
)
"""Metrics that take an eigendecomposition per pair."""

NEED_FULL_RANK = ("affine_invariant",)
METRICS = (*EMBEDDED, *PAIRWISE)


def _by_pair(metric: str, connectivity: AveragedEdges, settings: Analysis) -> FloatArray:
    n = connectivity.shape[0]
    n_parcels = len(connectivity.connectome(0))
    if n * (n - 1) / 2 * n_parcels**3 > PAIRWISE_LIMIT:
        raise Unfit(
            f"The {metric} distance takes an eigendecomposition for each of {n * (n - 1) // 2} pairs of people, which "
            "takes too long with these parcels; use fewer people or a smaller atlas."
        )
    squared = np.zeros((n, n))
    with threadpool_limits(1):
        matrices = [connectivity.connectome(unit) for unit in range(n)]
        if metric in NEED_FULL_RANK:
            matrices = [full_rank(matrix, *settings.full_rank_remedy.values()) for matrix in matrices]
        for i in track(range(n), f"{metric} distances", settings):
            root = spectral_power(matrices[i], 0.5)
            for j in range(i):
                squared[i, j] = squared[j, i] = max(PAIRWISE[metric](matrices[i], matrices[j], root), 0.0)
    return squared
