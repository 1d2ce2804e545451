"""Relative paths become absolute once, at the command line: the steps of a recording run in folders of their own."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from fcpower_bids.cli.options import is_list, scalar_type
from fcpower_bids.encoders.release import CORPUS_ID
from fcpower_bids.settings import Settings

WRITTEN = ("output_dir", "work_dir", "bids_database_dir")
"""Choices that name a folder to write to; all other paths are read."""
SEPARATORS = {"atlas": "+:", "encoder_weights": "", "strategy": "", "corpus": ""}
"""Choices that may name a path although they are text, and what joins several of them."""
MAY_BE_PATHS = (*SEPARATORS, "derivatives")
NO_PATHS = ("builtin", "templateflow")


def anchor(settings: Settings) -> tuple[Settings, list[Path]]:
    """Make every path in the settings absolute; return them with the paths that are read."""
    changes: dict[str, Any] = {"config_file": None}
    read: list[Path] = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name == "config_file" or value is None:
            continue
        if scalar_type(field.name) is Path:
            paths = [path.expanduser().absolute() for path in (value if is_list(field.name) else [value])]
            changes[field.name] = tuple(paths) if is_list(field.name) else paths[0]
            read += paths if field.name not in WRITTEN else []
        elif field.name in SEPARATORS or field.name == "derivatives":
            texts = [_anchor_text(text, field.name) for text in (value if is_list(field.name) else [value])]
            changes[field.name] = tuple(text for text, _ in texts) if is_list(field.name) else texts[0][0]
            read += [path for _, paths in texts for path in paths]
    return dataclasses.replace(settings, **changes), [path for found in read for path in _with_companions(found)]


def _anchor_text(text: str, name: str) -> tuple[str, list[Path]]:
    if name == "corpus":
        path = Path(text).expanduser().absolute()
        return (text, []) if text == CORPUS_ID else (str(path), [path])
    if name == "derivatives":
        label, equals, place = text.partition("=") if not Path(text).exists() else ("", "", text)
        path = Path(place or label).absolute()
        return (f"{label}={path}" if equals else str(path)), [path]
    return _anchor_pieces(text, SEPARATORS[name])


def _anchor_pieces(text: str, separators: str) -> tuple[str, list[Path]]:
    """Make absolute what is a path in ``FILE[:TSV]``, ``FOLDER[:SELECTOR]`` and their sums; leave names alone."""
    path = Path(text).expanduser().absolute()
    if text and text not in NO_PATHS and path.exists():
        return str(path), [path]
    for separator in separators:
        head, found, tail = text.rpartition(separator)
        if found:
            (first, one), (second, two) = (_anchor_pieces(part, separators) for part in (head, tail))
            return first + separator + second, one + two
    return text, []


def _with_companions(path: Path) -> list[Path]:
    """Return a folder, or a file with those of its stem: tables of label images, JSON of TSV."""
    if not path.is_file():
        return [path]
    stem = path.name.partition(".")[0]
    return [other for other in path.parent.iterdir() if other.is_file() and other.name.partition(".")[0] == stem]
