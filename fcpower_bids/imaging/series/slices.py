"""What is kept of a series while it streams by: a sample of the brain, and slices for the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fcpower_bids.imaging.series.streaming import HeaderSummary
from fcpower_bids.records import AXIAL, CORONAL, SAGITTAL, Slices

SAMPLE = 8000
"""Voxels: mean and DVARS of these are compared with a table, to a per cent."""


class VolumeFigures(NamedTuple):
    """Measurements of every volume while it streams by, to be compared with the table of the recording."""

    global_signal: np.ndarray  # (T,): mean over the brain; NaN where it has no finite value
    # (T,): root mean square change of the voxels of the brain from the volume before; NaN for the first
    dvars: np.ndarray
    farthest: np.ndarray  # (T,): largest change of any voxel of a parcel against the first volume

    def scaled(self, slope: float, intercept: float) -> VolumeFigures:
        """Return them in the units of the signal."""
        size = abs(slope)
        return VolumeFigures(self.global_signal * slope + intercept, self.dvars * size, self.farthest * size)


class BrainSample:
    """Figures of one pass over a recording; the voxels are places in the file, shape (V,)."""

    def __init__(self, voxels: np.ndarray, n_volumes: int) -> None:
        self.voxels, self.before = voxels, np.empty(0)
        self.figures = VolumeFigures(*np.full((3, n_volumes), np.nan))

    def add(self, number: int, volume: np.ndarray, deviation: np.ndarray) -> None:
        """Add one volume, and the changes of the voxels of parcels against the first."""
        self.figures.farthest[number] = max(deviation.max(), -deviation.min()) if len(deviation) else 0.0
        if not len(self.voxels):
            return
        values = volume.take(self.voxels).astype(np.float64)
        self.figures.global_signal[number] = values.mean()
        if number:
            self.figures.dvars[number] = np.sqrt(np.square(values - self.before).mean())
        self.before = values


N_SLICES = 7
N_SIDES = 3
"""Sagittal slices, and coronal ones."""
LARGEST = 110
"""Voxels of a slice along its longer side; finer grids are thinned out."""
MARGIN = 2
SETTLING = 10
"""Volumes at the start in which the magnetisation may not be steady yet; they do not count where there are enough."""
ALIGNED = 0.95
IN_PLANE = {AXIAL: (0, 1), SAGITTAL: (1, 2), CORONAL: (0, 2)}
"""Axes of a slice: that of its columns, that of its rows."""


class SlicePlan:
    """Which voxels are shown: slices evenly over brain and parcels, (X * Y * Z,) each, all planes of one size."""

    def __init__(
        self, header: HeaderSummary, brain: np.ndarray, in_parcels: np.ndarray, tissue: np.ndarray, dice: float
    ) -> None:
        self.shape = header.shape[2::-1]
        self.affine = np.asarray(header.affine)
        shown = (brain | in_parcels).reshape(self.shape)
        used = [np.flatnonzero(shown.any(axis=axes)) for axes in ((0, 1), (0, 2), (1, 2))]
        spans = [np.arange(max(0, one[0] - MARGIN), one[-1] + MARGIN + 1) for one in used]
        step = max(1, -(-max(map(len, spans[:2])) // LARGEST))
        # the person's left on the left, the front and the top of the head on top; from the side it looks to the left
        spans = [
            span[span < size][::step][:: -1 if turned else 1]
            for span, size, turned in zip(
                spans, self.shape[::-1], np.diag(self.affine)[:3] * (1, -1, -1) < 0, strict=True
            )
        ]
        counts = (N_SIDES, N_SIDES, N_SLICES)
        places = [
            np.unique(np.linspace(one[0], one[-1], n + 2)[1:-1].round().astype(int))
            for one, n in zip(used, counts, strict=True)
        ]
        self.planes = np.repeat([AXIAL, SAGITTAL, CORONAL], [len(places[axis]) for axis in (AXIAL, SAGITTAL, CORONAL)])
        self.places = np.concatenate([places[axis] for axis in (AXIAL, SAGITTAL, CORONAL)])
        self.voxels = self._voxels(spans)
        self.inside = np.flatnonzero(self.voxels >= 0)
        self.start = SETTLING if header.n_volumes > 4 * SETTLING else 0
        self.brain, self.template, self.dice = self.cut(brain, False), self.cut(tissue, 0), np.array(dice)

    def _voxels(self, spans: Sequence[np.ndarray]) -> np.ndarray:
        """Return the place in the file of each pixel (n, rows, columns), -1 beyond a slice."""
        size = (max(len(spans[1]), len(spans[2])), max(len(spans[0]), len(spans[1])))
        voxels = np.full((len(self.places), *size), -1)
        for picture, plane, place in zip(voxels, self.planes, self.places, strict=True):
            across, down = IN_PLANE[plane]
            index: list[np.ndarray | int] = [0, 0, 0]
            index[plane], index[across], index[down] = int(place), spans[across][None, :], spans[down][:, None]
            x, y, z = index
            top, left = (size[0] - len(spans[down])) // 2, (size[1] - len(spans[across])) // 2
            room = picture[top : top + len(spans[down]), left : left + len(spans[across])]
            room[:] = x + self.shape[2] * (y + self.shape[1] * np.asarray(z))
        return voxels

    @property
    def is_aligned(self) -> bool:
        """Whether the axes of the grid are those of the template, so that a slice is an axial one."""
        axes = self.affine[:3, :3] / np.linalg.norm(self.affine[:3, :3], axis=0)
        return bool((np.abs(np.diag(axes)) > ALIGNED).all())

    def cut(self, values: np.ndarray, beyond: float) -> np.ndarray:
        """Return the slices (n, rows, columns) of a volume in the order of the file."""
        return np.where(self.voxels >= 0, values.take(np.maximum(self.voxels, 0)), values.dtype.type(beyond))

    def fill(self, values: np.ndarray) -> np.ndarray:
        """Return the slices (n, rows, columns) that have these values inside, shape (len(inside),); NaN beyond."""
        slices = np.full(self.voxels.shape, np.nan, dtype=np.float32)
        slices.ravel()[self.inside] = np.where(np.isfinite(values), values, np.nan)
        return slices


class SliceSums:
    """Sums of the slices and of their squares, as deviations from the first volume that counts."""

    def __init__(self, plan: SlicePlan) -> None:
        self.plan = plan
        self.n_volumes = 0
        self.voxels = plan.voxels.ravel()[plan.inside]
        self.first, self.sums, self.squares = np.zeros((3, len(self.voxels)))

    def add(self, number: int, volume: np.ndarray) -> None:
        """Add one volume."""
        if number < self.plan.start:
            return
        values = volume.take(self.voxels).astype(np.float64)
        if not self.n_volumes:
            self.first = values
        self.n_volumes += 1
        values = values - self.first
        self.sums += values
        self.squares += np.square(values, out=values)

    def finish(self, placed: Sequence[np.ndarray], scaling: tuple[float, float]) -> list[Slices | None]:
        """Return the slices under each atlas; None where the grid is oblique. Shapes and units: placed (X * Y * Z,)."""
        plan = self.plan
        if not plan.is_aligned:
            return [None] * len(placed)
        slope, intercept = scaling
        n = max(self.n_volumes, 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = (self.first + self.sums / n) * slope + intercept
            variance = (self.squares - self.sums**2 / n) / max(n - 1, 1)
            stability = mean / (np.sqrt(np.maximum(variance, 0)) * abs(slope))
        mean, stability = plan.fill(mean), plan.fill(stability)
        across, along = np.diag(plan.affine)[plan.planes], plan.affine[plan.planes, 3]
        heights, planes = across * plan.places + along, plan.planes.astype(np.uint8)
        parcels = (plan.cut(one, 0).astype(np.uint16) for one in placed)
        last = (plan.template, heights, planes, plan.dice)
        return [Slices(mean, stability, plan.brain, one, *last) for one in parcels]
