"""Multi-kernel ridge regression: several representations at once, weighted by the inner folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.kernels import correlation_kernel
from fcpower_bids.core.regression.penalties import regress_on_kernel, search_penalties
from fcpower_bids.core.regression.presets import PredictionPreset
from fcpower_bids.core.regression.ridge import FoldKernels, FoldSolver, Solver, SubsetSolver
from fcpower_bids.core.regression.solvers.mixture import KernelMixture, simplex_weights
from fcpower_bids.predictors.contract import Described, Predictor
from fcpower_bids.resources import available_bytes


class MultiKernel(Predictor):
    """Ridge regression on a mixture of the correlation kernels of all representations."""

    title: ClassVar[str] = "multi-kernel ridge"
    summary: ClassVar[str] = (
        "Kernel ridge regression on a weighted mean of the correlation kernels of all representations; weights and "
        "penalty are selected together by the inner folds."
    )
    joint: ClassVar[bool] = True

    def mix(self, people: Sequence[Described], preset: PredictionPreset) -> Solver:
        """Return the regressions on the mixtures."""
        if any(each.fitted is not None for each in people):
            return self._mix_in_folds(people, preset)
        kernels = [each.similarity() for each in people]
        weights = simplex_weights(len(kernels))
        needed = len(weights) * len(preset.penalties) * kernels[0].nbytes
        return KernelMixture(
            lambda own: regress_on_kernel(_mean(kernels, own), preset), weights, needed <= available_bytes()
        )

    def _mix_in_folds(self, people: Sequence[Described], preset: PredictionPreset) -> Solver:
        """Return the same of features that are fitted to the training people of every fold."""
        own = [FoldKernels(lambda train, fitted=each.fitted: correlation_kernel(fitted(train))) for each in people]  # type: ignore[misc]

        def regress(weights: FloatArray) -> Solver:
            def make(train: Rows, penalties: FloatArray) -> Solver:
                return SubsetSolver(_mean([each(train) for each in own], weights), penalties, preset.intercept)

            return search_penalties(lambda penalties: FoldSolver(make, penalties), 1.0, preset)

        return KernelMixture(regress, simplex_weights(len(people)))

    def solver(self, people: Described, preset: PredictionPreset) -> Solver:
        """Return the regression on one representation: kernel ridge on its correlation kernel."""
        return self.mix([people], preset)

    def permuted_cost(self, n_people: int, n_features: int, n_representations: int) -> float:
        """Return the number of mixtures: each is a kernel ridge regression."""
        return float(len(simplex_weights(n_representations)))


def _mean(kernels: Sequence[FloatArray], weights: FloatArray) -> FloatArray:
    mixed = np.zeros(kernels[0].shape)
    for kernel, weight in zip(kernels, weights, strict=True):
        if weight:
            mixed += weight * kernel
    return mixed
