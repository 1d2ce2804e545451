"""Parcel sums of a CIFTI ``dtseries``, a block of grayordinates at a time, by one sparse matrix for all atlases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from nibabel.cifti2 import Cifti2Image, ParcelsAxis, SeriesAxis

from fcpower_bids.errors import RecordingError, Unfit
from fcpower_bids.imaging.labels import align_labels, index_labels, read_grayordinate_labels
from fcpower_bids.imaging.streaming import DAMAGED, HeaderSummary, VolumeFigures, fill, open_stored
from fcpower_bids.records import Atlas

BLOCK_BYTES = 1 << 22
SAMPLED = 10
"""One grayordinate in ten stands for all in mean and DVARS, which are compared with a table, to a per cent."""


def average_grayordinates(
    bold: Path, header: HeaderSummary, atlases: Sequence[Atlas]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, VolumeFigures]:
    """Means (T, P), coverage (P,), labelled and used grayordinates (P,) of every atlas. Raises RecordingError."""
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
        return (sums / n_used[:, None]).T, n_used / np.maximum(n_labelled, 1), n_labelled, n_used, sample.figures()


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

    def figures(self) -> VolumeFigures:
        """Return mean, root mean square change and largest change."""
        count = max(self.count, 1)
        dvars = np.sqrt(self.squares / count)
        dvars[0] = np.nan
        return VolumeFigures(self.total / count, dvars, self.farthest)


def read_grayordinates(path: Path, header: HeaderSummary) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield blocks of whole series, a few MB at a time. Returns block (rows, T). Raises RecordingError."""
    n_volumes, n_grayordinates = header.shape
    at_once = max(1, BLOCK_BYTES // (n_volumes * header.dtype.itemsize))
    stored = np.empty((at_once, n_volumes), dtype=header.dtype)
    try:
        with open_stored(path) as stream:
            stream.seek(header.offset)
            for start in range(0, n_grayordinates, at_once):
                block = stored[: n_grayordinates - start]
                fill(stream, block)
                yield slice(start, start + len(block)), block
    except DAMAGED as error:
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
    try:
        image = nibabel.load(path)
        axes = [image.header.get_axis(number) for number in range(image.ndim)]  # type: ignore[attr-defined]
        values = np.asarray(image.dataobj, dtype=np.float64)  # type: ignore[attr-defined]
    except (OSError, ValueError, AttributeError, KeyError, nibabel.filebasedimages.ImageFileError) as error:
        raise RecordingError(f"{path} cannot be read as CIFTI ({error}). Copy it again.") from None
    if not isinstance(axes[-1], ParcelsAxis):
        raise RecordingError(f"{path} is not parcellated. Give a ptseries or pconn file.")
    return values, tuple(str(name) for name in axes[-1].name)


def encode_ptseries(series: np.ndarray, atlas: Atlas, repetition_time: float) -> bytes:
    """Return parcel series as a CIFTI ``ptseries``. Shapes and units: series (T, P), repetition_time (seconds)."""
    return _encode(series, atlas, SeriesAxis(0, repetition_time, len(series), unit="SECOND"))


def encode_pconn(matrix: np.ndarray, atlas: Atlas) -> bytes:
    """Return a matrix (P, P) over the parcels of a ``dlabel`` as a CIFTI ``pconn``."""
    return _encode(matrix, atlas)


def _encode(values: np.ndarray, atlas: Atlas, rows: SeriesAxis | None = None) -> bytes:
    """In single precision, as Workbench stores them."""
    stat = atlas.image.stat()
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
