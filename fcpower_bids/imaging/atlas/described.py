"""An atlas as one file, which is found and read once for every step and for any other workflow."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from numpy.typing import NDArray

from fcpower_bids.imaging.atlas.datasets import parse_name
from fcpower_bids.imaging.atlas.loading import load_atlas
from fcpower_bids.records import Atlas
from fcpower_bids.store import known_digest, load_json, write_bytes


def atlas_digest(atlas: Atlas) -> str:
    """Return sixteen characters that differ whenever an atlas says something else, wherever its image lies."""
    digest = hashlib.sha256(bytes.fromhex(known_digest(atlas.image)))
    fields = dataclasses.asdict(atlas)
    del fields["image"]
    digest.update(json.dumps(fields, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def describe_atlas(atlas: Atlas, folder: Path) -> Path:
    """Write an atlas as JSON under a name made from its content; a file that is there already is right."""
    fields = {**dataclasses.asdict(atlas), "image": str(atlas.image)}
    content = json.dumps({**fields, "digest": atlas_digest(atlas)}, indent=1, ensure_ascii=False).encode()
    path = folder / f"{atlas.name}_{hashlib.sha256(content).hexdigest()[:16]}.json"
    return path if path.is_file() and path.read_bytes() == content else write_bytes(path, content)


def open_atlas(path: Path) -> Atlas:
    """Return the atlas of a file of :func:`describe_atlas`, or of a label image with its table. Raises UsageError."""
    stat = Path(path).stat()
    return _open(Path(path), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=16)
def _open(path: Path, size: int, time: int) -> Atlas:
    """Read a file once per process as long as its size and time stay."""
    if path.suffix != ".json":
        found = parse_name(path)
        return load_atlas(str(path), found.space or "unknown", cifti=found.is_cifti)
    fields: dict[str, Any] = load_json(path)
    fields.pop("digest")
    entities = tuple((key, value) for key, value in fields.pop("entities"))
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return Atlas(**{**fields, **lists, "entities": entities, "image": Path(fields["image"])})


def parcel_centroids(image: Path, labels: Sequence[int]) -> NDArray[np.float64]:
    """Return the centre of mass of every parcel, in the millimetres of the image's space. Returns (P, 3)."""
    places, values = _voxels(nib.load(image))
    order = np.argsort(labels)
    which = np.searchsorted(np.asarray(labels)[order], values)
    which = np.minimum(which, len(labels) - 1)
    known = np.asarray(labels)[order][which] == values
    parcel, places = order[which[known]], places[known]
    count = np.bincount(parcel, minlength=len(labels)).astype(float)
    count[count == 0] = np.nan
    sums = [np.bincount(parcel, weights=places[:, axis], minlength=len(labels)) for axis in range(3)]
    return np.stack(sums, axis=1) / count[:, None]


def _voxels(image: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return place in mm and label of every labelled voxel."""
    if isinstance(image, nib.Cifti2Image):
        axis = image.header.get_axis(1)
        ofvolume = axis.volume_mask
        values = np.asarray(image.dataobj)[0].astype(np.int64)[ofvolume]
        index, affine = axis.voxel[ofvolume], axis.affine
        if affine is None:
            return np.empty((0, 3)), np.empty(0, np.int64)
    else:
        volume = np.asarray(image.dataobj)
        volume = volume.reshape(volume.shape[:3])
        index, affine = np.argwhere(np.ascontiguousarray(volume != 0)), image.affine  # else ten times slower
        values = volume[tuple(index.T)].astype(np.int64)
    return nib.affines.apply_affine(affine, index), values
