"""Parcellated CIFTI: series and matrices whose rows know the grayordinates of their parcels."""

from __future__ import annotations

import itertools
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from nibabel.cifti2 import BrainModelAxis, Cifti2Image, ParcelsAxis, SeriesAxis

from fcpower_bids.imaging.atlas.label_images import index_labels, read_grayordinate_labels
from fcpower_bids.records import Atlas

STORED = np.float32
"""As Workbench stores them."""


def encode_ptseries(series: np.ndarray, atlas: Atlas, repetition_time: float) -> bytes:
    """Return parcel series as a CIFTI ``ptseries``. Shapes and units: series (T, P), repetition_time (seconds)."""
    return _encode(series, (SeriesAxis(0, repetition_time, len(series), unit="SECOND"), _parcels(atlas)))


def encode_pconn(matrix: np.ndarray, atlas: Atlas) -> bytes:
    """Return a matrix (P, P) over the parcels of a ``dlabel`` as a CIFTI ``pconn`` in float32."""
    axis = _parcels(atlas)
    return _encode(matrix, (axis, axis))


def _encode(values: np.ndarray, axes: tuple[Any, ...]) -> bytes:
    image = Cifti2Image(np.asarray(values, dtype=STORED), header=axes)
    image.nifti_header.set_intent("ConnParcels" if axes[0] is axes[1] else "ConnParcelSries")
    return bytes(image.to_bytes())


def _parcels(atlas: Atlas) -> ParcelsAxis:
    stat = atlas.image.stat()
    return _read_parcels(atlas.image, stat.st_size, stat.st_mtime_ns, atlas.labels, atlas.names)


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
    vertices = [_vertices(axis, rows[~volume[rows]]) for rows in members]
    return ParcelsAxis(list(names), voxels, vertices, axis.affine, axis.volume_shape, dict(axis.nvertices))


def _vertices(axis: BrainModelAxis, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the vertices of some rows by surface."""
    structures = axis.name[rows]
    return {str(name): axis.vertex[rows[structures == name]] for name in np.unique(structures)}
