"""Kernel ridge regression on a mixture of kernels, whose weights the inner folds choose together with the penalty."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.core.regression.ridge import Sides, Solver, Split

STEPS = 10
"""Steps of the weight of one of two kernels."""

DRAWS = 20
"""Mixtures of three kernels or more that are tried in addition to each kernel alone and their mean."""


class KernelMixture:
    """A regression for every mixture of some kernels; to others it is the regression on their mean.

    Source: multiple-kernel ridge regression by random search over the simplex, as in Dupre la Tour et al. 2022
    (doi:10.1016/j.neuroimage.2022.119728), with the mixtures of two kernels on a grid. `make`: from weights, shape
    (k,), to the regression on the kernel that they mix. `weights` (n_mixtures, k): see `simplex_weights`; the first is
    the mean of the kernels. `keep`: whether the regressions of all mixtures fit in memory.
    """

    def __init__(self, make: Callable[[FloatArray], Solver], weights: FloatArray, keep: bool = True) -> None:
        self.make, self.weights, self.keep = make, weights, keep
        self.mean = make(weights[0])
        self._kept: dict[int, Solver] = {0: self.mean}

    def __iter__(self) -> Iterator[Solver]:
        """One regression per mixture."""
        for place, weights in enumerate(self.weights):
            solver = self._kept.get(place) or self.make(weights)
            if self.keep:
                self._kept[place] = solver
            yield solver

    @property
    def penalties(self) -> FloatArray:
        """The grid of the mean."""
        return self.mean.penalties

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about the grid, for the sidecar."""
        return self.mean.notes

    def prepare(self, targets: FloatArray) -> Sides:
        """Do what depends on the targets and not on the split."""
        return self.mean.prepare(targets)

    def predict(self, split: Split, outer: Sides, inner: Sequence[Sides]) -> tuple[FloatArray, list[FloatArray]]:
        """Predict by the mean of the kernels."""
        return self.mean.predict(split, outer, inner)


def simplex_weights(n_kernels: int, seed: int = 0) -> FloatArray:
    """Weights that sum to 1, shape (n_mixtures, n_kernels): the mean, each kernel alone, and mixtures between them.

    Of two kernels they are a grid; of more, draws from the uniform distribution on the simplex.
    """
    mean = np.full((1, n_kernels), 1 / n_kernels)
    if n_kernels == 1:
        return mean
    if n_kernels == 2:
        first = np.linspace(0, 1, STEPS + 1)
        first = first[first != 0.5]
        return np.vstack([mean, np.column_stack([first, 1 - first])])
    drawn = np.random.default_rng(seed).dirichlet(np.ones(n_kernels), DRAWS)
    return np.vstack([mean, np.eye(n_kernels), drawn])


def choose_mixtures(results: Sequence[NestedResult], weights: FloatArray) -> NestedResult:
    """Take, for every fold and target, the result of the mixture whose inner folds score best, the first of equals.

    `results`: one per mixture, on the same folds and targets. `weights` (n_mixtures, k).
    """
    scores = np.stack([each.best_scores for each in results])
    best = np.argmax(np.where(np.isnan(scores), -np.inf, scores), axis=0)
    columns = np.arange(best.shape[1])
    pick = {name: _pick(np.stack([getattr(each, name) for each in results]), best) for name in ("chosen", "at_edge")}
    predicted = tuple(
        np.stack([each.predicted[fold] for each in results])[best[fold], :, columns].T
        for fold in range(len(results[0].folds))
    )
    inner = np.stack([each.inner_scores for each in results])
    return dataclasses.replace(
        results[0],
        chosen=pick["chosen"],
        at_edge=pick["at_edge"],
        best_scores=_pick(scores, best),
        inner_scores=np.take_along_axis(inner, best[None, :, None, :], axis=0)[0],
        predicted=predicted,
        notes=results[0].notes,
        weights=weights[best],
    )


def _pick(values: NDArray[Any], best: NDArray[np.intp]) -> NDArray[Any]:
    """Values (n_mixtures, F, m) of the best mixture of each fold and target."""
    return np.take_along_axis(values, best[None], axis=0)[0]
