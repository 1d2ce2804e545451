"""Preparation of motion parameters: a filter, and the displacement for another head radius."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from fcpower_bids.core.signal.motion import (
    HEAD_RADIUS,
    MotionFilter,
    filter_motion,
    framewise_displacement,
    sphere_radius,
)
from fcpower_bids.errors import RecordingError, Unfit
from fcpower_bids.imaging.confounds.tables import Columns
from fcpower_bids.records import Recording
from fcpower_bids.settings import Method

PARAMETERS = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
EXPANDED = re.compile(rf"(?:{'|'.join(PARAMETERS)})_(?:derivative1|power2|derivative1_power2)")
AUTO = "auto"


@dataclass(frozen=True)
class MotionTreatment:
    """How motion parameters become displacement and regressors."""

    repetition_time: float  # seconds between volumes
    kind: MotionFilter | None = None  # one of "notch", "lp": filter of the parameters; None for none
    stop: tuple[float, float | None] = (0.0, None)  # its edges in breaths per minute
    order: int = 4  # its order
    radius: float | None = None  # radius of the head in mm; None takes the displacement of the table where there is one

    @property
    def needs_parameters(self) -> bool:
        """Whether the six parameters must be read, whatever the strategy."""
        return self.kind is not None or self.radius is not None

    def replaces(self, name: str) -> bool:
        """Whether a column has to be made again, from filtered parameters."""
        return self.kind is not None and EXPANDED.fullmatch(name) is not None

    def apply(self, columns: Columns, table: Path) -> tuple[Columns, tuple[str, ...]]:
        """Return the columns with parameters and displacement as they are to be used, and what to note.

        Raises RecordingError.
        """
        if not self.needs_parameters:
            return columns, ()
        lacking = [name for name in PARAMETERS if name not in columns]
        if lacking:
            raise RecordingError(
                f"{table} lacks {', '.join(lacking)}, which --motion-filter-type and --head-radius need. Leave them "
                "out, or run fMRIPrep again."
            )
        parameters = np.column_stack([columns[name] for name in PARAMETERS])
        notes: tuple[str, ...] = ()
        if self.kind is not None:
            parameters, notes = self._filter(parameters, table), (self._words(),)
        radius = HEAD_RADIUS if self.radius is None else self.radius
        moved = framewise_displacement(parameters, radius)
        replaced = dict(zip(PARAMETERS, parameters.T, strict=True))
        return {**columns, **replaced, "framewise_displacement": moved}, notes

    def _filter(self, parameters: np.ndarray, table: Path) -> np.ndarray:
        if not np.isfinite(parameters).all():
            raise RecordingError(f"{table} has motion parameters without a value, so they cannot be filtered.")
        assert self.kind is not None
        try:
            return filter_motion(parameters, self.repetition_time, self.kind, self.stop, self.order)
        except Unfit as error:
            raise RecordingError(f"{table}: {error}") from None

    def _words(self) -> str:
        low, high = self.stop
        band = f"{low:g} to {high:g}" if self.kind == "notch" else f"above {low:g}"
        return f"Motion parameters without {band} per minute (breathing) gave the displacement and the regressors."


def motion_treatment(recording: Recording, settings: Method) -> MotionTreatment:
    """Return what the settings ask for, with the radius of this head. Raises RecordingError."""
    return MotionTreatment(
        recording.repetition_time,
        cast("MotionFilter | None", settings.motion_filter_type),
        (settings.band_stop_min or 0.0, settings.band_stop_max),
        settings.motion_filter_order,
        _radius(recording, settings.head_radius),
    )


def _radius(recording: Recording, chosen: str | None) -> float | None:
    if chosen is None or chosen != AUTO:
        return None if chosen is None else float(chosen)
    if recording.mask is None:
        raise RecordingError(
            f"{recording.bold} has no brain mask that the head's size could be read from: give --head-radius a number."
        )
    from fcpower_bids.imaging.series.streaming import load_header  # loads nibabel, which is slow to load

    image = load_header(recording.mask)
    voxel = abs(np.linalg.det(image.affine[:3, :3]))
    return sphere_radius(float(np.count_nonzero(np.asanyarray(image.dataobj) > 0) * voxel))
