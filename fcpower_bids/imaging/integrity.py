"""The one gate for images: whole, what the header says, and with a place for every voxel.

A gzip stream ends with a checksum of its content, which readers of images never reach: they stop at the last voxel.
A mask or an atlas that was damaged on the way would be taken for a sound one with other content.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from nibabel.filebasedimages import ImageFileError
from nibabel.spatialimages import HeaderDataError, HeaderTypeError

InflateError: type[Exception]
try:
    from isal import igzip, isal_zlib
except ImportError:
    open_gzip, InflateError = gzip.open, zlib.error
else:
    open_gzip, InflateError = igzip.open, isal_zlib.error  # type: ignore[assignment]

DAMAGED: tuple[type[Exception], ...] = (
    *(EOFError, OSError, ValueError, MemoryError, struct.error, zlib.error, InflateError),
    *(ImageFileError, HeaderDataError, HeaderTypeError),
)
"""Exceptions of nibabel, the inflater or the file system for a truncated or overwritten image."""


NIFTI = (nibabel.Nifti1Image, nibabel.Nifti2Image)
PIECE = 1 << 20


def header_fault(path: Path, image: Any) -> str | None:
    """Say what is wrong with the header of a NIfTI or CIFTI file, or with its size; None when nothing is."""
    is_cifti = hasattr(image, "nifti_header")
    if not is_cifti and not isinstance(image, NIFTI):
        return None
    header: Any = image.nifti_header if is_cifti else image.header
    if image.dataobj.offset < header.single_vox_offset:
        return f"is damaged: its header says that the data begin at byte {image.dataobj.offset}, within the header"
    if not is_cifti and not (int(header["qform_code"]) or int(header["sform_code"])):
        return "does not say where its voxels are (qform_code and sform_code are 0)"
    if not path.name.endswith(".gz") and (size := path.stat().st_size) != (declared := _declared_bytes(image, header)):
        short = "is truncated: it " if size < declared else ""
        return f"{short}has {size} bytes where its header declares {declared}"
    return None


def content_fault(path: Path, image: Any) -> str | None:
    """Name the fault of a small image, read to its last byte; None when it is whole."""
    fault = header_fault(path, image)
    if fault is not None or not path.name.endswith(".gz"):
        return fault
    stat = path.stat()
    try:
        inflated = _inflated_bytes(path, stat.st_size, stat.st_mtime_ns)
    except DAMAGED as error:
        return f"is truncated or damaged ({error})"
    if isinstance(image, NIFTI):
        declared = _declared_bytes(image, image.header)
        if inflated != declared:
            return f"has {inflated} bytes where its header declares {declared}"
    return None


def _declared_bytes(image: Any, header: Any) -> int:
    return int(image.dataobj.offset) + int(np.prod(image.shape, dtype=np.int64)) * int(header.get_data_dtype().itemsize)


@lru_cache
def _inflated_bytes(path: Path, size: int, time: int) -> int:
    """Inflate to the end, which verifies the checksum; an atlas once for all recordings of a process."""
    total = 0
    with open_gzip(path, "rb") as stream:
        while piece := stream.read(PIECE):
            total += len(piece)
    return total
