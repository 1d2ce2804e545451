"""Connectomes with other eigenvalues: single modes, leading modes, profiles, clipping, random filters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.connectomes import PowerFamily, precision
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import eigendecompose, spectral_map
from fcpower_bids.core.connectome.spectrum import in_range, power_weights, regularise

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
        for unit, (values, vectors) in enumerate(self.spectra()):
            weights = weigh(values, self.family.tolerance).astype(dtype)
            kept = weights != 0
            chosen = (vectors if kept.all() else vectors[:, kept]).astype(dtype, copy=False)
            features[unit] = vectorise_edges(spectral_map(values[kept], chosen, weights[kept]))
        return features

    def spectra(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Eigenvalues and eigenvectors of each person."""
        kept = self.family.spectra
        if kept is not None:
            yield from zip(*kept, strict=True)
            return
        for unit in range(self.family.connectivity.shape[0]):
            yield eigendecompose(self.family.connectivity.connectome(unit))

    def eigenvalues(self) -> FloatArray:
        """Of everyone, shape (n, P)."""
        kept = self.family.spectra
        return kept[0] if kept is not None else np.stack([values for values, _ in self.spectra()])


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
    """Count the people of whom a cut after one of these modes falls inside a cluster of equal eigenvalues.

    Parameters
    ----------
    eigenvalues : ndarray, shape (n, P)
        Descending.
    cuts : tuple of int
        Numbers of modes above the cut; 0 and P cut nothing.
    tolerance : float
        A cut among eigenvalues that are zero to rounding does not matter.
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

    Parameters
    ----------
    eigenvalues : ndarray, shape (n, P)
        The range of all of them is divided evenly by the knots.
    tolerance : float

    Returns
    -------
    ndarray, shape (n, N_KNOTS, P)
        They add up to 1 for every mode in the range of its connectome.
    """
    inside = np.stack([in_range(values, tolerance) for values in eigenvalues])
    logs = np.log(np.where(inside, eigenvalues, 1.0))
    knots = np.linspace(logs[inside].min(), logs[inside].max(), N_KNOTS)
    weights = np.stack([np.interp(logs, knots, peak) for peak in np.eye(N_KNOTS)], axis=1)
    return np.where(inside[:, None, :], weights, 0.0)


def random_heights(number: int, seed: int) -> Iterator[tuple[bool, FloatArray]]:
    """Draw random filters by their weights at the knots, log-uniform, every second one monotone.

    Yields
    ------
    monotone : bool
        Whether the weights were sorted.
    heights : ndarray, shape (N_KNOTS,)
        The filter is ``heights @ knot_weights``.
    """
    rng = np.random.default_rng(seed)
    lowest, highest = np.log(RANDOM_RANGE)
    for index in range(number):
        heights = np.exp(rng.uniform(lowest, highest, N_KNOTS))
        yield index % 2 == 0, np.sort(heights) if index % 2 == 0 else heights
