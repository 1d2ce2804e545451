"""From a recording to one series per parcel, streaming: memory does not grow with the length of the recording.

A parcel's series is the mean over its *covered* voxels: those inside the brain mask that have signal. A voxel has
signal if it is finite at every volume and not the same at all of them; outside the field of view fMRIPrep writes
0 (or NaN) throughout. The set is one and the same for all volumes, so no parcel changes its make-up within a recording.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fcpower_bids.errors import RecordingError
from fcpower_bids.imaging.series.cifti import average_grayordinates, check_grayordinates
from fcpower_bids.imaging.series.streaming import HeaderSummary, VolumeFigures, header_summary
from fcpower_bids.imaging.series.voxels import average_voxels, check_mask, check_volumetric
from fcpower_bids.records import Atlas, Slices, space_of

UNDECLARED = ("n/a", "unknown")


class Parcellation(NamedTuple):
    """The series of one recording in one atlas; every parcel of the atlas has a column, always."""

    series: np.ndarray  # (T, P), float64: mean over the covered voxels of each parcel; NaN for a parcel without any
    coverage: np.ndarray  # (P,): covered share of each parcel, 0 to 1: inside field of view and mask, and with signal
    n_voxels: np.ndarray  # (P,), int: voxels (grayordinates) of the parcel on the grid of the recording, covered or not
    n_covered: np.ndarray  # (P,), int: those that the mean is made of
    figures: VolumeFigures  # measurements of every volume, the same for all atlases of one pass
    slices: Slices | None = None  # slices for the page


def parcellate(bold: Path, mask: Path | None, atlases: Sequence[Atlas], n_dummy: int = 0) -> list[Parcellation]:
    """Average a recording within the parcels of atlases, in one pass over its data. Raises RecordingError."""
    bold = Path(bold)
    header = check_request(bold, mask, atlases, n_dummy)
    pictures: list[Slices | None] = [None] * len(atlases)
    if header.affine is None:
        stacked = Parcellation(*average_grayordinates(bold, header, atlases, n_dummy))
    else:
        series, coverage, n_voxels, n_covered, figures, pictures = average_voxels(bold, header, mask, atlases, n_dummy)
        stacked = Parcellation(series, coverage, n_voxels, n_covered, figures)
    if not stacked.n_covered.any():
        raise RecordingError(
            f"No parcel of {', '.join(atlas.name for atlas in atlases)} has a voxel with signal in {bold}: "
            "check that recording, mask and atlas are in the same space, that the recording is not empty and no volume "
            "of it NaN."
        )
    slope, intercept = header.scaling
    series = stacked.series * slope + intercept
    figures = stacked.figures.scaled(slope, intercept)
    ends = np.cumsum([atlas.n_parcels for atlas in atlases])
    of_parcels = (series, stacked.coverage, stacked.n_voxels, stacked.n_covered)
    found = []
    for atlas, end, slices in zip(atlases, ends, pictures, strict=True):
        one, coverage, n_voxels, n_covered = (values[..., end - atlas.n_parcels : end] for values in of_parcels)
        found.append(Parcellation(one, coverage, n_voxels, n_covered, figures, slices))
    return found


def check_request(bold: Path, mask: Path | None, atlases: Sequence[Atlas], n_dummy: int = 0) -> HeaderSummary:
    """Refuse what the headers alone show to be impossible, and return that of the recording. Raises RecordingError."""
    header = header_summary(bold)
    _check_counts(bold, header, atlases, n_dummy)
    for atlas in atlases:
        if header.affine is None:
            check_grayordinates(bold, header, atlas)
        else:
            check_volumetric(bold, atlas)
    if header.affine is not None and mask is not None:
        check_mask(bold, header, mask)
    return header


def _check_counts(bold: Path, header: HeaderSummary, atlases: Sequence[Atlas], n_dummy: int) -> None:
    if n_dummy < 0:
        raise ValueError(f"The number of dummy volumes cannot be negative, but is {n_dummy}.")
    if not atlases:
        raise ValueError("Parcellation needs at least one atlas.")
    if header.n_volumes - n_dummy < 2:
        raise RecordingError(
            f"{bold} has {header.n_volumes} volumes, of which {n_dummy} are left out as dummies: "
            "a series needs at least two; check --dummy-scans and the file."
        )
    space = space_of(dict(re.findall(r"(?:^|_)(space|cohort)-([A-Za-z0-9]+)", bold.name)))
    for atlas in atlases:
        if space and atlas.space not in (space, *UNDECLARED):
            raise RecordingError(
                f"{bold} is in space {space} but the atlas {atlas.image} is in {atlas.space}: "
                f"give an atlas in {space}, or choose another --space."
            )
