"""The fastest inflater at hand, and what a damaged image raises somewhere below it."""

from __future__ import annotations

import gzip
import struct
import zlib

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
