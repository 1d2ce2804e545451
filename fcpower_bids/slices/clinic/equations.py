"""Intervals that hold (conformal prediction), and whether two scans are of one person: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from fcpower_bids.core.arrays import FloatArray


@dataclass(frozen=True)
class Radius:
    """Half the width of an interval."""

    value: float  # in the unit of the target
    level: float  # the coverage that it claims: the nominal one, or less where the groups are too few for that
    groups: int  # groups that it comes from


def group_radius(residuals: ArrayLike, groups: ArrayLike, level: float = 0.9) -> Radius:
    """Conformal radius of one member of a further group, groups weighing equally; (n,) each. Raises ValueError."""
    size, labels, counts = _by_group(residuals, groups, level)
    attainable = len(counts) / (len(counts) + 1)
    mass = 1 / ((len(counts) + 1) * counts[labels])
    claimed = min(level, attainable)
    return Radius(_weighted_quantile(np.abs(size), mass, claimed), claimed, len(counts))


def site_radius(residuals: ArrayLike, groups: ArrayLike, level: float = 0.9) -> Radius:
    """Quantile of sizes, groups weighing equally, times t / z by Satterthwaite (1946): shifts by a normal law."""
    values, labels, counts = _by_group(residuals, groups, level)
    quantile = _weighted_quantile(np.abs(values), 1 / (len(counts) * counts[labels]), level)
    upper = (1 + level) / 2
    factor = special.stdtrit(_degrees_of_freedom(values, labels, counts), upper) / special.ndtri(upper)
    return Radius(float(quantile * factor), level, len(counts))


def _by_group(residuals: ArrayLike, groups: ArrayLike, level: float) -> tuple[FloatArray, NDArray, NDArray]:
    """Residuals, the number of the group of each, and the sizes of the groups."""
    values = np.asarray(residuals, dtype=float)
    if not values.size or not 0 < level < 1:
        raise ValueError("An interval needs a residual, and a level between 0 and 1.")
    _, labels, counts = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    return values, labels, counts


def _weighted_quantile(size: FloatArray, mass: FloatArray, level: float) -> float:
    """The smallest size up to which there is as much mass."""
    order = np.argsort(size, kind="stable")
    # rounding of the sum must not push the quantile to the next residual
    place = int(np.searchsorted(np.cumsum(mass[order]), level * (1 - 1e-12)))
    return float(size[order][min(place, len(size) - 1)])


def _degrees_of_freedom(values: FloatArray, labels: NDArray, counts: NDArray) -> float:
    """Of the mean square of a residual: S where all of it is between S groups, towards n where it is within."""
    means = np.bincount(labels, values) / counts
    spare = len(values) - len(counts)
    between = float(np.mean(means**2))
    within = float(np.sum((values - means[labels]) ** 2)) / max(spare, 1) * float(np.mean(1 - 1 / counts))
    noise = between**2 / len(counts) + within**2 / max(spare, 1)
    return (between + within) ** 2 / noise if noise > 0 else float(len(counts))


def cautious_radius(residuals: ArrayLike, groups: ArrayLike, level: float = 0.9, fewest: int = 5) -> Radius:
    """Radius that covers ``level`` of the people at ``level`` (or S / (S + 1)) of further groups; NaN without two."""
    size, labels = np.abs(np.asarray(residuals, dtype=float)), np.asarray(groups)
    each = [np.quantile(size[labels == one], level, method="higher") for one in np.unique(labels)
            if np.sum(labels == one) >= fewest]  # fmt: skip
    if len(each) < 2:
        return Radius(float("nan"), float("nan"), len(each))
    return group_radius(each, np.arange(len(each)), level)


@dataclass(frozen=True)
class Radii:
    """Half the width of an interval, by the predicted value: Mondrian bins with an interval of their own each."""

    edges: tuple[float, ...]  # predicted values between the bins; none where there is one bin
    each: tuple[Radius, ...]  # one more than edges

    def at(self, predicted: ArrayLike) -> FloatArray:
        """Radius at predicted values (n,): array (n,)."""
        return np.array([one.value for one in self.each])[np.digitize(np.asarray(predicted, dtype=float), self.edges)]


PARTS, FEWEST_OF_PART = 3, 30
"""Bins of the predicted value, and residuals that each of them needs; with fewer there is one bin."""


def radii_by_value(
    residuals: ArrayLike,
    groups: ArrayLike,
    predicted: ArrayLike,
    level: float = 0.9,
    radius: Callable[[FloatArray, NDArray, float], Radius] = group_radius,
) -> Radii:
    """Radii by thirds of the predicted value, so that the coverage holds in each third; all (n,)."""
    values, labels, at = np.asarray(residuals, dtype=float), np.asarray(groups), np.asarray(predicted, dtype=float)
    edges = tuple(float(each) for each in np.quantile(at, np.arange(1, PARTS) / PARTS))
    part = np.digitize(at, edges)
    rows = [part == one for one in range(PARTS)]
    if min(int(own.sum()) for own in rows) < FEWEST_OF_PART or min(len(np.unique(labels[own])) for own in rows) < 2:
        return Radii((), (radius(values, labels, level),))
    return Radii(edges, tuple(radius(values[own], labels[own], level) for own in rows))


def held_inside(
    residuals: ArrayLike,
    groups: ArrayLike,
    predicted: ArrayLike,
    level: float = 0.9,
    members: ArrayLike | None = None,
    radius: Callable[[FloatArray, NDArray, float], Radius] = group_radius,
) -> FloatArray:
    """Whether each value (n,) lies in the interval of all other groups: 1 or 0, NaN without another group."""
    values, labels, at = np.asarray(residuals, dtype=float), np.asarray(groups), np.asarray(predicted, dtype=float)
    weighed, inside = labels if members is None else np.asarray(members), np.full(len(values), np.nan)
    for one in np.unique(labels):
        own = labels == one
        if not own.all():
            limit = radii_by_value(values[~own], weighed[~own], at[~own], level, radius).at(at[own])
            inside[own] = np.abs(values[own]) <= limit
    return inside


def by_third(inside: ArrayLike, values: ArrayLike) -> list[float]:
    """Share inside in the lowest, middle and highest third of values; NaN for a third without members."""
    held, at = np.asarray(inside, dtype=float), np.asarray(values, dtype=float)
    part = np.digitize(at, np.quantile(at, np.arange(1, PARTS) / PARTS))
    return [float(np.nanmean(held[part == one])) if (part == one).any() else np.nan for one in range(PARTS)]


@dataclass(frozen=True)
class Regression:
    """Predicted values as a line of the known ones: predictions are drawn to the mean."""

    # slope, intercept: of the expected prediction at a known value
    slope: float
    intercept: float
    sd: float  # standard deviation of predictions around the line
    n: int
    # mean, spread: mean of the known values, and the sum of their squared distances from it
    mean: float
    spread: float

    def gap(self, predicted: float, known: float) -> tuple[float, float]:
        """Predicted minus the expected prediction of a person of that known value, and its standard error."""
        error = self.sd * np.sqrt(1 + 1 / self.n + (known - self.mean) ** 2 / self.spread)
        return predicted - (self.intercept + self.slope * known), float(error)


def regress_on_known(predicted: ArrayLike, known: ArrayLike) -> Regression | None:
    """Line of predicted on known values (n,); None where these do not vary or are fewer than three."""
    y, x = np.asarray(predicted, dtype=float), np.asarray(known, dtype=float)
    if len(x) < 3 or np.ptp(x) == 0:
        return None
    from scipy import stats  # takes half a second

    line = stats.linregress(x, y)
    rest = y - line.intercept - line.slope * x
    sd = float(np.sqrt(np.sum(rest**2) / (len(x) - 2)))
    return Regression(
        float(line.slope), float(line.intercept), sd, len(x), float(x.mean()), float(np.sum((x - x.mean()) ** 2))
    )


FEWEST_SLOPES = 20
"""Scans below which a reference has a mean and no slopes."""


def normal_at(values: ArrayLike, about: FloatArray) -> tuple[float, float, FloatArray]:
    """Mean at covariates (n, k) of 0, SD around the plane, and slopes (k,) of values (n,), by least squares."""
    y = np.asarray(values, dtype=float)
    x = about if len(y) >= FEWEST_SLOPES else np.zeros_like(about)
    centred = x - x.mean(axis=0)
    slopes, _, rank, _ = np.linalg.lstsq(centred, y - y.mean(), rcond=1e-9)
    rest = y - y.mean() - centred @ slopes
    spare = len(y) - 1 - int(rank)
    sd = float(np.sqrt(np.sum(rest**2) / spare)) if spare > 0 else np.nan
    return float(y.mean() - x.mean(axis=0) @ slopes), sd, slopes


def local_radii(
    residuals: ArrayLike, groups: ArrayLike, people: Iterable[int], level: float = 0.9, draws: int = 20
) -> dict[int, Radius]:
    """Radius after as many local people have moved the predictions, by their number; the median of several draws."""
    found = {}
    for k in people:
        drawn = [recalibrated_residuals(residuals, groups, k, seed) for seed in range(draws)]
        if len(np.unique(drawn[0][1])) > 1:
            radii = [site_radius(*each, level) for each in drawn]
            found[k] = Radius(float(np.median([each.value for each in radii])), level, radii[0].groups)
    return found


@dataclass(frozen=True)
class Layout:
    """Residuals of groups in three numbers each: how many, their mean, and their standard deviation, shapes (S,)."""

    counts: FloatArray
    means: FloatArray
    sds: FloatArray

    @classmethod
    def of(cls, residuals: ArrayLike, groups: ArrayLike) -> Layout:
        """Sum up residuals (n,) by groups (n,)."""
        values = np.asarray(residuals, dtype=float)
        _, place, counts = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
        means = np.bincount(place, values) / counts
        squares = np.bincount(place, (values - means[place]) ** 2)
        return cls(counts.astype(float), means, np.sqrt(squares / np.maximum(counts - 1, 1)))


def shrunken_offset(local: ArrayLike, known: Layout) -> float:
    """Offset of a new group from residuals (k,) of its members: the mean, shrunk by variances between and within."""
    own, counts = np.asarray(local, dtype=float), known.counts
    if len(counts) < 2 or counts.max() < 2:
        raise ValueError("Offsets are shrunk by what is known of at least two groups with several members.")
    within = float(np.sum((counts - 1) * known.sds**2) / np.sum(counts - 1))
    # Offsets are measured from zero, which is where they are shrunk to.
    between = max(0.0, float(np.mean(known.means**2 - within / counts)))
    return float(own.mean() * len(own) * between / (len(own) * between + within)) if between > 0 else 0.0


def recalibrated_residuals(
    residuals: ArrayLike, groups: ArrayLike, k: int, seed: int = 0
) -> tuple[FloatArray, NDArray]:
    """Residuals (m,) of every held-out group after k of its own members, who are left out, recalibrated it."""
    values, labels = np.asarray(residuals, dtype=float), np.asarray(groups)
    rng = np.random.default_rng(seed)
    left, whose = [], []
    names = np.unique(labels)
    for one in names:
        members = rng.permutation(np.flatnonzero(labels == one))
        others = labels != one
        if len(members) < k + 2 or len(np.unique(labels[others])) < 2:
            continue
        offset = shrunken_offset(values[members[:k]], Layout.of(values[others], labels[others]))
        left.append(values[members[k:]] - offset)
        whose.append(labels[members[k:]])
    return (np.concatenate(left), np.concatenate(whose)) if left else (np.zeros(0), labels[:0])


FEWEST = 10
"""Pairs of either kind below which no density is estimated."""


@dataclass(frozen=True)
class Verification:
    """Meaning of a score."""

    # share of pairs of different people with at least this score: how often two people pass for one here
    false_match: float
    false_non_match: float  # share of pairs of one person with at most this score
    # density of the score among pairs of one person over that among pairs of different people, never beyond what as
    # many pairs can show; NaN with fewer than `FEWEST` pairs of either kind
    likelihood_ratio: float


def verify(score: float, same: ArrayLike, different: ArrayLike) -> Verification:
    """Compare a score with those of pairs of one person and of two; rates count the pair, ratios are kept finite."""
    from scipy import stats  # takes half a second

    own, others = np.asarray(same, dtype=float), np.asarray(different, dtype=float)
    ratio = float("nan")
    if min(len(own), len(others)) >= FEWEST and np.ptp(own) > 0 and np.ptp(others) > 0:
        one, other = (float(stats.gaussian_kde(each)(score)[0]) for each in (own, others))
        tiny = np.finfo(float).tiny
        ratio = float(np.clip((one + tiny) / (other + tiny), 1 / (1 + len(own)), 1 + len(others)))
    return Verification(
        (1 + int((others >= score).sum())) / (1 + len(others)), (1 + int((own <= score).sum())) / (1 + len(own)), ratio
    )


def error_rates(same: ArrayLike, different: ArrayLike, rates: ArrayLike = (0.001, 0.01, 0.05)) -> Iterator[FloatArray]:
    """Yield threshold, false match and false non-match rate: at rates that the pairs allow, then where both meet."""
    own, others = np.sort(np.asarray(same, dtype=float)), np.sort(np.asarray(different, dtype=float))
    if not len(own) or not len(others):
        return
    thresholds = np.unique(np.concatenate([own, others]))
    matches = 1 - np.searchsorted(others, thresholds, side="left") / len(others)
    misses = np.searchsorted(own, thresholds, side="left") / len(own)
    for rate in np.asarray(rates, dtype=float):
        if rate * len(others) >= 1:
            place = int(np.argmax(matches <= rate)) if (matches <= rate).any() else -1
            yield np.array([thresholds[place], matches[place], misses[place]])
    place = int(np.argmin(np.abs(matches - misses)))
    yield np.array([thresholds[place], matches[place], misses[place]])
