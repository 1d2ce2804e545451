"""Connectomes with filtered eigenvalues, and further kernels between people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from threadpoolctl import threadpool_limits

from fcpower_bids.analyses.features import AveragedEdges, PowerFamily, precision, similarity
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import full_rank, spectral_map, spectral_power
from fcpower_bids.core.connectome.spectrum import in_range, power_weights, regularise
from fcpower_bids.core.regression.kernels import FeatureSource, linear_kernel
from fcpower_bids.errors import Unfit
from fcpower_bids.progress import track
from fcpower_bids.settings import Analysis
from fcpower_bids.transforms.stateless import Cholesky, LogCholesky

Filter = Callable[[FloatArray, float], FloatArray]
"""From eigenvalues (P,) in descending order and the tolerance to weights (P,); a mode of weight 0 is left out."""

GAP = 1e-8
"""Difference between neighbours, over the largest eigenvalue, below which their eigenvectors are not reproducible."""

TOP, MIDDLE, TAIL = (10.0, 1.0), 0.01, (0.5, 0.05)
"""The paper's hand-set profile: first and last weight of the top modes, of the middle, of the tail."""

N_PROFILE = 20
"""Modes at the top of the profile; the paper does not say how many make up its tail, ours has as many."""

CLIP = 5.0
"""Largest eigenvalue after clipping (the paper)."""

N_KNOTS = 8
"""Of a random filter, evenly spaced in log lambda; the filter is linear in between."""

RANDOM_RANGE = 1e-2, 1e2
"""Weights of the random filters at the knots."""


class FilteredFamily:
    """Edges of the filtered connectomes of everyone, from eigendecompositions that are computed once if they fit."""

    def __init__(self, family: PowerFamily) -> None:
        self.family = family

    def features(self, weigh: Filter, dtype: type[np.floating] | None = None) -> NDArray[np.floating]:
        """Edges of V diag(weights) V' times sqrt(2), shape (n, E); in single precision they cost half the time."""
        dtype = dtype or precision(self.family.connectivity.shape)
        features = np.empty(self.family.connectivity.shape, dtype)
        for unit, (values, vectors) in enumerate(self.family.each_spectrum()):
            weights = weigh(values, self.family.tolerance).astype(dtype)
            kept = weights != 0
            chosen = (vectors if kept.all() else vectors[:, kept]).astype(dtype, copy=False)
            features[unit] = vectorise_edges(spectral_map(values[kept], chosen, weights[kept]))
        return features

    def eigenvalues(self) -> FloatArray:
        """Of everyone, shape (n, P)."""
        kept = self.family.spectra
        return kept[0] if kept is not None else np.stack([values for values, _ in self.family.each_spectrum()])


def single_mode(position: int, alpha: float) -> Filter:
    """lambda^alpha of one mode, counted from 1, and nothing else."""
    return partial(_modes, first=position - 1, last=position, alpha=alpha)


def leading_modes(number: int, alpha: float) -> Filter:
    """lambda^alpha of the first modes."""
    return partial(_modes, first=0, last=number, alpha=alpha)


def _modes(values: FloatArray, tolerance: float, first: int, last: int, alpha: float) -> FloatArray:
    weights = power_weights(values, alpha, tolerance)
    weights[:first] = 0
    weights[last:] = 0
    return weights


def logarithm(floor: float | None = None, shrinkage: float | None = None) -> Filter:
    """Logarithm of all eigenvalues, made full rank as in `spectrum.regularise`, which refuses where that fails."""
    return partial(_logarithm, floor=floor, shrinkage=shrinkage)


def _logarithm(
    values: FloatArray, tolerance: float, floor: float | None = None, shrinkage: float | None = None
) -> FloatArray:
    return np.log(regularise(values, floor, shrinkage, tolerance))


def ambiguous_cuts(eigenvalues: FloatArray, cuts: tuple[int, ...], tolerance: float) -> int:
    """Count the people in whose spectrum a cut after one of these modes falls inside a cluster of equal eigenvalues.

    Shapes and units: eigenvalues (n, P).
    """
    count = 0
    for values in eigenvalues:
        inside = in_range(values, tolerance)
        gaps = [values[cut - 1] - values[cut] for cut in cuts if 0 < cut < values.size and inside[cut - 1]]
        count += bool(np.less(gaps, GAP * values[0]).any())
    return count


def profile(values: FloatArray, tolerance: float) -> FloatArray:
    """Return the same weights for everyone: top from 10 down to 1, middle 0.01, tail from 0.5 to 0.05."""
    n_modes = int(in_range(values, tolerance).sum())
    n_end = min(N_PROFILE, n_modes // 2)
    weights = np.zeros(values.size)
    weights[:n_modes] = MIDDLE
    weights[n_modes - n_end : n_modes] = np.linspace(*TAIL, n_end)
    weights[:n_end] = np.linspace(*TOP, n_end)
    return weights


def clipped(values: FloatArray, tolerance: float) -> FloatArray:
    """Eigenvalues above 5 become 5."""
    return np.minimum(power_weights(values, 1.0, tolerance), CLIP)


def knot_weights(eigenvalues: FloatArray, tolerance: float) -> FloatArray:
    """Basis of the random filters: functions of log lambda that are 1 at their knot and fall to 0 at the next ones.

    Shapes and units: eigenvalues (n, P); returns (n, N_KNOTS, P).
    """
    inside = np.stack([in_range(values, tolerance) for values in eigenvalues])
    logs = np.log(np.where(inside, eigenvalues, 1.0))
    knots = np.linspace(logs[inside].min(), logs[inside].max(), N_KNOTS)
    weights = np.stack([np.interp(logs, knots, peak) for peak in np.eye(N_KNOTS)], axis=1)
    return np.where(inside[:, None, :], weights, 0.0)


def random_heights(number: int, seed: int) -> Iterator[tuple[bool, FloatArray]]:
    """Draw random filters by their log-uniform weights (N_KNOTS,) at the knots, every second one monotone."""
    rng = np.random.default_rng(seed)
    lowest, highest = np.log(RANDOM_RANGE)
    for index in range(number):
        heights = np.exp(rng.uniform(lowest, highest, N_KNOTS))
        yield index % 2 == 0, np.sort(heights) if index % 2 == 0 else heights


DOT_PRODUCTS = ("pearson", "cosine", "centred_dot", "raw_dot")

PAIRWISE_LIMIT = 1e11
"""Pairs times cubed parcels (minutes of work) above which a distance with an eigendecomposition per pair is refused."""


def dot_kernel(name: str, features: FeatureSource) -> FloatArray:
    """Kernel (n, n) of features (n, E) by one of `DOT_PRODUCTS`.

    The two that are not normalised per person are divided by their mean diagonal, so that one grid of penalties suits
    all four. Raises Unfit.
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
    """Squared distances (n, n) between the connectomes of all pairs under one of `METRICS`. Raises Unfit."""
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
    for values, vectors in family.each_spectrum():
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
        if metric == "affine_invariant":
            matrices = [full_rank(matrix, *settings.full_rank_remedy.values()) for matrix in matrices]
        for i in track(range(n), f"{metric} distances", settings):
            root = spectral_power(matrices[i], 0.5)
            for j in range(i):
                squared[i, j] = squared[j, i] = max(PAIRWISE[metric](matrices[i], matrices[j], root), 0.0)
    return squared
