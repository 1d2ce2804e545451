"""Kernel ridge regression that sees pairs of edges."""

from __future__ import annotations

from typing import ClassVar

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.regression.kernels import FeatureSource, correlation_kernel
from fcpower_bids.core.regression.presets import PredictionPreset
from fcpower_bids.core.regression.ridge import Solver
from fcpower_bids.predictors.contract import Described, Predictor, regress_on_similarity


class Quadratic(Predictor):
    """Ridge regression on products of two edges, by the polynomial kernel of degree two."""

    title: ClassVar[str] = "quadratic kernel ridge"
    summary: ClassVar[str] = "Kernel ridge regression on (1 + r)^2 of the correlation r between people."

    def solver(self, people: Described, preset: PredictionPreset) -> Solver:
        """Return the regression, on features as they are or as fitted in the folds."""

        def kernel(features: FeatureSource) -> FloatArray:
            return (1 + correlation_kernel(features)) ** 2

        return regress_on_similarity(people, kernel, (1 + people.similarity()) ** 2, preset)
