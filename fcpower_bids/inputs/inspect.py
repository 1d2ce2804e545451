"""Faults that can be found before anything is computed, in plain sentences, and the table that shows them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcpower_bids.errors import DatasetError, RecordingError
from fcpower_bids.imaging.confounds import MOTION_FILE, has_cosines_of
from fcpower_bids.inputs.sources import POINTERS, Sidecars, Source
from fcpower_bids.records import Recording

if TYPE_CHECKING:
    from fcpower_bids.imaging.streaming import HeaderSummary

SHORTEST_TR, LONGEST_TR = 0.1, 20.0
"""Seconds; a value outside is a mistake of units, most often milliseconds."""
TR_TOLERANCE = 0.01


def inspect_series(
    series: Source, mask: Path | None, confounds: Path | None, sidecars: Sidecars
) -> tuple[Recording | None, int, dict[str, str]]:
    """Look at the files of one series without reading its data.

    Returns the recording, None when something prevents its processing; its volumes, 0 when unknown; and the faults of
    ``bold``, ``mask``, ``confounds``, ``TR``, each with the file and the remedy.
    """
    wrong: dict[str, str] = {}
    header = _attempt(wrong, "bold", _read_header, series.path)
    volumes = header.n_volumes if header else 0
    _attempt(wrong, "mask", _check_mask, series, mask)
    _attempt(wrong, "confounds", _check_confounds, series, confounds, header.n_volumes if header else None)
    stated = header.repetition_time if header else None
    repetition_time = _attempt(wrong, "TR", _find_repetition_time, series, sidecars, stated, confounds)
    if repetition_time is None or wrong:
        return None, volumes, wrong
    own_mask = None if series.is_cifti else mask
    others = (own_mask, confounds, _sidecar_of(confounds), _sidecar_of(series.path))
    return Recording(series.path, series.entities, repetition_time, *others), volumes, wrong


def _attempt(wrong: dict[str, str], part: str, check: Callable[..., Any], *arguments: Any) -> Any:
    """Return what the check returns, or None with its sentence noted."""
    try:
        return check(*arguments)
    except (RecordingError, DatasetError) as error:
        wrong[part] = str(error)
        return None


def _read_header(path: Path) -> HeaderSummary:
    from fcpower_bids.imaging.streaming import header_summary  # loads nibabel or nilearn, which are slow to load

    _check_content(path)
    header = header_summary(path)
    if header.n_volumes < 2:
        raise RecordingError(f"{path} holds a single volume, not a series: run fMRIPrep again on the whole run.")
    return header


def _check_mask(series: Source, mask: Path | None) -> None:
    if series.is_cifti:
        return
    if mask is None:
        expected = series.companions[0] or f"{series.name}_desc-brain_mask.nii.gz"
        if (folder := series.path.with_name(Path(expected).name)).is_dir():
            raise RecordingError(f"{folder} is a folder, a pipe or a device, not a file: put the file there.")
        raise RecordingError(
            f"{series.path} has no brain mask: {expected} is not next to it. Copy it there or run fMRIPrep again."
        )
    _check_content(mask)


def _check_confounds(series: Source, confounds: Path | None, n_volumes: int | None) -> None:
    if confounds is None:
        expected = series.companions[1] or "desc-confounds_timeseries.tsv"
        raise RecordingError(
            f"{series.path} has no confounds table: no {expected} of its run is next to it. "
            "Copy it there or run fMRIPrep again."
        )
    _check_content(confounds)
    lines = sum(map(bool, map(bytes.strip, confounds.read_bytes().splitlines())))
    rows = max(lines - (confounds.name != MOTION_FILE), 0)  # without the header where there is one
    if n_volumes is not None and rows != n_volumes:
        raise RecordingError(
            f"{confounds} has {rows} rows but {series.path.name} has {n_volumes} volumes: one of the two is incomplete "
            "or belongs to another run. Copy both again from one run of fMRIPrep."
        )


def _check_content(path: Path) -> None:
    """Refuse a dead link, a closed or empty file, a stand-in for content that is not there, and a false ``.gz``."""
    if not path.exists():
        raise RecordingError(
            f"{path} is a link to content that is not there: fetch it (datalad get, git annex get) or correct the link."
        )
    if not path.is_file():
        raise RecordingError(f"{path} is a folder, a pipe or a device, not a file: put the file there.")
    try:
        with path.open("rb") as stream:
            start = stream.read(16)
    except OSError as error:
        raise RecordingError(f"{path} may not be read ({error.strerror}): give yourself read access to it.") from error
    if not start:
        raise RecordingError(f"{path} is empty: copy it again or run fMRIPrep again.")
    if start.startswith(POINTERS):
        raise RecordingError(f"{path} stands for content that is not there: fetch it (datalad get, git lfs pull).")
    if path.name.endswith(".gz") and not start.startswith(b"\x1f\x8b"):
        raise RecordingError(f"{path} is not gzip although its name says so: rename it to .nii or copy it again.")


def _find_repetition_time(series: Source, sidecars: Sidecars, in_header: float | None, confounds: Path | None) -> float:
    """Return the seconds between volumes, on which the JSON files and the header must agree.

    Where all JSON files and the cosines of the confounds table agree, the header is wrong, as releases of fMRIPrep
    have written it: the note of that is made where the series is cleaned.
    """
    value, source = sidecars.lookup(series, "RepetitionTime")
    if value is None and in_header is None:
        for path in sidecars.applicable(series):
            _check_content(path)  # one that is not fetched may hold it
        raise RecordingError(
            f"{series.path} has no repetition time, neither in its header nor in a JSON file: "
            f'write {{"RepetitionTime": seconds}} to {_stem(series.path)}.json next to it.'
        )
    stated = in_header if value is None else _number(value, source)
    where = source or series.path
    if stated is None or not SHORTEST_TR <= stated <= LONGEST_TR:
        raise RecordingError(
            f"{where} gives a repetition time of {value if source else stated}, which cannot be seconds "
            f"({SHORTEST_TR:g} to {LONGEST_TR:g}): milliseconds? Correct RepetitionTime in {_stem(series.path)}.json."
        )
    if source is not None and in_header is not None and abs(stated - in_header) > TR_TOLERANCE * stated:
        times = [_number(entry, source) for entry in sidecars.stated(series, "RepetitionTime")]
        agree = all(seconds is not None and abs(seconds - stated) <= TR_TOLERANCE * stated for seconds in times)
        if agree and confounds is not None and has_cosines_of(confounds, stated):
            return stated
        raise RecordingError(
            f"{source} gives a repetition time of {stated:g} s but the header of {series.path} gives {in_header:g} s: "
            "find out which is true and correct the other."
        )
    return stated


def _number(value: Any, source: Path | None) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RecordingError(f"{source} gives the RepetitionTime {value!r}, which is no number: correct it.") from None
    return number if math.isfinite(number) else None


def _stem(path: Path) -> str:
    return path.name.partition(".")[0]


def _sidecar_of(path: Path | None) -> Path | None:
    """The JSON file of the same name, if there is one."""
    sidecar = None if path is None else path.with_name(f"{_stem(path)}.json")
    return sidecar if sidecar is not None and sidecar.is_file() else None
