"""Ridge regression on the features as they are."""

from __future__ import annotations

from typing import ClassVar

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.regression.kernels import FeatureSource, centre_kernel, linear_kernel
from fcpower_bids.core.regression.presets import PredictionPreset
from fcpower_bids.core.regression.ridge import Solver
from fcpower_bids.predictors.contract import Described, Predictor, regress_on_similarity


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
