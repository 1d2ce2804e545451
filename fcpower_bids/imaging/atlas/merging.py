"""Two parcellations as one: the labels of the first, then those of the second where the first has none."""

from __future__ import annotations

import gzip
import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import nibabel
import numpy as np
from nibabel.cifti2 import Cifti2Image, LabelAxis

from fcpower_bids.errors import Unfit, UsageError
from fcpower_bids.imaging.atlas.label_images import (
    align_labels,
    index_labels,
    is_cifti_labels,
    read_grayordinate_labels,
    read_volume_labels,
)
from fcpower_bids.imaging.atlas.tables import encode_table, make_table
from fcpower_bids.imaging.grids import resample_labels
from fcpower_bids.records import Atlas, Entities
from fcpower_bids.store import write_bytes

LOGGER = logging.getLogger(__name__)


class _Part(NamedTuple):
    """Parcel indices (1 to P) and where they are: an affine, or a brain model axis."""

    parcels: np.ndarray
    place: Any


def merge_atlases(parts: Sequence[Atlas], cache: Path, entities: Entities | None = None) -> Atlas:
    """Merge atlases of one space into one label image, written to a folder.

    Parcels are numbered 1, 2, ... through the parts in their order. A voxel that several parts claim stays with the
    first; how many there are is logged and stated in ``source``. The grid is that of the part with most voxels
    (grayordinates); the others are carried to it.

    Raises UsageError.
    """
    read = [_read_part(part) for part in parts]
    host = max(read, key=lambda part: part.parcels.size)
    merged = np.zeros(host.parcels.shape, dtype=np.int32)
    start, n_claimed_twice = 0, 0
    for part, one in zip(parts, read, strict=True):
        carried = _carry(part, one, host)
        claimed = carried > 0
        n_claimed_twice += int(np.sum(claimed & (merged > 0)))
        merged = np.where(claimed & (merged == 0), carried + start, merged)
        start += part.n_parcels
    table = make_table(
        range(1, start + 1),
        [name for part in parts for name in part.names],
        [network for part in parts for network in part.networks],
        [hemisphere for part in parts for hemisphere in part.hemispheres],
        origin=parts[0].image,
    )
    _report_losses(parts, merged, table.names, n_claimed_twice)
    entities = entities or merged_entities(parts)
    cifti = is_cifti_labels(parts[0].image)
    content = _encode_cifti(merged, host.place, table.names) if cifti else _encode_nifti(merged, host.place)
    digest = hashlib.sha256(content + encode_table(table)).hexdigest()[:8]
    name = "_".join([f"tpl-{parts[0].space}", *(f"{k}-{v}" for k, v in entities), f"desc-{digest}_dseg"])
    image = cache / f"{name}{'.dlabel.nii' if cifti else '.nii.gz'}"
    for path, bytes_ in ((cache / f"{name}.tsv", encode_table(table)), (image, content)):
        if not path.is_file():
            write_bytes(path, bytes_)
    return Atlas(
        entities=entities,
        image=image,
        space=parts[0].space,
        **table._asdict(),
        source=f"merged: {' + '.join(part.source for part in parts)}; {n_claimed_twice} voxels claimed by several",
        licence="; ".join(dict.fromkeys(part.licence for part in parts)),
        citation="; ".join(dict.fromkeys(part.citation for part in parts)),
    )


def merged_entities(parts: Sequence[Atlas]) -> Entities:
    """Name a merged atlas: ``TianS3`` and ``Schaefer2018 7n 400`` become ``TianS3Schaefer2018 7n 450``."""
    values = [dict(part.entities) for part in parts]
    segs = "".join(dict.fromkeys(one["seg"] for one in values if "seg" in one))
    scale = str(sum(part.n_parcels for part in parts))
    named = {"atlas": "".join(one["atlas"] for one in values), "seg": segs, "scale": scale}
    return tuple((key, value) for key, value in named.items() if value)


def _read_part(atlas: Atlas) -> _Part:
    place: Any
    if is_cifti_labels(atlas.image):
        labels, place, _ = read_grayordinate_labels(atlas.image)
    else:
        labels, place = read_volume_labels(atlas.image)
    return _Part(index_labels(labels, atlas.labels), place)


def _carry(atlas: Atlas, part: _Part, host: _Part) -> np.ndarray:
    if part.parcels.ndim != host.parcels.ndim:
        raise UsageError(f"The part {atlas.image} is not of the same kind as the others: merge NIfTI with NIfTI only.")
    if part.parcels.ndim == 3:
        return resample_labels(part.parcels, part.place, host.parcels.shape, host.place)
    try:
        return align_labels(part.parcels, part.place, host.place)
    except Unfit as error:
        raise UsageError(f"The part {atlas.image} cannot be merged with the others: {error}.") from error


def _report_losses(parts: Sequence[Atlas], merged: np.ndarray, names: Sequence[str], n_claimed_twice: int) -> None:
    whole = " + ".join(part.name for part in parts)
    if n_claimed_twice:
        LOGGER.warning("Merging %s: %d voxels are claimed by several; the first keeps them.", whole, n_claimed_twice)
    counts = np.bincount(merged.ravel(), minlength=len(names) + 1)[1:]
    lost = [name for name, count in zip(names, counts, strict=True) if count == 0]
    if lost:
        LOGGER.warning("Merging %s leaves no voxel to: %s.", whole, ", ".join(lost))


def _encode_nifti(labels: np.ndarray, affine: np.ndarray) -> bytes:
    image = nibabel.Nifti1Image(labels.astype(np.int16 if labels.max() < 2**15 else np.int32), affine)
    return gzip.compress(image.to_bytes(), mtime=0)


def _encode_cifti(labels: np.ndarray, axis: Any, names: Sequence[str]) -> bytes:
    table = {0: ("???", (1.0, 1.0, 1.0, 0.0))} | {k: (name, (0.5, 0.5, 0.5, 1.0)) for k, name in enumerate(names, 1)}
    header = (LabelAxis(["parcels"], [table]), axis)
    return Cifti2Image(labels[None].astype(np.float32), header=header).to_bytes()
