"""The one gate for images; a recording is read volume by volume, with slices for the page, and never held.

Inflating the gzip stream is the floor of what parcellation can cost, so the inflater is the fastest at hand
(``isal``; the standard library where a platform lacks it) and everything else touches a volume once. The stream ends
with a checksum of its content, which readers of images never reach: they stop at the last voxel, and a mask or an
atlas that was damaged on the way would be taken for a sound one with other content.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import nibabel
import numpy as np
from nibabel.cifti2 import BrainModelAxis, SeriesAxis
from nibabel.filebasedimages import ImageFileError
from nibabel.spatialimages import HeaderDataError, HeaderTypeError

from fcpower_bids.errors import FcPowerError, RecordingError
from fcpower_bids.records import Slices

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


SECONDS = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6}
LONGEST_PLAUSIBLE_TR = 30.0
Found = TypeVar("Found")


class HeaderSummary(NamedTuple):
    """Facts from the header of a recording; no data are read."""

    shape: tuple[int, ...]  # as in the file: (X, Y, Z, T) for NIfTI, (T, G) for CIFTI
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


def load_header(path: Path, what: str = "", refuse: type[FcPowerError] = RecordingError) -> Any:
    """Return the nibabel image of a file, its data unread. Raises RecordingError, or what is given."""
    try:
        return nibabel.load(path)
    except FileNotFoundError:
        raise refuse(f"{what}{path} does not exist: check the path or rerun the step that writes it.") from None
    except DAMAGED as error:
        raise refuse(
            f"{what}{path} cannot be read as an image ({error}): copy it again or rerun the step that wrote it."
        ) from error


def read_image(path: Path, what: str = "", refuse: type[FcPowerError] = RecordingError) -> tuple[Any, np.ndarray]:
    """Return a small image and its values, read to its last byte. Raises RecordingError, or what is given."""
    image = load_header(path, what, refuse)
    try:
        if (fault := content_fault(path, image)) is None:
            return image, np.asanyarray(image.dataobj)
    except DAMAGED + (AttributeError, KeyError) as error:  # noqa: RUF005  # GIFTI has no volume
        fault = f"is truncated or damaged ({error})"
    raise refuse(f"{what}{path} {fault}: fetch or copy it again.")


def header_summary(path: Path) -> HeaderSummary:
    """Return shape, repetition time and storage of a BOLD recording. Raises RecordingError."""
    return read_alike(Path(path), _read_summary, _ALIKE)


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
    unit = image.header.get_xyzt_units()[1]
    # the decimal that is meant: single precision makes of 2.2 s 2.200000048, which no other run has
    step = float(str(np.float32(image.header.get_zooms()[3])))
    # without a unit it is taken as seconds when it can be a repetition time, never guessed otherwise
    seconds = {**SECONDS, "unknown": 1.0 if step < LONGEST_PLAUSIBLE_TR else np.nan}.get(unit, np.nan) * step
    return HeaderSummary(
        shape=image.shape,
        n_volumes=image.shape[3],
        repetition_time=seconds if np.isfinite(seconds) and seconds > 0 else None,
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
        n_volumes=image.shape[0],
        repetition_time=step if step > 0 else None,
        dtype=image.nifti_header.get_data_dtype(),
        affine=None,
        offset=image.dataobj.offset,
        scaling=(float(image.dataobj.slope), float(image.dataobj.inter)),
        grayordinates=grayordinates,
    )


def read_volumes(path: Path, header: HeaderSummary) -> Iterator[np.ndarray]:
    """Yield the volumes (X * Y * Z,) of a NIfTI recording. Raises RecordingError."""
    n_read = 0
    try:
        stored = np.empty(int(np.prod(header.shape[:3])), dtype=header.dtype)
        with open_stored(path) as stream:
            stream.seek(header.offset)
            for _ in range(header.n_volumes):
                fill(stream, stored)
                n_read += 1
                yield stored
            # The checksum of a gzip stream comes after its last byte: reading on is what verifies it.
            if stream.read(1):
                raise EOFError("more data follow than its header declares")
    except DAMAGED as error:
        raise RecordingError(
            f"{path} is truncated or damaged: {n_read} of its {header.n_volumes} volumes could be read "
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


SAMPLE = 8000
"""Voxels: mean and DVARS of these are compared with a table, to a per cent."""


class VolumeFigures(NamedTuple):
    """Measurements of every volume while it streams by, to be compared with the table of the recording."""

    global_signal: np.ndarray  # (T,): mean over the brain; NaN where it has no finite value
    # (T,): root mean square change of the voxels of the brain from the volume before; NaN for the first
    dvars: np.ndarray
    farthest: np.ndarray  # (T,): largest change of any voxel of a parcel against the first volume

    def scaled(self, slope: float, intercept: float) -> VolumeFigures:
        """Return them in the units of the signal."""
        size = abs(slope)
        return VolumeFigures(self.global_signal * slope + intercept, self.dvars * size, self.farthest * size)


class BrainSample:
    """Figures of one pass over a recording; the voxels are places in the file, shape (V,)."""

    def __init__(self, voxels: np.ndarray, n_volumes: int) -> None:
        self.voxels, self.before = voxels, np.empty(0)
        self.figures = VolumeFigures(*np.full((3, n_volumes), np.nan))

    def add(self, number: int, volume: np.ndarray, deviation: np.ndarray) -> None:
        """Add one volume, and the changes of the voxels of parcels against the first."""
        self.figures.farthest[number] = max(deviation.max(), -deviation.min()) if len(deviation) else 0.0
        if not len(self.voxels):
            return
        values = volume.take(self.voxels).astype(np.float64)
        self.figures.global_signal[number] = values.mean()
        if number:
            self.figures.dvars[number] = np.sqrt(np.square(values - self.before).mean())
        self.before = values


N_SLICES = 7
LARGEST = 110
"""Voxels of a slice along its longer side; finer grids are thinned out."""
MARGIN = 2
SETTLING = 10
"""Volumes at the start in which the magnetisation may not be steady yet; they do not count where there are enough."""
ALIGNED = 0.95


class SlicePlan:
    """Which voxels are shown: axial slices evenly over brain and parcels, (X * Y * Z,) each."""

    def __init__(
        self, header: HeaderSummary, brain: np.ndarray, in_parcels: np.ndarray, tissue: np.ndarray, dice: float
    ) -> None:
        depth, height, width = header.shape[2::-1]
        self.affine = np.asarray(header.affine)
        shown = (brain | in_parcels).reshape(depth, height, width)
        *used, tall = (np.flatnonzero(shown.any(axis=axes)) for axes in ((0, 1), (0, 2), (1, 2)))
        spans = [
            np.arange(max(0, places[0] - MARGIN), min(size, places[-1] + MARGIN + 1))
            for places, size in zip(used, (width, height), strict=True)
        ]
        step = -(-max(map(len, spans)) // LARGEST)
        # the person's left on the left, the front of the head on top
        turned = self.affine[0, 0] < 0, self.affine[1, 1] > 0
        x, y = (span[::step][:: -1 if turn else 1] for span, turn in zip(spans, turned, strict=True))
        self.places = np.unique(np.linspace(tall[0], tall[-1], N_SLICES + 2)[1:-1].round().astype(int))
        self.voxels = x + width * (y[:, None] + height * self.places[:, None, None])
        self.start = SETTLING if header.n_volumes > 4 * SETTLING else 0
        self.brain, self.template, self.dice = brain.take(self.voxels), tissue.take(self.voxels), np.array(dice)
        self.volume = np.full(self.voxels.shape, np.nan)

    def look(self, number: int, volume: np.ndarray) -> None:
        """Keep the first volume that counts."""
        if number == self.start:
            self.volume = volume.take(self.voxels).astype(np.float64)

    def finish(self, placed: Sequence[np.ndarray], scaling: tuple[float, float]) -> list[Slices | None]:
        """Return the slices under each atlas; None where the grid is oblique. Shapes and units: placed (X * Y * Z,)."""
        axes = self.affine[:3, :3] / np.linalg.norm(self.affine[:3, :3], axis=0)
        if not (np.abs(np.diag(axes)) > ALIGNED).all():  # its axes are not those of the template
            return [None] * len(placed)
        slope, intercept = scaling
        volume = np.where(np.isfinite(self.volume), self.volume * slope + intercept, np.nan).astype(np.float32)
        z = self.affine[2, 2] * self.places + self.affine[2, 3]
        parcels = (labels.take(self.voxels).astype(np.uint16) for labels in placed)
        return [Slices(volume, self.brain, labels, self.template, z, self.dice) for labels in parcels]
