"""Permutation tests for subjects that are not all exchangeable: families are kept whole or shuffled within."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.errors import Unfit

Rows = NDArray[np.int64]

SCHEMES = ("free", "within", "whole")


def permutation_p_value(observed: float, null: ArrayLike, alternative: str = "greater") -> float:
    """(1 + number of permuted statistics as extreme) / (1 + number of permutations), never zero (Phipson & Smyth 2010).

    `null` (B,): the statistic under permutation, the observed one not among them. `alternative`: one of "greater",
    "less", "two-sided"; "two-sided" compares absolute values, so the statistic must be 0 in the mean under the null.
    Raises ValueError: a statistic is NaN, or the alternative is unknown.
    """
    permuted = np.asarray(null, dtype=np.float64)
    if np.isnan(observed) or np.isnan(permuted).any():
        raise ValueError("A statistic of the permutation test is not a number; leave out folds without a score first.")
    if alternative not in ("greater", "less", "two-sided"):
        raise ValueError(f"There is no alternative '{alternative}'. Choose from: greater, less, two-sided.")
    if alternative == "two-sided":
        observed, permuted = abs(observed), np.abs(permuted)
    sign = -1 if alternative == "less" else 1
    # A permutation that only reorders a sum reproduces the observed value up to rounding and counts as extreme.
    extreme = sign * permuted >= sign * observed - 1e-12 * abs(observed)
    return float((1 + np.count_nonzero(extreme)) / (1 + len(permuted)))


class PooledNull:
    """Statistics of all edges in all permutations, as one reference that the number of permutations does not bound.

    Their mean number above a value is the expected number of false discoveries there, whatever the blocks that are
    exchanged (Tusher et al. 2001, doi:10.1073/pnas.091062498; Storey and Tibshirani 2003, doi:10.1073/pnas.1530509100).
    `largest`: size above which all values are in one step.
    """

    STEPS = 1 << 16

    def __init__(self, largest: float) -> None:
        self._per_unit = self.STEPS / largest
        self._counts = np.zeros(self.STEPS + 1)

    def add(self, values: FloatArray) -> None:
        """Count statistics of any shape by their size."""
        self._counts += np.bincount(self._steps(values), minlength=self.STEPS + 1)

    def p(self, values: FloatArray) -> FloatArray:
        """P of each size, all of its own step counted as larger; NaN stays NaN, as does all without permutations."""
        known = np.isfinite(values)
        p, as_large = np.full(values.shape, np.nan), np.cumsum(self._counts[::-1])[::-1]
        if as_large[0]:
            p[known] = (1 + as_large[self._steps(values[known])]) / (1 + as_large[0])
        return p

    def _steps(self, values: FloatArray) -> NDArray[np.intp]:
        return np.minimum(np.abs(values).ravel() * self._per_unit, self.STEPS).astype(np.intp)


def false_discovery_rates(p: FloatArray) -> FloatArray:
    """Benjamini and Hochberg 1995 over the p that are known, shape (E,); NaN stays NaN."""
    q, known = np.full(p.shape, np.nan), np.isfinite(p)
    if known.any():
        q[known] = stats.false_discovery_control(p[known])
    return q


def permutations(
    n: int, n_permutations: int, seed: int, families: ArrayLike | None = None, scheme: str = "free"
) -> Iterator[Rows]:
    """Draw orders of the subjects that are as likely as the true one under the null (Winkler et al. 2015).

    `n`: subjects. `n_permutations`: orders to draw. `families` (n,): family of each subject: the exchangeability
    blocks. `scheme`: one of "free", "within", "whole"; exchange everyone; members within each family; or families as
    wholes with families of the same size, keeping the order of their members. Yields (n,): `values[order]` are the
    permuted values. Raises ValueError: families are missing or do not fit, the scheme is unknown, or the families allow
    no exchange.
    """
    blocks = _families(n, families, scheme)
    return _draw_permutations(n, n_permutations, np.random.default_rng(seed), blocks, scheme)


def _draw_permutations(
    n: int, n_permutations: int, rng: np.random.Generator, blocks: list[Rows], scheme: str
) -> Iterator[Rows]:
    for _ in range(n_permutations):
        order = np.arange(n)
        for block in blocks:
            # Rows are families of one size ("whole") or the members of one family: both are shuffled along axis 0.
            order[block] = rng.permutation(block, axis=0)
        yield order


def _families(n: int, families: ArrayLike | None, scheme: str) -> list[Rows]:
    """Return arrays of subjects whose first axis may be permuted."""
    if scheme not in SCHEMES:
        raise ValueError(f"There is no permutation scheme '{scheme}'. Choose from: {', '.join(SCHEMES)}.")
    if scheme == "free":
        return [np.arange(n)]
    members = _members(n, families)
    if scheme == "whole":
        sizes = sorted({len(each) for each in members})
        members = [np.stack([each for each in members if len(each) == size]) for size in sizes]
    if all(len(block) < 2 for block in members):
        raise Unfit(f"The families allow no exchange under the scheme '{scheme}'.")
    return members


def _members(n: int, families: ArrayLike | None) -> list[Rows]:
    if families is None or np.shape(families) != (n,):
        raise ValueError(f"Exchangeability blocks need the family of each of the {n} subjects.")
    _, numbers = np.unique(np.asarray(families).astype(str), return_inverse=True)
    return [np.flatnonzero(numbers == number) for number in range(numbers.max() + 1)]


def sign_flips(n: int, n_flips: int, seed: int, families: ArrayLike | None = None) -> Iterator[FloatArray]:
    """Draw signs for paired differences that are symmetric around zero under the null.

    `n`: subjects. `n_flips`: draws. `families` (n,): members of a family are flipped together. Yields (n,): +1 or -1
    each. Raises ValueError: the families do not fit.
    """
    members = _members(n, np.arange(n) if families is None else families)
    numbers = np.empty(n, dtype=np.int64)
    for number, each in enumerate(members):
        numbers[each] = number
    rng = np.random.default_rng(seed)
    return (rng.choice([-1.0, 1.0], len(members))[numbers] for _ in range(n_flips))
