"""Spectral filters that are learned from the prediction itself: lambda^alpha times a correction for every bin.

Eigenvalues are sorted into bins of log lambda that hold equally many, over all people. The features of a person are
sum_b exp(theta_b) M_b, where M_b are the edges of the modes in bin b at lambda^alpha; theta = 0 is FC^alpha exactly.
Kernels come from `filter_grams`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.connectome.spectrum import in_range, power_weights
from fcpower_bids.core.filters.filter_grams import FilterGrams

LIMIT = 5.0
"""Largest absolute correction, on the log scale."""


@dataclass(frozen=True, eq=False)
class Bins:
    """Eigenvalues of n people in B bins of log lambda.

    Attributes
    ----------
    members : ndarray of int, shape (n, P)
        Bin of each eigenvalue, from 0 for the smallest; -1 outside the range of the matrix.
    centres : ndarray, shape (B,)
        Mean of ln lambda in each bin.
    """

    members: NDArray[np.intp]
    centres: FloatArray


def bin_eigenvalues(eigenvalues: FloatArray, n_bins: int, tolerance: float) -> Bins:
    """Sort eigenvalues (n, P) into bins with equally many each, over all people; no target takes part."""
    inside = np.stack([in_range(values, tolerance) for values in eigenvalues])
    logs = np.log(np.where(inside, eigenvalues, 1.0))
    edges = np.unique(np.quantile(logs[inside], np.linspace(0, 1, n_bins + 1)[1:-1]))
    members = np.where(inside, np.searchsorted(edges, logs, side="right"), -1)
    used, renumbered = np.unique(members[inside], return_inverse=True)
    members[inside] = renumbered
    centres = np.array([logs[members == number].mean() for number in range(used.size)])
    return Bins(members, centres)


def bin_weights(eigenvalues: FloatArray, bins: Bins, alpha: float, tolerance: float) -> FloatArray:
    """lambda^alpha of the modes of each bin and 0 elsewhere, shape (n, B, P): the basis of `filter_grams`."""
    weights = np.stack([power_weights(values, alpha, tolerance) for values in eigenvalues])
    inside = bins.members[:, None, :] == np.arange(bins.centres.size)[:, None]
    return np.where(inside, weights[:, None, :], 0.0)


class BinnedFilter:
    """One correction per bin; the parameters are theta itself."""

    def __init__(self, bins: Bins) -> None:
        self.start = np.zeros(bins.centres.size)

    def theta(self, parameters: FloatArray) -> FloatArray:
        """Corrections (B,) of the parameters."""
        return parameters

    def pull_back(self, parameters: FloatArray, upstream: FloatArray) -> FloatArray:
        """Derivative by the parameters from that by theta."""
        return upstream


class NetworkFilter:
    """Corrections from a network of two hidden layers on the mean ln lambda of each bin; tanh, linear output.

    The output weights start at zero, so that learning starts at lambda^alpha.
    """

    def __init__(self, bins: Bins, width: int = 64, seed: int = 0) -> None:
        spread = bins.centres.std() or 1.0
        self.inputs = ((bins.centres - bins.centres.mean()) / spread)[:, None]
        self.shapes = ((1, width), (width,), (width, width), (width,), (width, 1), (1,))
        rng = np.random.default_rng(seed)
        drawn = [rng.standard_normal(shape) / np.sqrt(shape[0]) for shape in self.shapes]
        self.start = np.concatenate([*(each.ravel() for each in drawn[:4]), np.zeros(width + 1)])

    def theta(self, parameters: FloatArray) -> FloatArray:
        """Corrections (B,) of the parameters."""
        return self._forward(parameters)[2]

    def pull_back(self, parameters: FloatArray, upstream: FloatArray) -> FloatArray:
        """Derivative by the parameters from that by theta."""
        first, second, _ = self._forward(parameters)
        _, _, middle, _, last, _ = self._split(parameters)
        output = upstream[:, None]
        at_second = (output @ last.T) * (1 - second**2)
        at_first = (at_second @ middle.T) * (1 - first**2)
        parts = [
            *(self.inputs.T @ at_first, at_first.sum(axis=0)),
            *(first.T @ at_second, at_second.sum(axis=0)),
            *(second.T @ output, output.sum(axis=0)),
        ]
        return np.concatenate([part.ravel() for part in parts])

    def _forward(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        weights = self._split(parameters)
        first = np.tanh(self.inputs @ weights[0] + weights[1])
        second = np.tanh(first @ weights[2] + weights[3])
        return first, second, (second @ weights[4] + weights[5])[:, 0]

    def _split(self, parameters: FloatArray) -> list[FloatArray]:
        stops = np.cumsum([np.prod(shape) for shape in self.shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(parameters, stops), self.shapes, strict=True)]


def inner_loss(
    kernel: FloatArray, penalty: float, target: FloatArray, inner: Sequence[Rows]
) -> tuple[float, FloatArray, float]:
    """Squared error of ridge predictions of each inner fold from the others, over the target's variance.

    Parameters
    ----------
    kernel : ndarray, shape (n, n)
    penalty : float
    target : ndarray, shape (n,)
        Known in every inner fold.
    inner : sequence of ndarray of int
        The training rows divided into validation sets.

    Returns
    -------
    loss : float
    by_kernel : ndarray, shape (n, n)
        Its derivative by each entry of the kernel.
    by_penalty : float
        Its derivative by the penalty.
    """
    everyone = np.concatenate(inner)
    scale = everyone.size * target[everyone].var()
    loss, by_penalty, by_kernel = 0.0, 0.0, np.zeros_like(kernel)
    for rows in inner:
        train = np.setdiff1d(everyone, rows)
        penalised = kernel[np.ix_(train, train)] + penalty * np.eye(train.size)
        factor = linalg.cho_factor(penalised, lower=True, check_finite=False)
        mean = target[train].mean()
        dual = linalg.cho_solve(factor, target[train] - mean)
        residual = kernel[np.ix_(rows, train)] @ dual + mean - target[rows]
        loss += float(residual @ residual) / scale
        error = 2 * residual / scale
        adjoint = linalg.cho_solve(factor, kernel[np.ix_(train, rows)] @ error)
        by_kernel[np.ix_(rows, train)] += np.outer(error, dual)
        by_kernel[np.ix_(train, train)] -= np.outer(adjoint, dual)
        by_penalty -= float(adjoint @ dual)
    return loss, by_kernel, by_penalty


def learn_filter(
    grams: FilterGrams,
    form: BinnedFilter | NetworkFilter,
    target: FloatArray,
    inner: Sequence[Rows],
    n_iterations: int = 30,
) -> FloatArray:
    """Minimise `inner_loss` over the filter and the penalty, from lambda^alpha and penalty 1, by L-BFGS.

    Source: the paper, Appendix "Where the gain comes from", filters optimised on the prediction loss.

    Parameters
    ----------
    grams : FilterGrams
        Of `bin_weights`; the coefficients are exp(theta).
    form : BinnedFilter or NetworkFilter
    target : ndarray, shape (n,)
        Only the rows of `inner` are read.
    inner : sequence of ndarray of int
        Inner folds of the training people.
    n_iterations : int
        Steps of L-BFGS.

    Returns
    -------
    ndarray, shape (B,)
        theta, the corrections on the log scale, cut to +/-5.
    """

    def objective(point: FloatArray) -> tuple[float, FloatArray]:
        parameters, penalty = point[:-1], float(np.exp(point[-1]))
        free = form.theta(parameters)
        theta = LIMIT * np.tanh(free / LIMIT)
        coefficients = np.exp(theta)
        loss, by_kernel, by_penalty = inner_loss(grams.kernel(coefficients), penalty, target, inner)
        by_free = grams.gradient(coefficients, by_kernel) * coefficients * (1 - (theta / LIMIT) ** 2)
        return loss, np.append(form.pull_back(parameters, by_free), by_penalty * penalty)

    start = np.append(form.start, 0.0)
    bounds = [(None, None)] * form.start.size + [(np.log(1e-3), np.log(1e3))]
    found = optimize.minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": n_iterations}
    )
    return np.asarray(LIMIT * np.tanh(form.theta(found.x[:-1]) / LIMIT))
