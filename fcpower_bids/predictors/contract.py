"""What every predictor is: a title, and a regression on the features of people."""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.core.regression.kernels import FeatureSource
from fcpower_bids.core.regression.presets import PredictionPreset
from fcpower_bids.core.regression.ridge import Solver

FloatArray = NDArray[np.float64]


class Described(Protocol):
    """People as a predictor is given them, by one representation."""

    @property
    def kernel(self) -> str:
        """``correlation``, or ``linear`` on z-scored features."""

    def features(self) -> FeatureSource:
        """Features (n, d)."""

    def similarity(self) -> FloatArray:
        """Pearson correlation between the features of all pairs, shape (n, n)."""


class Predictor:
    """A way to predict from features.

    Attributes
    ----------
    title : str
        Its name on the pages, after that of the representation.
    summary : str
        One sentence for ``--help`` and the sidecars.
    """

    title: ClassVar[str]
    summary: ClassVar[str]

    def solver(self, people: Described, preset: PredictionPreset) -> Solver:
        """Return the regression on some features for the protocol of a preset."""
        raise TypeError(f"{type(self).__name__} has no regression.")
