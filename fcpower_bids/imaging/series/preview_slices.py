"""Axial slices of the temporal mean and its stability, added up while the volumes stream by.

A few slices are a twentieth of a volume and lie in one piece in the file, so they cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fcpower_bids.imaging.series.streaming import HeaderSummary
from fcpower_bids.records import Slices

N_SLICES = 7
LARGEST = 110
"""Voxels of a slice along its longer side; finer grids are thinned out."""
MARGIN = 2
SETTLING = 10
"""Volumes at the start in which the magnetisation may not be steady yet; they do not count where there are enough."""
ALIGNED = 0.95


class SlicePlan:
    """Which voxels of a recording are shown: slices evenly over the brain and the parcels, cut to these.

    A part of the head that the mask lacks is seen by the parcels that lie there.

    Shapes and units: brain, in_parcels (X * Y * Z,).
    """

    def __init__(self, header: HeaderSummary, brain: np.ndarray, in_parcels: np.ndarray) -> None:
        self.shape = header.shape[2::-1]
        self.affine = np.asarray(header.affine)
        volume = brain.reshape(self.shape)
        shown = (brain | in_parcels).reshape(self.shape)
        z, y, x = (np.flatnonzero(shown.any(axis=axes)) for axes in ((1, 2), (0, 2), (0, 1)))
        rows, columns = (np.arange(max(0, one[0] - MARGIN), one[-1] + MARGIN + 1) for one in (y, x))
        step = max(1, -(-max(len(rows), len(columns)) // LARGEST))
        rows, columns = rows[rows < self.shape[1]][::step], columns[columns < self.shape[2]][::step]
        if self.affine[1, 1] > 0:
            rows = rows[::-1]  # the front on top
        if self.affine[0, 0] < 0:
            columns = columns[::-1]  # the person's left on the left
        self.places = np.unique(np.linspace(z[0], z[-1], N_SLICES + 2)[1:-1].round().astype(int))
        self.where = np.ix_(self.places, rows, columns)
        self.start = SETTLING if header.n_volumes > 4 * SETTLING else 0
        self.brain = volume[self.where]

    @property
    def is_aligned(self) -> bool:
        """Whether the axes of the grid are those of the template, so that a slice is an axial one."""
        axes = self.affine[:3, :3] / np.linalg.norm(self.affine[:3, :3], axis=0)
        return bool((np.abs(np.diag(axes)) > ALIGNED).all())

    def cut(self, values: np.ndarray) -> np.ndarray:
        """Return the slices of a volume in the order of the file."""
        return values.reshape(self.shape)[self.where]


class SliceSums:
    """Sums of the slices and of their squares, as deviations from the first volume that counts."""

    def __init__(self, plan: SlicePlan) -> None:
        self.plan = plan
        self.n_volumes = 0
        self.first, self.sums, self.squares = np.zeros((3, *plan.brain.shape))

    def add(self, number: int, volume: np.ndarray) -> None:
        """Add one volume."""
        if number < self.plan.start:
            return
        values = self.plan.cut(volume).astype(np.float64)
        if not self.n_volumes:
            self.first = values
        self.n_volumes += 1
        values = values - self.first
        self.sums += values
        self.squares += np.square(values, out=values)

    def finish(self, placed: Sequence[np.ndarray], scaling: tuple[float, float]) -> list[Slices | None]:
        """Return the slices under each atlas; None where the grid is oblique. Shapes and units: placed (X * Y * Z,)."""
        if not self.plan.is_aligned:
            return [None] * len(placed)
        slope, intercept = scaling
        n = max(self.n_volumes, 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = (self.first + self.sums / n) * slope + intercept
            variance = (self.squares - self.sums**2 / n) / max(n - 1, 1)
            stability = mean / (np.sqrt(np.maximum(variance, 0)) * abs(slope))
        mean, stability = (np.where(np.isfinite(one), one, np.nan).astype(np.float32) for one in (mean, stability))
        heights = self.plan.affine[2, 2] * self.plan.places + self.plan.affine[2, 3]
        return [
            Slices(mean, stability, self.plan.brain, self.plan.cut(one).astype(np.uint16), heights) for one in placed
        ]
