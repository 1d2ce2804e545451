"""Kernel ridge regression on the correlation between people's features: the paper's."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.kernels import correlation_kernel
from fcpower_bids.core.regression.penalties import search_penalties
from fcpower_bids.core.regression.presets import PredictionPreset
from fcpower_bids.core.regression.probe import LinearProbe
from fcpower_bids.core.regression.ridge import FoldSolver, Solver
from fcpower_bids.predictors.contract import Described, Predictor, regress_on_similarity


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
            return regress_on_similarity(people, correlation_kernel, people.similarity(), preset)
        features = np.asarray(people.features()[:])
        scale, fitted = float((np.ptp(features, axis=0) > 0).sum()), people.fitted
        if fitted is None:
            probe = LinearProbe(features, [1.0], preset.intercept)
            return search_penalties(probe.with_penalties, scale, preset)

        def make(train: Rows, penalties: FloatArray) -> Solver:
            return LinearProbe(fitted(train)[:], penalties, preset.intercept)

        return search_penalties(lambda penalties: FoldSolver(make, penalties), scale, preset)
