"""From a recording to one series per parcel, streaming: memory does not grow with the length of the recording.

A parcel's series is the mean over its *covered* voxels: those inside the brain mask that have signal. A voxel has
signal if it is finite at every volume and not the same at all of them; outside the field of view fMRIPrep writes
0 (or NaN) throughout. The set is one and the same for all volumes, so no parcel changes its make-up within a recording.

One pass over a 4-D NIfTI decides which voxels have signal and adds up at the same time. Sums are of deviations from the
first volume, in float64: a constant voxel adds exactly nothing, whatever its value, and is left out of the divisor at
the end. A voxel that turns NaN on the way is already in earlier sums: then, and only then, the recording is read once
more without it.

A CIFTI ``dtseries`` comes a block of grayordinates at a time, by one sparse matrix for all atlases. Parcellated CIFTI
files are read and written here too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from nibabel.cifti2 import Cifti2Image, ParcelsAxis, SeriesAxis

from fcpower_bids.errors import RecordingError, Unfit
from fcpower_bids.imaging import streaming
from fcpower_bids.imaging.labels import (
    SPACES,
    align_labels,
    index_labels,
    is_same_grid,
    read_grayordinate_labels,
    read_volume_labels,
    resample_labels,
    share_inside,
    template_tissue,
)
from fcpower_bids.records import Atlas, Slices, space_of

UNDECLARED = ("n/a", "unknown")


class Parcellation(NamedTuple):
    """The series of one recording in one atlas; every parcel of the atlas has a column, always."""

    series: np.ndarray  # (T, P), float64: mean over the covered voxels of each parcel; NaN for a parcel without any
    coverage: np.ndarray  # (P,): covered share of each parcel, 0 to 1: inside field of view and mask, and with signal
    n_voxels: np.ndarray  # (P,), int: voxels (grayordinates) of the parcel on the grid of the recording, covered or not
    n_covered: np.ndarray  # (P,), int: those that the mean is made of
    figures: streaming.VolumeFigures  # measurements of every volume, the same for all atlases of one pass
    slices: Slices | None = None  # slices for the page


def parcellate(bold: Path, mask: Path | None, atlases: Sequence[Atlas]) -> list[Parcellation]:
    """Average a recording within the parcels of atlases, in one pass over its data. Raises RecordingError."""
    bold = Path(bold)
    header = check_request(bold, mask, atlases)
    pictures: list[Slices | None] = [None] * len(atlases)
    if header.affine is None:
        stacked = average_grayordinates(bold, header, atlases)
    else:
        stacked, pictures = average_voxels(bold, header, mask, atlases)
    if not stacked.n_covered.any():
        raise RecordingError(
            f"No parcel of {', '.join(atlas.name for atlas in atlases)} has a voxel with signal in {bold}: "
            "check that recording, mask and atlas are in the same space, that the recording is not empty and no volume "
            "of it NaN."
        )
    slope, intercept = header.scaling
    figures = stacked.figures.scaled(slope, intercept)
    of_parcels = (stacked.series * slope + intercept, *stacked[1:4])
    ends = np.cumsum([atlas.n_parcels for atlas in atlases])
    parcellations = []
    for atlas, end, slices in zip(atlases, ends, pictures, strict=True):
        means, coverage, n_voxels, n_covered = (values[..., end - atlas.n_parcels : end] for values in of_parcels)
        parcellations.append(Parcellation(means, coverage, n_voxels, n_covered, figures, slices))
    return parcellations


def check_request(bold: Path, mask: Path | None, atlases: Sequence[Atlas]) -> streaming.HeaderSummary:
    """Refuse what the headers alone show to be impossible, and return that of the recording. Raises RecordingError."""
    header = streaming.header_summary(bold)
    if not atlases:
        raise ValueError("Parcellation needs at least one atlas.")
    if header.n_volumes < 2:
        raise RecordingError(f"{bold} has a single volume, not a series: run fMRIPrep again on the whole run.")
    space = space_of(dict(re.findall(r"(?:^|_)(space|cohort)-([A-Za-z0-9]+)", bold.name)))
    for atlas in atlases:
        if space and atlas.space not in (space, *UNDECLARED):
            raise RecordingError(
                f"{bold} is in space {space} but the atlas {atlas.image} is in {atlas.space}: "
                f"give an atlas in {space}, or choose another --space."
            )
        if header.affine is None:
            if not atlas.is_cifti:
                raise RecordingError(
                    f"{bold} is CIFTI but the atlas {atlas.image} is not: give a dlabel file, or a NIfTI recording for "
                    "this atlas."
                )
            align_grayordinates(bold, header.grayordinates, atlas)
        elif atlas.is_cifti:
            raise RecordingError(
                f"{bold} is NIfTI but the atlas {atlas.image} is CIFTI: give a NIfTI label image in the space of the "
                "recording."
            )
    if header.affine is not None and mask is not None:
        shape, affine = streaming.read_alike(mask, _grid_of_mask, _GRIDS)  # its content is not read
        if not is_same_grid(shape, affine, *header.grid):
            raise RecordingError(
                f"The mask {mask} {shape} and the recording {bold} {header.shape[:3]} are on different grids: "
                "give the brain mask that fMRIPrep wrote for this very recording and space."
            )
    return header


def average_voxels(
    bold: Path, header: streaming.HeaderSummary, mask: Path | None, atlases: Sequence[Atlas]
) -> tuple[Parcellation, list[Slices | None]]:
    """All atlases side by side, and the slices under each. Raises RecordingError."""
    shape, affine = header.grid
    brain = np.ones(int(np.prod(shape)), dtype=bool)  # of every voxel in file order
    if mask is not None:
        brain = (streaming.read_image(mask, "The mask ")[1] > 0).ravel(order="F")
        if not brain.any():
            raise RecordingError(f"The mask {mask} of {bold} is empty: rerun the step that wrote it.")
    placements = []
    for atlas in atlases:
        facts = atlas.image.stat() if atlas.image.exists() else None
        state = facts and (facts.st_size, facts.st_mtime_ns)
        placements.append(_place_labels(atlas.image, state, atlas.labels, shape, tuple(affine.ravel())))
    placed, in_view = zip(*placements, strict=True)
    sizes = [atlas.n_parcels for atlas in atlases]
    n_voxels = np.concatenate([np.bincount(p, minlength=n + 1)[1:] for p, n in zip(placed, sizes, strict=True)])
    in_parcels = np.any(placed, axis=0)
    voxels = np.flatnonzero(brain & in_parcels)
    voxels = voxels[
        np.argsort(placed[0][voxels], kind="stable")
    ]  # parcel by parcel of the first atlas: see _ParcelSums
    sample = np.flatnonzero(brain)
    tissue, dice = np.zeros(len(brain), dtype=np.uint8), np.nan  # of the template at every voxel, and with the mask
    if any(atlas.space.startswith(SPACES) for atlas in atlases):
        tissue, of_template = template_tissue(shape, tuple(affine.ravel()))
        cubic = abs(float(np.linalg.det(affine[:3, :3])))
        if mask is not None:  # Dice coefficient of it and the template's brain, which may reach beyond the grid
            common, whole = (float(np.count_nonzero(part)) * cubic for part in (brain & (tissue > 0), brain))
            dice = 2 * common / (whole + of_template)
    plan = streaming.SlicePlan(header, brain, in_parcels, tissue, dice)
    members = [(p[voxels], n) for p, n in zip(placed, sizes, strict=True)]
    sample = sample[:: 1 + len(sample) // streaming.SAMPLE]
    means, n_covered, figures = _stream_means(bold, header, plan, sample, voxels, members)
    coverage = n_covered / np.maximum(n_voxels, 1) * np.concatenate(in_view)
    return Parcellation(means, coverage, n_voxels, n_covered, figures), plan.finish(placed, header.scaling)


class _ParcelSums:
    """The sparse (P, V) operator that adds voxels up to parcels, the atlases one below the other.

    All its entries are 1, so a compressed row is a gather and ``add.reduceat``: as fast as SciPy's product, without
    its import, which costs as much as inflating thirty volumes. The gather is left out where the voxels of an atlas
    stand parcel by parcel, as those of the first do. Within a parcel they are added in the order of the file, always.
    """

    def __init__(self, voxels: np.ndarray, members: Sequence[tuple[np.ndarray, int]]) -> None:
        self.n_parcels = sum(n_parcels for _, n_parcels in members)
        self.parts: list[tuple[slice | np.ndarray, np.ndarray, np.ndarray]] = []
        start = 0
        for parcels, n_parcels in members:
            outside = int(np.sum(parcels == 0))
            columns = np.lexsort((voxels, parcels))[outside:]
            rows, starts = np.unique(parcels[columns] - 1 + start, return_index=True)
            start += n_parcels
            if len(rows):
                whole = bool((np.diff(columns) == 1).all())
                block = slice(columns[0], columns[-1] + 1)
                self.parts.append((block if whole else columns, rows, starts))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        sums = np.zeros(self.n_parcels)
        for columns, rows, starts in self.parts:
            sums[rows] = np.add.reduceat(values[columns], starts)
        return sums


def _stream_means(
    bold: Path,
    header: streaming.HeaderSummary,
    plan: streaming.SlicePlan,
    sample: np.ndarray,
    voxels: np.ndarray,
    members: Sequence[tuple[np.ndarray, int]],
) -> tuple[np.ndarray, np.ndarray, streaming.VolumeFigures]:
    # Voxels outside the field of view from the start must not cost a second pass: one look at the first volume.
    first = next(streaming.read_volumes(bold, header))
    broken, sample = ~np.isfinite(first[voxels]), sample[np.isfinite(first[sample])]
    while True:
        voxels, members = voxels[~broken], [(parcels[~broken], n_parcels) for parcels, n_parcels in members]
        add_up = _ParcelSums(voxels, members)
        brain = streaming.BrainSample(sample, header.n_volumes)
        deviations, first, constant, broken = _tally(bold, header, plan, brain, voxels, add_up)
        if not broken.any():
            break
    n_covered = add_up(np.where(constant, 0.0, 1.0))
    baseline = add_up(np.where(constant, 0.0, first))
    with np.errstate(invalid="ignore"):  # 0 / 0 is the NaN of a parcel without covered voxels
        means = (deviations + baseline) / n_covered
    return means, n_covered.astype(int), brain.figures


def _tally(
    bold: Path,
    header: streaming.HeaderSummary,
    plan: streaming.SlicePlan,
    sample: streaming.BrainSample,
    voxels: np.ndarray,
    add_up: _ParcelSums,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One pass over V voxels: (T, P) sums of deviations, the first volume, who is constant, who is broken (V,)."""
    deviations = np.zeros((header.n_volumes, add_up.n_parcels))
    deviation = np.empty(len(voxels))
    broken = np.zeros(len(voxels), dtype=bool)
    unchanged = np.arange(len(voxels))  # nearly all leave this list at the second volume, so it costs nothing
    with np.errstate(invalid="ignore", over="ignore"):
        for number, volume in enumerate(streaming.read_volumes(bold, header)):
            values = volume.take(voxels)
            if not number:
                first = values.astype(np.float64)
            np.subtract(values, first, out=deviation)
            row = deviations[number]
            row[:] = add_up(deviation)
            sample.add(number, volume, deviation)
            plan.look(number, volume)
            if number:
                unchanged = unchanged[deviation[unchanged] == 0]
            if not np.isfinite(row).all():
                broken |= ~np.isfinite(deviation)
    constant = np.zeros(len(voxels), dtype=bool)
    constant[unchanged] = True
    return deviations, first, constant, broken


@lru_cache(maxsize=2)  # most recordings of a dataset are on one grid, and resampling costs as much as fifty volumes
def _place_labels(
    image: Path,
    _state: tuple[int, int] | None,
    labels: tuple[int, ...],
    shape: tuple[int, ...],
    affine: tuple[float, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the parcel (1 to P, 0 for none) of every voxel in file order, and each parcel's share inside the grid."""
    values, own_affine = read_volume_labels(image)
    parcels = index_labels(values, labels)
    grid = shape, np.reshape(affine, (4, 4))
    share = share_inside(parcels, len(labels), own_affine, *grid)
    placed = resample_labels(parcels, own_affine, *grid).ravel(order="F")
    for array in (placed, share):
        array.flags.writeable = False  # the next recording is given the same
    return placed, share


_GRIDS: dict[bytes, tuple[tuple[int, ...], np.ndarray]] = {}


def _grid_of_mask(mask: Path) -> tuple[tuple[int, ...], np.ndarray]:
    image = streaming.load_header(mask)
    if (fault := streaming.header_fault(mask, image)) is not None:
        raise RecordingError(f"The mask {mask} {fault}: copy it again or rerun the step that wrote it.")
    return image.shape, image.affine


BLOCK_BYTES = 1 << 22
SAMPLED = 10
"""One grayordinate in ten stands for all in mean and DVARS, which are compared with a table, to a per cent."""


def average_grayordinates(bold: Path, header: streaming.HeaderSummary, atlases: Sequence[Atlas]) -> Parcellation:
    """All atlases side by side. Raises RecordingError."""
    from scipy import sparse  # slow to load, and few recordings need it

    members, labelled = [], []  # who belongs where (P, G), and the size of each parcel in the atlas
    for atlas in atlases:
        aligned, parcels = align_grayordinates(bold, header.grayordinates, atlas)
        columns = np.flatnonzero(aligned)
        entries = np.ones(len(columns)), (aligned[columns] - 1, columns)
        members.append(sparse.csc_array(entries, shape=(atlas.n_parcels, len(aligned))))
        labelled.append(np.bincount(parcels, minlength=atlas.n_parcels + 1)[1:])
    membership = sparse.csc_array(sparse.vstack(members))
    sums = np.zeros((membership.shape[0], header.n_volumes))
    n_used = np.zeros(membership.shape[0], dtype=int)
    sample = _Sample(sums.shape[1])
    for rows, block in read_grayordinates(bold, header):
        series = block.astype(np.float64)
        usable = np.isfinite(series).all(axis=1) & (series != series[:, :1]).any(axis=1)
        part = membership[:, rows][:, usable]
        sums += part @ series[usable]
        n_used += part.sum(axis=1).astype(int)
        sample.add(series[usable])
    n_labelled = np.concatenate(labelled)
    with np.errstate(invalid="ignore"):  # 0 / 0 is the NaN of a parcel without signal
        means = (sums / n_used[:, None]).T
    return Parcellation(means, n_used / np.maximum(n_labelled, 1), n_labelled, n_used, sample.figures())


class _Sample:
    """Figures per volume from blocks of whole series."""

    def __init__(self, n_volumes: int) -> None:
        self.total, self.squares, self.farthest = np.zeros((3, n_volumes))
        self.count = 0

    def add(self, series: np.ndarray) -> None:
        """Add series (n, T) without NaN."""
        if len(series):
            np.maximum(self.farthest, np.abs(series - series[:, :1]).max(axis=0), out=self.farthest)
        some = series[::SAMPLED]
        self.count += len(some)
        self.total += some.sum(axis=0)
        self.squares[1:] += np.square(np.diff(some, axis=1)).sum(axis=0)

    def figures(self) -> streaming.VolumeFigures:
        """Return mean, root mean square change and largest change."""
        count = max(self.count, 1)
        dvars = np.sqrt(self.squares / count)
        dvars[0] = np.nan
        return streaming.VolumeFigures(self.total / count, dvars, self.farthest)


def read_grayordinates(path: Path, header: streaming.HeaderSummary) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield blocks of whole series, a few MB at a time. Returns block (rows, T). Raises RecordingError."""
    n_volumes, n_grayordinates = header.shape
    at_once = max(1, BLOCK_BYTES // (n_volumes * header.dtype.itemsize))
    stored = np.empty((at_once, n_volumes), dtype=header.dtype)
    try:
        with streaming.open_stored(path) as stream:
            stream.seek(header.offset)
            for start in range(0, n_grayordinates, at_once):
                block = stored[: n_grayordinates - start]
                streaming.fill(stream, block)
                yield slice(start, start + len(block)), block
    except streaming.DAMAGED as error:
        raise RecordingError(
            f"{path} is truncated or damaged ({error}). Copy it again or rerun the step that wrote it."
        ) from error


def align_grayordinates(bold: Path, axis: Any, atlas: Atlas) -> tuple[np.ndarray, np.ndarray]:
    """Return the parcel of each grayordinate of the recording, and of each of the atlas. Raises RecordingError."""
    labels, atlas_axis, _ = read_grayordinate_labels(atlas.image)
    parcels = index_labels(labels, atlas.labels)
    try:
        return align_labels(parcels, atlas_axis, axis), parcels
    except Unfit as error:
        raise RecordingError(
            f"{bold} and the atlas {atlas.image} do not describe the same grayordinates ({error}): "
            "use the atlas of this surface and density."
        ) from error


def read_parcellated(path: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    """Read a parcellated CIFTI file. Returns values (T, P). Raises RecordingError."""
    image, values = streaming.read_image(path)
    try:
        axes = [image.header.get_axis(number) for number in range(image.ndim if hasattr(image, "nifti_header") else 0)]
    except (AttributeError, KeyError, ValueError) as error:
        raise RecordingError(f"{path} is damaged ({error}): fetch or copy it again.") from error
    if not axes or not isinstance(axes[-1], ParcelsAxis):
        raise RecordingError(f"{path} is not parcellated. Give a ptseries or pconn file.")
    return values.astype(np.float64), tuple(str(name) for name in axes[-1].name)


def encode_parcels(values: np.ndarray, atlas: Atlas, repetition_time: float | None = None) -> bytes:
    """Return series (T, P) over the parcels of a ``dlabel`` as a CIFTI ``ptseries``, a matrix (P, P) as a ``pconn``.

    In single precision, as Workbench stores them; series have seconds between volumes.
    """
    stat, rows = atlas.image.stat(), None
    if repetition_time is not None:
        rows = SeriesAxis(0, repetition_time, len(values), unit="SECOND")
    parcels = _read_parcels(atlas.image, stat.st_size, stat.st_mtime_ns, atlas.labels, atlas.names)
    image = Cifti2Image(np.asarray(values, dtype=np.float32), header=(rows or parcels, parcels))
    image.nifti_header.set_intent("ConnParcelSries" if rows else "ConnParcels")
    return bytes(image.to_bytes())


@lru_cache(maxsize=8)
def _read_parcels(image: Path, size: int, time: int, labels: tuple[int, ...], names: tuple[str, ...]) -> ParcelsAxis:
    """Collect vertices and voxels of every parcel, once per process as long as size and time of the image stay."""
    values, axis, _ = read_grayordinate_labels(image)
    parcels = index_labels(values, labels)
    order = np.argsort(parcels, kind="stable")
    bounds = np.searchsorted(parcels[order], np.arange(1, len(labels) + 2))
    members = [np.sort(order[start:end]) for start, end in itertools.pairwise(bounds)]
    volume = axis.volume_mask
    voxels = [axis.voxel[rows[volume[rows]]] for rows in members]
    vertices = []
    for rows in members:
        surface = rows[~volume[rows]]
        structures = axis.name[surface]
        vertices.append({str(name): axis.vertex[surface[structures == name]] for name in np.unique(structures)})
    return ParcelsAxis(list(names), voxels, vertices, axis.affine, axis.volume_shape, dict(axis.nvertices))
