"""Connectome-based predictive modelling."""

from __future__ import annotations

from typing import ClassVar

from fcpower_bids.core.regression.presets import PredictionPreset
from fcpower_bids.core.regression.ridge import FoldSolver, Solver
from fcpower_bids.core.regression.solvers.cpm import THRESHOLD, EdgeSums
from fcpower_bids.predictors.contract import Described, Predictor


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
