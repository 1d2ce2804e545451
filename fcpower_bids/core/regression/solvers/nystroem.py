"""Kernel ridge regression from the correlations with some people, the landmarks: a named approximation, never silent.

Source: Williams & Seeger 2001, "Using the Nystroem method to speed up kernel machines"; the features are those of
scikit-learn's ``Nystroem``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from fcpower_bids.core.regression.folds import Fold, Rows
from fcpower_bids.core.regression.probe import solve_path
from fcpower_bids.core.regression.ridge import Sides, Split, check_penalties

FloatArray = NDArray[np.float64]

STRIP = 4096
"""People whose features are made at a time."""

NO_PENALTY = "Penalty 0 was dropped: without one the features of the landmarks do not determine the weights."


class Landmarks:
    """The people whom everybody is compared with, drawn in every fold from its training people, and the features.

    Everyone is put into one random order; the landmarks of a fold are the first of its training people in it. Each
    fold so has a random sample of its own training people, and all folds together need hardly more columns of the
    kernel than one of them: these are computed once.

    With K the kernel between everyone (n) and the landmarks (m), and ``U diag(s) U'`` its block of the landmarks, the
    features are ``K U diag(s)^(-1/2)``, without the eigenvalues that are rounding.

    Parameters
    ----------
    compute : callable
        From p people to the columns of the kernel, shape (n, p).
    n : int
        People.
    number : int
        Landmarks of a fold, all of its training people where these are fewer.
    seed : int
        Of the random order.
    rounding : float
        Error of an entry of the columns, beyond that of double precision.
    """

    def __init__(
        self, compute: Callable[[Rows], FloatArray], n: int, number: int, seed: int = 0, rounding: float = 0.0
    ) -> None:
        if number < 1:
            raise ValueError(f"There must be one landmark or more, not {number}.")
        self.compute: Callable[[Rows], FloatArray] | None = compute
        self.number, self.rounding = number, rounding
        self.order: Rows = np.random.default_rng(seed).permutation(n)
        self.people: Rows = np.empty(0, np.intp)
        self.columns: FloatArray = np.empty((n, 0))
        self._latest: tuple[bytes, FloatArray, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Others are sent the columns, and make features of them; they cannot compute further columns."""
        return self.__dict__ | {"compute": None, "_latest": None}

    def choose(self, train: Rows) -> Rows:
        """Return the landmarks of a fold."""
        among = np.zeros(self.order.size, dtype=bool)
        among[train] = True
        return self.order[among[self.order]][: self.number]

    def cover(self, folds: Sequence[Fold]) -> None:
        """Compute the columns of all people who are landmarks in one of these folds, in one pass over the features."""
        wanted = np.unique(np.concatenate([self.choose(fold.train) for fold in folds]))
        self._add(np.setdiff1d(wanted, self.people))

    def _add(self, people: Rows) -> None:
        if not people.size:
            return
        if self.compute is None:
            raise RuntimeError("Landmarks are computed before the folds are shared.")
        columns = self.compute(people)
        self.columns = np.hstack([self.columns, columns]) if self.people.size else columns
        self.people = np.concatenate([self.people, people])

    def features(self, train: Rows) -> tuple[FloatArray, int]:
        """Features of everyone (n, m) by the landmarks of a fold, and the eigenvalues that were clipped.

        Those of the latest fold are kept, for its targets that are missing in other rows and for further penalties.
        """
        chosen = self.choose(train)
        key = chosen.tobytes()
        if self._latest is None or self._latest[0] != key:
            self._latest = None  # two would be in memory
            self._add(np.setdiff1d(chosen, self.people))
            self._latest = (key, *self._make(chosen))
        return self._latest[1:]

    def _make(self, chosen: Rows) -> tuple[FloatArray, int]:
        place = np.empty(self.order.size, np.intp)
        place[self.people] = np.arange(self.people.size)
        own = place[chosen]
        scales, basis = linalg.eigh(self.columns[np.ix_(chosen, own)], driver="evd", check_finite=False)
        kept = scales > clip_below(scales[-1], chosen.size, self.rounding)
        basis = basis[:, kept] / np.sqrt(scales[kept])
        features = np.empty((self.order.size, basis.shape[1]))
        for start in range(0, len(features), STRIP):
            rows = slice(start, start + STRIP)
            features[rows] = self.columns[rows][:, own] @ basis
        return features, int((~kept).sum())


def clip_below(largest: float, number: int, rounding: float = 0.0) -> float:
    """Eigenvalue of a kernel of some landmarks up to which it is nothing but rounding.

    Parameters
    ----------
    largest : float
        The largest eigenvalue.
    number : int
        Landmarks.
    rounding : float
        Error of an entry beyond that of double precision. Independent errors have eigenvalues up to ``2 sqrt(number)``
        times as large; the limit is five times that.
    """
    return max(number * np.finfo(float).eps * largest, 10 * np.sqrt(number) * rounding)


class NystroemSolver:
    """Ridge regression on the features of `Landmarks`, to be given to `core.nested.nested_cv`.

    The inner folds share the landmarks of their outer training people, which know no target and nobody who is tested.

    Parameters
    ----------
    landmarks : Landmarks
    penalties : array_like
        None negative; zero is dropped, with a note.
    intercept : bool
        Whether the regression has an unpenalised intercept.
    """

    def __init__(self, landmarks: Landmarks, penalties: ArrayLike, intercept: bool = True) -> None:
        grid = check_penalties(penalties)
        self.landmarks, self.intercept = landmarks, intercept
        self.penalties: FloatArray = check_penalties(grid[grid > 0])
        self.notes: tuple[str, ...] = (NO_PENALTY,) if 0 in grid else ()

    def prepare(self, targets: FloatArray) -> Sides:
        """Nothing here depends on the targets alone."""
        return Sides(targets)

    def predict(self, split: Split, outer: Sides, inner: Sequence[Sides]) -> tuple[FloatArray, list[FloatArray]]:
        """Predict the test rows and each inner validation set: (n_penalties, rows, m)."""
        features, _ = self.landmarks.features(split.train if split.fold_train is None else split.fold_train)
        parts = [_Moments(features[rows]) for rows in split.inner]
        whole = _Moments.join(parts)
        test = self._path(whole, features, split.train, outer, split.test)
        validation = []
        for rows, part, sides in zip(split.inner, parts, inner, strict=True):
            rest = np.setdiff1d(split.train, rows, assume_unique=True)
            validation.append(self._path(whole.without(part), features, rest, sides, rows))
        return test, validation

    def _path(self, own: _Moments, features: FloatArray, train: Rows, sides: Sides, at: Rows) -> FloatArray:
        """Predictions (n_penalties, rows, m) of a fit to some rows, whose moments are known."""
        gram, values = own.second, sides.values[train]
        tested, level = features[at], np.zeros(values.shape[1])
        if self.intercept:
            centre, level = own.first / own.number, values.mean(axis=0)
            gram, tested, values = gram - np.outer(own.first, centre), tested - centre, values - level
        # The values are centred, so the features need not be.
        right = sum_products(features, train, values)
        return solve_path(gram, tested, right, self.penalties) + level


class _Moments:
    """Sums over the rows of some features: of the rows, and of their outer products."""

    def __init__(self, features: FloatArray) -> None:
        self.number, self.first, self.second = len(features), features.sum(axis=0), features.T @ features

    @classmethod
    def join(cls, parts: Sequence[_Moments]) -> _Moments:
        """Sums over all parts."""
        return cls._of(*(sum(getattr(each, name) for each in parts) for name in ("number", "first", "second")))

    def without(self, part: _Moments) -> _Moments:
        """Sums over the other rows."""
        return self._of(self.number - part.number, self.first - part.first, self.second - part.second)

    @classmethod
    def _of(cls, number: Any, first: Any, second: Any) -> _Moments:
        one = cls.__new__(cls)
        one.number, one.first, one.second = number, first, second
        return one


def sum_products(features: FloatArray, rows: Rows, values: FloatArray) -> FloatArray:
    """Return features' values over some rows, shape (m, n_targets), a few rows at a time."""
    products = np.zeros((features.shape[1], values.shape[1]))
    for start in range(0, rows.size, STRIP):
        part = slice(start, start + STRIP)
        products += features[rows[part]].T @ values[part]
    return products


def kernel_error(kernel: FloatArray, features: FloatArray) -> float:
    """Frobenius norm of a kernel (p, p) less the inner products of features (p, m), over that of the kernel."""
    return float(linalg.norm(kernel - features @ features.T) / linalg.norm(kernel))
