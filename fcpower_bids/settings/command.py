"""The command behind outputs, as it can stand on a page: what changes numbers, without the folders of a machine."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fcpower_bids.settings import Settings
from fcpower_bids.settings.options import plain_value

SECTIONS = ("selection", "method", "encoder", "group", "pretrain")
"""Sections of options that change what is computed, or of whom."""
ALSO = ("random_seed",)
FOLDERS = re.compile(r"(^|[=:+])(?:[A-Za-z]:)?[/~][^=:]*/")
"""The folders before a file, also in ``NAME=PATH`` and ``FILE:TSV``."""


def command_of(choices: Mapping[str, Any], without: tuple[str, ...] = ()) -> str:
    """Return the command line that gives these choices; resources and messages are left out.

    Parameters
    ----------
    choices : mapping
        As `Settings.as_dict` has them, or the ``settings.toml`` of a run.
    without : tuple of str
        Options that are not told.

    Returns
    -------
    str
        Quoted for a shell; of folders and files the names alone. Empty where the choices name no dataset.
    """
    if not {"bids_dir", "output_dir", "level"} <= choices.keys():
        return ""
    places = (Path(str(choices[name])).name or name.upper() for name in ("bids_dir", "output_dir"))
    options = (word for name in choices for word in _option(name, choices[name]) if name not in without)
    return shlex.join(["fcpower_bids", *places, str(choices["level"]), *options])


def join_words(words: Iterable[str | Path]) -> str:
    """Return a command line, quoted for a shell; of a path the last name alone."""
    return shlex.join(one.absolute().name if isinstance(one, Path) else one for one in words)


def _option(name: str, value: Any) -> Iterator[str]:
    """Words of an option that is not at its default."""
    field = Settings.__dataclass_fields__.get(name)
    if field is None or not (field.metadata.get("section") in SECTIONS or name in ALSO):
        return
    if value is None or field.default is dataclasses.MISSING or value == plain_value(field.default):
        return
    yield f"--{name.replace('_', '-')}"
    if value is not True:
        yield from (FOLDERS.sub(r"\1", str(one)) for one in (value if isinstance(value, list) else [value]))
