"""Signals that no head produces, judged from parcel means and a few figures per volume (docs/check.md)."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Volumes = NDArray[np.bool_]
COPY = 1e-4
"""Distance of two volumes, in units of the usual distance of neighbours, below which one is a copy of the other."""
NORMAL_SD = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
LEVELLED = 10.0
"""Level over the usual change between volumes from which on parcel series have a level, which signal hardly changes."""
HALVED = 0.5
"""A parcel with a level never falls below this share of it, nor rises above its inverse."""
OFF_LEVEL = 0.8
"""The same for the whole brain."""
STRAY_SDS = 50.0
"""Where there is no level: standard deviations beyond which a value of a parcel is stray."""
STRAY_VOXEL = 30.0
"""Level of the brain in which one voxel never changes by more than so many times."""
SETTLING = 5
"""Volumes at the start in which the whole brain may be brighter."""
FEW = 0.05
"""A fault in at most this share of the volumes is one of the volumes, in more one of the parcel."""
LONG_CONSTANT = (10, 0.1)
"""Volumes, and share of them, over which a parcel that keeps its value to the last bit is frozen."""
ABRUPT = 0.025
STEP_VOLUMES = 8
FEWEST_COMPARED = 20
LAGS = 10
CLIP_SDS = 5.0
STEP_TOLD = 0.05
"""Step of the level of the whole brain from which on a note is written."""
FOREIGN = 0.3
"""Correlation with the global signal and DVARS of the table below which the table is not of this recording."""
OFF_TABLE, SPIKES = 0.05, 0.1
"""Share by which the level of a volume may differ from that of the table, and the most volumes that are spikes."""
SURE = 0.9
"""Correlation with the table from which on no shift is looked for."""
PERIOD = 128.0
"""Seconds: fMRIPrep's cosines are slower."""
SCALED = 3.0
"""Times by which the level of the series and that of the table may differ: both are in the unit of the scanner."""


class StrayVolumes(NamedTuple):
    """Volumes (T,) and parcels (P,) that cannot be signal; no volume is in two kinds."""

    empty: Volumes  # (T,): one value in every parcel, zero as a rule
    copied: Volumes  # (T,): the same as an earlier volume
    stray: Volumes  # (T,): a voxel, a parcel or the whole brain is far away from all other volumes
    parcels: NDArray[np.bool_]  # (P,): constant for long, or without its level for long

    @property
    def volumes(self) -> Volumes:
        """Every volume that is one of these."""
        return self.empty | self.copied | self.stray


class Agreement(NamedTuple):
    """How a series fits the table that came with it; NaN where unknown."""

    global_signal: float  # correlation of the changes from volume to volume with those of the table
    dvars: float  # correlation of DVARS with that of the table
    lag: int  # volumes by which the table must be shifted to fit; 0 when it fits as it is, or nowhere
    level: float  # median of the series over that of the global signal of the table

    @property
    def is_foreign(self) -> bool:
        """Whether the table is of another recording, or shifted: all that can be compared disagrees."""
        return bool(self.lag or np.maximum(self.global_signal, self.dvars) < FOREIGN)


def find_stray(series: ArrayLike, farthest: ArrayLike | None = None) -> StrayVolumes:
    """Find volumes and parcels of a raw series (T, P) that cannot be signal; farthest (T,): change of any voxel."""
    series = np.asarray(series, dtype=np.float64)
    seen = np.isfinite(series).all(axis=0)
    known = series[:, seen]
    nothing = np.zeros(len(series), dtype=bool)
    parcels = np.zeros(series.shape[1], dtype=bool)
    if known.shape[1] < 2:
        return StrayVolumes(nothing, nothing, nothing, parcels)
    empty = np.ptp(known, axis=1) == 0
    copied = nothing.copy()
    copied[~empty] = find_copies(known[~empty])
    live = ~(empty | copied)
    stray = nothing.copy()
    if live.sum() > 2:
        far, lost = _find_far(known[live], None if farthest is None else np.asarray(farthest)[live], live)
        stray[live] = far
        parcels[seen] = lost | find_frozen(known[live])
    return StrayVolumes(empty, copied, stray, parcels)


def find_copies(series: ArrayLike) -> Volumes:
    """Which volumes of a series (T, P) are copies of an earlier one (T,): nearer than 1e-4 of the usual distance."""
    series = np.asarray(series, dtype=np.float64)
    copied = np.zeros(len(series), dtype=bool)
    steps = np.linalg.norm(np.diff(series, axis=0), axis=1)
    if not steps.any():
        copied[1:] = True
        return copied
    limit = COPY * float(np.median(steps[steps > 0]))
    direction = np.random.default_rng(0).standard_normal(series.shape[1])
    place = (series - series[0]) @ (direction / np.linalg.norm(direction))
    order = np.argsort(place, kind="stable")
    first = order[0]
    for volume, other in itertools.pairwise(order):
        if place[other] - place[volume] <= limit and np.linalg.norm(series[other] - series[volume]) <= limit:
            copied[max(first, other)] = True
            first = min(first, other)
        else:
            first = other
    return copied


def find_frozen(series: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Say whether a parcel keeps one value, to the last bit, for ten volumes or a tenth of them, but not for ever."""
    same = series[1:] == series[:-1]
    length = math.ceil(max(LONG_CONSTANT[0], LONG_CONSTANT[1] * len(series))) - 1
    counts = np.cumsum(np.concatenate([np.zeros_like(same[:1]), same]), axis=0, dtype=np.int64)
    runs = counts[length:] - counts[:-length] == length  # where so many in a row begin; empty where there are fewer
    return np.asarray(runs.any(axis=0) & ~same.all(axis=0))


def _find_far(
    series: NDArray[np.float64], farthest: NDArray[np.float64] | None, live: Volumes
) -> tuple[Volumes, NDArray[np.bool_]]:
    """Return the volumes that are far away from all others, and the parcels that are for long."""
    middle = np.median(series, axis=0)
    settled = np.flatnonzero(live) >= SETTLING
    if has_level(series):
        level = whole_level(series)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            relative = series / (middle * level[:, None])
        outside = ~((relative > HALVED) & (relative < 1 / HALVED))
        bright = ~((level > OFF_LEVEL) & (level < 1 / OFF_LEVEL)) & settled
        unit = float(np.median(middle))
    else:
        spread = _spread(series, middle)
        outside = (np.abs(series - middle) > STRAY_SDS * spread) & (spread > 0) & settled[:, None]
        bright, unit = np.zeros(len(series), dtype=bool), 0.0
    often = outside.mean(axis=0) > FEW
    far = outside[:, ~often].any(axis=1)
    if bright.mean() <= FEW:
        far |= bright
    if farthest is not None:
        far |= farthest > STRAY_VOXEL * max(abs(unit), float(np.median(farthest)))
    return np.asarray(far), often


def has_level(series: ArrayLike) -> bool:
    """Say whether series (T, P) are as a scanner gives them, not centred: their level is far above their changes."""
    series = np.asarray(series, dtype=np.float64)
    return bool(np.median(np.median(series, axis=0)) > LEVELLED * np.median(_spread(np.diff(series, axis=0), 0.0)))


def _spread(values: NDArray[np.float64], middle: NDArray[np.float64] | float, axis: int = 0) -> NDArray[np.float64]:
    """Standard deviation, were they normal; few values far off change nothing."""
    return np.asarray(NORMAL_SD * np.median(np.abs(values - middle), axis=axis))


def whole_level(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the level of the whole brain per volume: median over parcels (P,) of their share of their own median."""
    middle = np.median(series, axis=0)
    positive = middle > 0
    return np.asarray(np.median(series[:, positive] / middle[positive], axis=1))


def gain_step(series: ArrayLike, usable: ArrayLike) -> tuple[float, int]:
    """Largest lasting step of the brain's level as a share of it, and its volume, or 0 and -1; series (T, P)."""
    series, rows = np.asarray(series, dtype=np.float64), np.flatnonzero(usable)
    known = series[np.ix_(rows, np.flatnonzero(np.isfinite(series).all(axis=0)))]
    if len(rows) < 2 * STEP_VOLUMES or not known.size or not has_level(known):
        return 0.0, -1
    level = whole_level(known)
    best = (0.0, -1)
    if not (level > 0).all():
        return best
    for start in np.flatnonzero(np.abs(np.diff(np.log(level))) > ABRUPT) + 1:
        before, after = level[max(start - STEP_VOLUMES, 0) : start], level[start : start + STEP_VOLUMES]
        if min(len(before), len(after)) < STEP_VOLUMES:
            continue
        low, high = sorted((before, after), key=np.median)
        if np.quantile(low, 0.75) < np.quantile(high, 0.25):
            size = abs(float(np.median(after) / np.median(before)) - 1)
            best = max(best, (size, int(rows[start])))
    return best


def compare_with_table(
    global_signal: ArrayLike, dvars: ArrayLike, table: tuple[ArrayLike, ArrayLike], usable: ArrayLike
) -> Agreement:
    """Compare changes of global signal and DVARS (T,) with those of the table, also with the table shifted."""
    good = np.asarray(usable, dtype=bool)
    pairs = [(_changes(global_signal), _changes(table[0])), (np.asarray(dvars, float), np.asarray(table[1], float))]
    good = good & np.append(False, good[:-1])  # a change needs both volumes
    here = [_correlate(ours, theirs, good, 0) for ours, theirs in pairs]
    known = [pair for pair, r in zip(pairs, here, strict=True) if not np.isnan(r)]
    lag = 0
    if known and np.nanmean(here) < SURE:
        shifted = np.mean(
            [[_correlate(*signals, good, k) for k in range(-LAGS, LAGS + 1)] for signals in known], axis=0
        )
        best = int(np.nanargmax(shifted))
        # A lag must leave less than half unexplained of what lag 0 leaves.
        lag = best - LAGS if shifted[best] > 0.5 and 1 - shifted[best] < (1 - shifted[LAGS]) / 2 else 0
    both = np.stack([np.asarray(signal, dtype=np.float64) for signal in (global_signal, table[0])])[:, good]
    both, level = both[:, np.isfinite(both).all(axis=0)], float("nan")
    if both.shape[1] >= FEWEST_COMPARED and all(has_level(signal[:, None]) for signal in both):
        level = float(np.divide(*np.median(both, axis=1)))
    return Agreement(here[0], here[1], lag, level)


def find_spikes(global_signal: ArrayLike, of_table: ArrayLike) -> Volumes:
    """Which volumes (T,) are brighter or darker than their table says; none where these are many."""
    both = np.stack([np.asarray(signal, dtype=np.float64) for signal in (global_signal, of_table)])
    known = np.asarray(np.isfinite(both).all(axis=0))
    off = np.zeros(both.shape[1], dtype=np.bool_)
    if known.sum() < FEWEST_COMPARED or not all(has_level(signal[:, None]) for signal in both[:, known]):
        return off
    ratio = both[0, known] / both[1, known]
    off[known] = np.abs(ratio / np.median(ratio) - 1) > OFF_TABLE
    off[:SETTLING] = False
    return off if off.mean() <= SPIKES else np.zeros_like(off)


def times_of_cosines(cosines: ArrayLike) -> tuple[float, float]:
    """Shortest and longest repetition time (s) with which fMRIPrep makes so many cosines (T, K), slower than 128 s."""
    values = np.asarray(cosines, dtype=np.float64)
    volumes, number = 2 / float(np.nanmax(np.abs(values))) ** 2, values.shape[1]
    return number * PERIOD / (2 * volumes), (number + 2) * PERIOD / (2 * volumes)


def _changes(values: ArrayLike) -> NDArray[np.float64]:
    return np.diff(np.asarray(values, dtype=np.float64), prepend=np.nan)


def _correlate(ours: NDArray[np.float64], theirs: NDArray[np.float64], good: Volumes, lag: int) -> float:
    """Correlate volume t of ours with row t + lag of the table."""
    rows = np.flatnonzero(good)
    rows = rows[(rows + lag >= 0) & (rows + lag < len(theirs))]
    both = np.stack([ours[rows], theirs[rows + lag]])
    both = both[:, np.isfinite(both).all(axis=0)]
    if both.shape[1] < FEWEST_COMPARED or (np.ptp(both, axis=1) == 0).any():
        return float("nan")
    middle = np.median(both, axis=1, keepdims=True)
    spread = _spread(both, middle, axis=1)
    if (spread == 0).any():
        return float("nan")
    first, other = np.clip((both - middle) / spread[:, None], -CLIP_SDS, CLIP_SDS)
    return float(np.asarray(np.corrcoef(first, other))[0, 1])
