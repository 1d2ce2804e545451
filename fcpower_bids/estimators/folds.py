"""The folds of the group level as a scikit-learn splitter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metadata_routing import _MetadataRequester
from sklearn.utils.validation import _num_samples

from fcpower_bids.core.arrays import Rows
from fcpower_bids.core.regression.folds import deal_families, family_numbers


class FamilyFolds(_MetadataRequester):
    """Random folds of nearly equal size that never split a family; those of the group level with the same seed.

    Parameters
    ----------
    n_splits : int
        Folds.
    n_repeats : int
        How often everyone is dealt into folds anew.
    seed : int
        ``--random-seed`` of the group level.

    Notes
    -----
    Rows must be in the order of the group level, that of the names of the people. Without groups everyone is a family
    of their own. Source: the paper, Appendix "Evaluation protocols" (20 x 10 folds).
    """

    __metadata_request__split = {"groups": True}  # noqa: RUF012

    def __init__(self, n_splits: int = 10, n_repeats: int = 1, seed: int = 0) -> None:
        self.n_splits = n_splits
        self.n_repeats = n_repeats
        self.seed = seed

    def __repr__(self) -> str:
        return f"FamilyFolds(n_splits={self.n_splits}, n_repeats={self.n_repeats}, seed={self.seed})"

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of splits, repeats included."""
        return self.n_splits * self.n_repeats

    def split(self, X: Any, y: Any = None, groups: ArrayLike | None = None) -> Iterator[tuple[Rows, Rows]]:
        """Yield training and test rows of n people, whose families `groups` (n,) are.

        Raises
        ------
        ValueError
            If a family is larger than a fold, or a person has none.
        """
        family = family_numbers(groups, _num_samples(X))
        for repeat in range(self.n_repeats):
            labels = deal_families(family, self.n_splits, np.random.default_rng((self.seed, repeat)))
            for fold in range(self.n_splits):
                yield np.flatnonzero(labels != fold), np.flatnonzero(labels == fold)
