"""Kernel ridge regression, multi-kernel and plain ridge regression, and connectome-based predictive modelling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.kernels import FeatureSource, centre_kernel, correlation_kernel, linear_kernel
from fcpower_bids.core.regression.penalties import regress_on_kernel, search_penalties
from fcpower_bids.core.regression.presets import PredictionPreset
from fcpower_bids.core.regression.probe import PRIMAL_WIDTH, LinearProbe
from fcpower_bids.core.regression.ridge import FoldKernels, FoldSolver, Solver, SubsetSolver
from fcpower_bids.core.regression.solvers.cpm import THRESHOLD, EdgeSums
from fcpower_bids.core.regression.solvers.mixture import KernelMixture, simplex_weights
from fcpower_bids.predictors.contract import Described, Predictor, regress_on_similarity
from fcpower_bids.resources import available_bytes


class KernelRidge(Predictor):
    """A factorised kernel, or a linear probe on z-scored features."""

    title: ClassVar[str] = "kernel ridge"
    summary: ClassVar[str] = (
        "Kernel ridge regression on the Pearson correlation between people's features (linear on z-scored features for "
        "embeddings and with --kernel linear)."
    )

    def solver(self, people: Described, preset: PredictionPreset) -> Solver:
        """Return the regression on the kernel that the representation asks for."""
        if people.kernel == "correlation":
            return regress_on_similarity(people, correlation_kernel, people.similarity_in_panels(), preset)
        features = np.asarray(people.features()[:])
        scale, fitted = float((np.ptp(features, axis=0) > 0).sum()), people.fitted
        if fitted is None:
            everyone, (n, width) = preset.fit_transforms_on == "cohort", features.shape
            probe = LinearProbe(features, [1.0], preset.intercept, everyone=everyone)
            if everyone and width > min(PRIMAL_WIDTH, n / 4):  # one kernel for all folds costs less
                return regress_on_kernel(probe.kernel(), preset)
            return search_penalties(probe.with_penalties, scale, preset)

        def make(train: Rows, penalties: FloatArray) -> Solver:
            return LinearProbe(fitted(train)[:], penalties, preset.intercept)

        return search_penalties(lambda penalties: FoldSolver(make, penalties), scale, preset)


class Ridge(Predictor):
    """Ridge regression with an unpenalised intercept, solved for one number per person: edges are far more."""

    title: ClassVar[str] = "ridge on edges"
    summary: ClassVar[str] = "Ridge regression on the features themselves, neither centred nor scaled per person."

    def solver(self, people: Described, preset: PredictionPreset) -> Solver:
        """Return the regression on the inner products between people.

        With an intercept the origin of the features is free: taken at their mean, the scale of the kernel is that of
        the differences between people.
        """

        def kernel(features: FeatureSource) -> FloatArray:
            products = linear_kernel(features)
            return centre_kernel(products) if preset.intercept else products

        return regress_on_similarity(people, kernel, kernel(people.features()), preset)


class ConnectomePredictiveModel(Predictor):
    """Shen et al. 2017 (doi:10.1038/nprot.2016.178), with both sums in one model."""

    title: ClassVar[str] = "CPM"
    summary: ClassVar[str] = (
        f"Connectome-based predictive modelling (Shen et al. 2017): edges with p < {THRESHOLD:g} in the training "
        "people, the positive and the negative ones summed, a linear model of both sums."
    )

    def solver(self, people: Described, preset: PredictionPreset) -> Solver:
        """Return the selection and the line, fitted anew in every fold."""
        fitted = people.fitted
        if fitted is None:
            return EdgeSums(people.features())
        return FoldSolver(lambda train, _: EdgeSums(fitted(train)), EdgeSums.penalties)

    def permuted_cost(self, n_people: int, n_features: int, n_representations: int) -> float:
        """Return how much longer it takes to read all edges of all people in every fold; measured, a fit to n and E."""
        return max(1.0, n_people * n_features / (1e5 + 2.5 * n_people**2))


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
