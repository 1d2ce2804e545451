"""The Nystroem approximation of kernel ridge regression, for cohorts whose whole kernel is too large."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fcpower_bids.core.regression.folds import Rows
from fcpower_bids.core.regression.kernels import correlation_columns
from fcpower_bids.core.regression.penalties import search_penalties
from fcpower_bids.core.regression.presets import PredictionPreset
from fcpower_bids.core.regression.ridge import FoldKernels, FoldSolver, Solver
from fcpower_bids.core.regression.solvers.nystroem import Landmarks, NystroemSolver
from fcpower_bids.predictors.contract import Described, FloatArray, Predictor


class Nystroem(Predictor):
    """Ridge regression on people's correlations with landmark people, whitened by those among the landmarks."""

    title: ClassVar[str] = "Nystroem"
    summary: ClassVar[str] = (
        "The Nystroem approximation of kernel ridge regression on the Pearson correlation between people's features: "
        "everybody is compared with some training people of each fold, the landmarks, instead of all."
    )

    def solver(self, people: Described, preset: PredictionPreset) -> Solver:
        """Return the regression; the diagonal of the exact kernel, 1, is the unit of the penalties."""
        n, fitted = people.features().shape[0], people.fitted
        if fitted is None:
            landmarks = Landmarks(people.similarity_with, n, preset.landmarks, preset.seed, people.rounding)
            return search_penalties(
                lambda penalties: NystroemSolver(landmarks, penalties, preset.intercept), 1.0, preset
            )
        draw = Landmarks(people.similarity_with, n, preset.landmarks, preset.seed)
        kept = FoldKernels(lambda train: correlation_columns(fitted(train), np.sort(draw.choose(train))))

        def make(train: Rows, penalties: FloatArray) -> Solver:
            own = Landmarks(lambda _: kept(train), n, preset.landmarks, preset.seed)
            return NystroemSolver(own, penalties, preset.intercept)

        return search_penalties(lambda penalties: FoldSolver(make, penalties), 1.0, preset)
