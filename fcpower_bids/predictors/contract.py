"""Contract of predictors: a title, and a regression on the features of people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.regression.dense import trace_of
from fcpower_bids.core.regression.kernels import FeatureSource
from fcpower_bids.core.regression.penalties import regress_on_kernel, search_penalties
from fcpower_bids.core.regression.presets import PredictionPreset
from fcpower_bids.core.regression.ridge import FoldKernels, FoldSolver, Solver, SubsetSolver
from fcpower_bids.ondisk import RowsOnDisk


class Described(Protocol):
    """People as a predictor is given them, by one representation."""

    @property
    def kernel(self) -> str:
        """``correlation``, or ``linear`` on z-scored features."""

    @property
    def fitted(self) -> Callable[[Rows], FeatureSource] | None:
        """From training people to everyone's features as fitted to these; None where features need no fit."""

    def features(self) -> FeatureSource:
        """Features (n, d) that need no fit."""

    def similarity(self) -> FloatArray:
        """Pearson correlation between the features of all pairs, shape (n, n)."""

    def similarity_in_panels(self) -> FloatArray | RowsOnDisk:
        """The same, on disk where kernels of so many people do not fit in memory."""


class Predictor:
    """A way to predict from features."""

    title: ClassVar[str]  # its name on the pages, after that of the representation
    summary: ClassVar[str]  # one sentence for ``--help`` and the sidecars
    # whether it takes all representations together (`mix`), instead of one after the other (`solver`)
    joint: ClassVar[bool] = False

    def mix(self, people: Sequence[Described], preset: PredictionPreset) -> Solver:
        """Return the regression on several representations of the same people."""
        raise TypeError(f"{type(self).__name__} takes one representation at a time.")

    def permuted_cost(self, n_people: int, n_features: int, n_representations: int) -> float:
        """Return what one permuted target costs, that of kernel ridge on as many people being 1."""
        return 1.0

    def solver(self, people: Described, preset: PredictionPreset) -> Solver:
        """Return the regression on some features for the protocol of a preset."""
        raise TypeError(f"{type(self).__name__} has no regression.")


def regress_on_similarity(
    people: Described,
    kernel: Callable[[FeatureSource], FloatArray],
    whole: FloatArray | RowsOnDisk,
    preset: PredictionPreset,
) -> Solver:
    """Return kernel ridge regression, on the kernel of everyone or on those of features that are fitted in the folds.

    `kernel`: from features (n, d) to the kernel (n, n). `whole` (n, n): the kernel of features that need no fit; its
    mean diagonal is the unit of the penalties.
    """
    fitted = people.fitted
    if fitted is None:
        return regress_on_kernel(whole, preset)
    kernels = FoldKernels(lambda train: kernel(fitted(train)))

    def make(train: Rows, penalties: FloatArray) -> Solver:
        return SubsetSolver(kernels(train), penalties, preset.intercept)

    return search_penalties(lambda penalties: FoldSolver(make, penalties), trace_of(whole) / len(whole), preset)
