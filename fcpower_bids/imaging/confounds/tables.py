"""Confounds tables as files: their columns by their names, each checked for what it can mean."""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.core.series import framewise_displacement
from fcpower_bids.errors import RecordingError
from fcpower_bids.imaging.table_checks import content_fault

Columns = dict[str, NDArray[np.float64]]
"""Columns of a table (T,) by their names."""

_TRANSLATIONS = ("trans_x", "trans_y", "trans_z")
_ROTATIONS = ("rot_x", "rot_y", "rot_z")
MOTION_FILE = "Movement_Regressors.txt"
"""Table of the HCP pipelines, without a header: motion in mm and degrees, and derivatives after it."""

SPREADSHEET = ('"', ";")
"""Signs of a spreadsheet program in a header: quotes, or other separators than tabs."""
NEVER_NEGATIVE = ("framewise_displacement", "dvars")
LARGEST, LARGEST_DISPLACEMENT = 1e15, 1e3
"""Beyond these (in mm, the second) a table is damaged: scanners give less than 1e6, and a head fits into a metre."""


def lines_of(content: bytes) -> list[bytes]:
    """Lines of a table, whatever they end with: old programs write carriage returns alone."""
    return content.splitlines()


def open_table(table: Path) -> tuple[list[str], bytes]:
    """Return the names of the columns, and the bytes of the file. Raises RecordingError."""
    if table.name == MOTION_FILE:
        return [*_TRANSLATIONS, *_ROTATIONS, "framewise_displacement"], b""
    try:
        content = table.read_bytes()
        fault = content_fault(content)
    except OSError as error:
        raise RecordingError(
            f"The confounds table {table} cannot be read: {error}. Copy it again or run fMRIPrep again."
        ) from None
    if fault is None:
        fault = _resaved(content)
    if fault is not None:
        raise RecordingError(f"The confounds table {table} {fault}, copy it again or run fMRIPrep again.")
    content = content.removeprefix(codecs.BOM_UTF8)
    header = re.split(rb"[\r\n]", content, maxsplit=1)[0].decode().split("\t")
    if not header[0] or re.fullmatch(r"[-+.\deE]+|n/a", header[0]):
        raise RecordingError(f"{table} is not a confounds table: its first row must hold column names.")
    if mark := next((mark for mark in SPREADSHEET if mark in "".join(header)), None):
        raise RecordingError(
            f"{table} has {mark} in its header, as spreadsheet programs write it: copy the table of fMRIPrep again."
        )
    return header, content


def _resaved(content: bytes) -> str | None:
    """Say how a spreadsheet program has changed a table: other separators, decimal commas, other ends of lines."""
    header, *rows = lines_of(content.removeprefix(codecs.BOM_UTF8)) or [b""]
    if b"\t" not in header and header.count(b",") > 1:
        return "has commas between its columns, not tabs: save it with tabs"
    if b"\n" not in content and b"\r" in content:
        return "has lines that end with a carriage return alone: save it with line feeds"
    if b"\t" in header and any(re.search(rb"(?:^|\t)-?\d+,\d+(?:\t|$)", row) for row in rows[:5]):
        return "has decimal commas: save it with decimal points"
    return None


def read_columns(table: Path, content: bytes, names: Sequence[str]) -> Columns:
    """Read the named columns only of a table and its bytes. Raises RecordingError."""
    if table.name == MOTION_FILE:
        made = read_motion(table)
        return {name: made[name] for name in names}
    import pandas as pd  # slow to load

    try:
        # from memory and as one piece, in half the time
        frame = pd.read_csv(
            BytesIO(content),
            sep="\t",
            usecols=list(names),
            na_values=["n/a"],
            dtype=np.float64,
            low_memory=False,
        )
    except ValueError as error:
        raise RecordingError(
            f"The confounds table {table} cannot be read: {error}. Correct it or run fMRIPrep again."
        ) from None
    values = dict(zip(frame, np.ascontiguousarray(frame.to_numpy().T), strict=True))
    return {name: values[name] for name in names}


def read_motion(table: Path) -> Columns:
    """Read a table of motion alone, in mm and radians, and its displacement. Raises RecordingError."""
    names = (*_TRANSLATIONS, *_ROTATIONS)
    try:
        values = np.loadtxt(table, ndmin=2)[:, : len(names)]
        columns = dict(zip(names, values.T, strict=True))
    except (OSError, ValueError, IndexError) as error:
        raise RecordingError(
            f"{table} is not a table of six motion parameters ({error}). Copy it again or run the preprocessing again."
        ) from None
    columns |= {name: columns[name] * (np.pi / 180) for name in _ROTATIONS}
    parameters = np.column_stack([columns[name] for name in names])
    return {**columns, "framewise_displacement": framewise_displacement(parameters)}


def check_ranges(table: Path, columns: Columns, judged: Collection[str]) -> tuple[Columns, list[str]]:
    """Refuse what cannot be by what it means: displacements and changes below zero, numbers beyond all scales.

    Of columns that nothing regresses such values are taken as unknown, with a note.
    """
    known, notes = dict(columns), []
    for name, values in columns.items():
        least = 0.0 if name in NEVER_NEGATIVE else -LARGEST
        most = LARGEST_DISPLACEMENT if name == "framewise_displacement" else LARGEST
        if not (outside := (values < least) | (values > most)).any():
            continue
        wrong = np.flatnonzero(outside)
        what = f"has {values[wrong[0]]:g} as {name} in line {wrong[0] + 2}, which cannot be"
        if name in judged:
            raise RecordingError(f"{table} {what}: copy it again or run fMRIPrep again.")
        known[name] = np.where(outside, np.nan, values)
        notes.append(f"{table.name} {what}; the cleaning does not use it.")
    return known, notes
