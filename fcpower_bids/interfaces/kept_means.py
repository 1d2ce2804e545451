"""Stored parcel means: names of their files, and their removal."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Container
from pathlib import Path

from fcpower_bids._version import __version__
from fcpower_bids.imaging.atlas.described import atlas_digest
from fcpower_bids.interfaces.bundles import is_sound, load_bundle
from fcpower_bids.outputs.status import file_state
from fcpower_bids.records import Atlas

CONTENT = 3
"""Of these files; those of another number are not read."""


def means_path(folder: Path, bold: Path, mask: Path | None, atlas: Atlas) -> Path:
    """Return where the parcel means of a recording are kept; the name changes with all that they depend on.

    These are name, size, time and checksum of series and mask, the content of the atlas, and the version.
    """
    states = [(path.name, file_state(path)) for path in (bold, mask) if path is not None]
    key = hashlib.sha256(repr((__version__, CONTENT, states, atlas_digest(atlas))).encode()).hexdigest()[:16]
    return folder / f"{_stem(bold, atlas)}_{key}.npz"


def _stem(bold: Path, atlas: Atlas) -> str:
    """Return names that a person recognises, short enough for a file's."""
    return f"{bold.name.partition('.')[0][:120]}_{atlas.name[:80]}"


def remove_outdated(path: Path, bold: Path, atlas: Atlas) -> None:
    """Remove what the same file gave when it was another; a file of the same name elsewhere is left alone."""
    for other in path.parent.glob(f"{glob.escape(_stem(bold, atlas))}_{'?' * 16}.npz"):
        if other != path and _source(other) == str(bold):
            other.unlink(missing_ok=True)


def remove_means(folder: Path, series: Container[str]) -> None:
    """Remove what is kept of these series, whatever atlas or version it was made with."""
    for path in folder.glob("*.npz"):
        if _source(path) in series:
            path.unlink(missing_ok=True)


def _source(path: Path) -> str | None:
    """The series that parcel means are of; None where the file is damaged."""
    return str(load_bundle(path)[1]["bold"]) if is_sound(path) else None
