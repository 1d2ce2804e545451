"""Read a recording volume by volume: the 4-D image is never held.

Inflating the gzip stream is the floor of what parcellation can cost, so the inflater is the fastest at hand
(``isal``; the standard library where a platform lacks it) and everything else touches a volume once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import nibabel
import numpy as np
from nibabel.cifti2 import BrainModelAxis, SeriesAxis

from fcpower_bids.errors import RecordingError
from fcpower_bids.imaging.integrity import DAMAGED, header_fault, open_gzip

SECONDS = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6}
LONGEST_PLAUSIBLE_TR = 30.0
Found = TypeVar("Found")


class HeaderSummary(NamedTuple):
    """Facts from the header of a recording; no data are read."""

    shape: tuple[int, ...]  # as in the file: (X, Y, Z, T) for NIfTI, (T, G) for CIFTI
    zooms: tuple[float, ...]  # voxel sizes in mm; empty for CIFTI
    n_volumes: int  # T
    repetition_time: float | None  # seconds; None where the header does not say
    dtype: np.dtype  # of the stored values, with their byte order
    affine: np.ndarray | None  # (4, 4) or None: voxel to mm; None for CIFTI
    offset: int  # bytes before the first stored value
    scaling: tuple[float, float]  # (slope, intercept): value = slope * stored + intercept
    # axis of the rows of a CIFTI file (parsing it twice would cost as much as the data); None for NIfTI
    grayordinates: BrainModelAxis | None = None

    @property
    def grid(self) -> tuple[tuple[int, ...], np.ndarray]:
        """(X, Y, Z) and affine of a NIfTI recording."""
        return self.shape[:3], np.asarray(self.affine)


def load_header(path: Path) -> Any:
    """Return the nibabel image of a file, its data unread. Raises RecordingError."""
    try:
        return nibabel.load(path)
    except FileNotFoundError:
        raise RecordingError(f"{path} does not exist: check the path or rerun the step that writes it.") from None
    except DAMAGED as error:
        raise RecordingError(
            f"{path} cannot be read as an image ({error}): copy it again or rerun the step that wrote it."
        ) from error


def header_summary(path: Path) -> HeaderSummary:
    """Return shape, voxel sizes, repetition time and storage of a BOLD recording. Raises RecordingError."""
    try:
        state = os.stat(path)
    except OSError:
        return _read_summary(Path(path))
    key = (str(path), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    if key not in _SUMMARIES:
        summary = read_alike(Path(path), _read_summary, _ALIKE)
        if summary.grayordinates is not None:  # megabytes
            return summary
        if len(_SUMMARIES) >= MOST_SUMMARIES:
            _SUMMARIES.clear()
        _SUMMARIES[key] = summary
    return _SUMMARIES[key]


_SUMMARIES: dict[tuple[str, int, int, int, int], HeaderSummary] = {}
_ALIKE: dict[bytes, HeaderSummary] = {}
MOST_SUMMARIES = 20_000
STARTS = (b"\x5c\x01\0\0", b"\0\0\x01\x5c")
"""The first bytes of NIfTI-1: the size of its header, 348, in either order."""


def read_alike(path: Path, read: Callable[[Path], Found], known: dict[bytes, Found]) -> Found:
    """Return what ``read`` says of a file from its header alone; of compressed NIfTI once for all equal headers."""
    start = b""
    if path.name.endswith(".nii.gz"):
        with suppress(*DAMAGED), open_gzip(path, "rb") as stream:
            start = stream.read(352)
    if not start.startswith(STARTS) or start[348:] != bytes(4):  # other formats, and extensions after the header
        return read(path)
    if start not in known:
        if len(known) >= MOST_SUMMARIES:
            known.clear()
        known[start] = read(path)
    return known[start]


def _read_summary(path: Path) -> HeaderSummary:
    image = load_header(path)
    if (fault := header_fault(path, image)) is not None:
        raise RecordingError(f"{path} {fault}: copy it again or rerun the step that wrote it.")
    if not hasattr(image, "nifti_header"):
        summary = _nifti_summary(path, image)
    elif path.name.endswith(".dtseries.nii"):
        summary = _cifti_summary(path, image)
    else:
        raise RecordingError(f"{path} is a CIFTI file but no dtseries: give the dense time series of the recording.")
    if summary.dtype.kind not in "iuf":
        raise RecordingError(f"{path} stores {summary.dtype} values: only real numbers can be BOLD signal.")
    return summary


def _nifti_summary(path: Path, image: Any) -> HeaderSummary:
    if not path.name.endswith((".nii", ".nii.gz")):
        raise RecordingError(f"{path} is not a .nii or .nii.gz file: convert it to NIfTI.")
    if len(image.shape) != 4 or min(image.shape) < 1:
        raise RecordingError(
            f"{path} has shape {image.shape} but a BOLD recording has four dimensions (x, y, z, time): "
            "give the whole series."
        )
    if not np.linalg.det(image.affine[:3, :3]):
        raise RecordingError(f"{path} does not say where its voxels are (its affine is singular): run fMRIPrep again.")
    zooms = image.header.get_zooms()
    return HeaderSummary(
        shape=image.shape,
        zooms=tuple(float(zoom) for zoom in zooms[:3]),
        n_volumes=image.shape[3],
        # the decimal that is meant: single precision makes of 2.2 s 2.200000048, which no other run has
        repetition_time=_seconds(float(str(np.float32(zooms[3]))), image.header.get_xyzt_units()[1]),
        dtype=image.header.get_data_dtype(),
        affine=image.affine,
        offset=image.dataobj.offset,
        scaling=(float(image.dataobj.slope), float(image.dataobj.inter)),
    )


def _cifti_summary(path: Path, image: Any) -> HeaderSummary:
    series, grayordinates = (image.header.get_axis(dimension) for dimension in (0, 1))
    if not isinstance(series, SeriesAxis) or not isinstance(grayordinates, BrainModelAxis):
        raise RecordingError(f"{path} is not (time, grayordinates): give the dense time series of the recording.")
    step = float(series.step) if series.unit == "SECOND" else 0.0
    return HeaderSummary(
        shape=image.shape,
        zooms=(),
        n_volumes=image.shape[0],
        repetition_time=step if step > 0 else None,
        dtype=image.nifti_header.get_data_dtype(),
        affine=None,
        offset=image.dataobj.offset,
        scaling=(float(image.dataobj.slope), float(image.dataobj.inter)),
        grayordinates=grayordinates,
    )


def _seconds(step: float, unit: str) -> float | None:
    """A step without a unit is taken as seconds when it can be a repetition time, never guessed otherwise."""
    if not np.isfinite(step) or step <= 0:
        return None
    if unit == "unknown":
        return step if step < LONGEST_PLAUSIBLE_TR else None
    return step * SECONDS[unit] if unit in SECONDS else None


def read_volumes(path: Path, header: HeaderSummary, n_dummy: int = 0) -> Iterator[np.ndarray]:
    """Yield the volumes (X * Y * Z,) of a NIfTI recording after the first ``n_dummy``. Raises RecordingError."""
    n_read = 0
    try:
        stored = np.empty(int(np.prod(header.shape[:3])), dtype=header.dtype)
        with open_stored(path) as stream:
            stream.seek(header.offset + n_dummy * stored.nbytes)
            for _ in range(header.n_volumes - n_dummy):
                fill(stream, stored)
                n_read += 1
                yield stored
            # The checksum of a gzip stream comes after its last byte: reading on is what verifies it.
            if stream.read(1):
                raise EOFError("more data follow than its header declares")
    except DAMAGED as error:
        raise RecordingError(
            f"{path} is truncated or damaged: {n_dummy + n_read} of its {header.n_volumes} volumes could be read "
            f"({error}). Copy it again or rerun the step that wrote it."
        ) from error


def open_stored(path: Path) -> BufferedIOBase:
    """Open an image for reading its bytes, inflated if the name says so."""
    return open_gzip(path, "rb") if path.name.endswith(".gz") else path.open("rb")


def fill(stream: BufferedIOBase, values: np.ndarray) -> None:
    """Read exactly as many bytes as the contiguous array holds: one ``readinto`` may return fewer. Raises EOFError."""
    window = values.view(np.uint8).reshape(-1).data
    filled = 0
    while filled < len(window):
        got = stream.readinto(window[filled:])
        if not got:
            raise EOFError("the file ends too early")
        filled += got
