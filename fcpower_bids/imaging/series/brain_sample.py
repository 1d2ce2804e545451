"""Some voxels of the brain stand for all: its mean and its change, and those of its parts, while volumes stream by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SAMPLE = 8000
"""Voxels: mean and DVARS of these are compared with a table, to a per cent."""
LOOKS = 8
"""Volumes of which the values themselves are looked at."""
QUARTERS, AXES = 4, 4
"""Parts along each axis (left to right, back to front, bottom to top), and the slices of even and of odd number."""
CELLS = (QUARTERS, QUARTERS, QUARTERS, 2)
MEMBERS = np.concatenate([one.ravel() == np.arange(QUARTERS)[:, None] for one in np.indices(CELLS)]).astype(float)
"""Which cells make up each part: (AXES * QUARTERS, cells)."""


class VolumeFigures(NamedTuple):
    """Measurements of every volume while it streams by, to be compared with the table of the recording."""

    global_signal: np.ndarray  # (T,): mean over the brain; NaN where it has no finite value
    # (T,): root mean square change of the voxels of the brain from the volume before; NaN for the first
    dvars: np.ndarray
    farthest: np.ndarray  # (T,): largest change of any voxel of a parcel against the first volume
    parts: np.ndarray  # (2, T, AXES, QUARTERS): the first two of every part; NaN where there is no such part
    values: np.ndarray  # (2,): smallest difference between two values, and share of the values that are the largest

    @classmethod
    def without_parts(cls, global_signal: np.ndarray, dvars: np.ndarray, farthest: np.ndarray) -> VolumeFigures:
        """Return figures of which the last are not known."""
        parts = np.full((2, len(dvars), AXES, QUARTERS), np.nan)
        return cls(global_signal, dvars, farthest, parts, np.full(2, np.nan))

    def scaled(self, slope: float, intercept: float) -> VolumeFigures:
        """Return them in the units of the signal; those of the parts are changed in place, for they are many."""
        size = abs(slope)
        self.parts[:] *= np.reshape((slope, size), (2, 1, 1, 1))
        self.parts[0] += intercept
        of_whole = (self.global_signal * slope + intercept, self.dvars * size, self.farthest * size)
        return VolumeFigures(*of_whole, self.parts, self.values * (size, 1))


class BrainSample:
    """Sums of one pass over a recording; the voxels are places in the file, shape (V,)."""

    def __init__(self, voxels: np.ndarray, shape: tuple[int, ...], affine: np.ndarray, n_volumes: int) -> None:
        self.voxels = voxels
        self.looks = ((np.arange(LOOKS) + 0.5) * n_volumes / LOOKS).astype(int)  # not the first, which may be brighter
        self.before, self.looked = np.empty(0), np.full((LOOKS, len(voxels)), np.nan)
        self.farthest = np.full(n_volumes, np.nan)
        self.sums = np.full((2, n_volumes, AXES * QUARTERS), np.nan)  # of values, and of squared changes
        index = np.unravel_index(voxels, shape, order="F")
        place = affine[:3, :3] @ index  # mm, but for an offset
        limits = np.quantile(place, (0.25, 0.5, 0.75), axis=1) if len(voxels) else np.zeros((3, 3))
        quarters = (place >= limits[:, :, None]).sum(axis=0)
        self.cells = np.ravel_multi_index((*quarters, index[2] % 2), CELLS)

    def add(self, number: int, volume: np.ndarray, deviation: np.ndarray) -> None:
        """Add one volume, and the changes of the voxels of parcels against the first."""
        self.farthest[number] = max(deviation.max(), -deviation.min()) if len(deviation) else 0.0
        values = volume.take(self.voxels).astype(np.float64)
        self.sums[0, number] = self._by_part(values)
        if number:
            self.sums[1, number] = self._by_part(np.square(values - self.before))
        self.looked[self.looks == number] = values
        self.before = values

    def _by_part(self, values: np.ndarray | None = None) -> np.ndarray:
        return MEMBERS @ np.bincount(self.cells, values, MEMBERS.shape[1])

    def figures(self) -> VolumeFigures:
        """Return what was measured."""
        whole, parts = self.sums[..., :QUARTERS].sum(axis=2), self.sums
        with np.errstate(invalid="ignore", divide="ignore"):  # 0 / 0 is the NaN of a part without voxels
            whole /= len(self.voxels)
            parts /= self._by_part()
        for one in (whole, parts):
            np.sqrt(one[1], out=one[1])
        shaped = parts.reshape(2, -1, AXES, QUARTERS)
        return VolumeFigures(whole[0], whole[1], self.farthest, shaped, _describe_values(self.looked))


def _describe_values(values: np.ndarray) -> np.ndarray:
    """Return the smallest difference between two values, and the share that are the largest (but for one)."""
    ordered = np.sort(values[np.isfinite(values)])
    steps = np.diff(ordered)
    if not steps.any():
        return np.full(2, np.nan)
    return np.array([steps[steps > 0].min(), (np.count_nonzero(ordered == ordered[-1]) - 1) / len(ordered)])
