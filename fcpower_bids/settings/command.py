"""The command that made outputs, with the choices that change numbers; on a page without folders."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fcpower_bids.settings import Settings
from fcpower_bids.settings.options import is_read, overridden, plain_value

SECTIONS = ("selection", "method", "encoder", "group", "pretrain")
"""Sections of options that change the computation or its people."""
ALSO = ("random_seed",)
FOLDERS = re.compile(r"(^|[=:+])(?:[A-Za-z]:)?[/~][^=:]*/")
"""The folders before a file, also in ``NAME=PATH`` and ``FILE:TSV``."""


def command_of(choices: Mapping[str, Any], without: tuple[str, ...] = (), whole: bool = False) -> str:
    """Return the command line that gives these choices, without resources, messages and unused choices."""
    if not {"bids_dir", "output_dir", "level"} <= choices.keys():
        return ""
    level, places = str(choices["level"]), [Path(str(choices[name])).absolute() for name in ("bids_dir", "output_dir")]
    without = (*without, *overridden(choices))
    chosen = [name for name in choices if name not in without]
    options = [word for name in chosen for word in _option(name, choices[name], level)]
    # keys of the file have no flag: they are given by the choices that the level has written
    named = f"_{choices['name']}" if choices.get("name") else ""
    record = {"participant": "settings.toml", "group": f"settings_group{named}.toml"}.get(
        level, f"settings_{level}.toml"
    )
    in_file = any(_is_key(name) and any(_option(name, choices[name], level, in_file=True)) for name in chosen)
    if whole:
        file = ["--config-file", str(places[1] / "logs" / record)] if in_file else []
        return shlex.join(["fcpower_bids", *map(str, places), level, *options, *file])
    shown = (path.name or name for path, name in zip(places, ("BIDS_DIR", "OUTPUT_DIR"), strict=True))
    file = ["--config-file", record] if in_file else []
    return shlex.join(["fcpower_bids", *shown, level, *(FOLDERS.sub(r"\1", word) for word in options), *file])


def _is_key(name: str) -> bool:
    """Whether a choice is a key of the file alone."""
    field = Settings.__dataclass_fields__.get(name)
    return field is not None and bool(field.metadata.get("in_file"))


def join_words(words: Iterable[str | Path], whole: bool = False) -> str:
    """Return a command line, quoted for a shell; of a path the last name alone, or all of it."""
    paths = ((one.absolute() if isinstance(one, Path) else one) for one in words)
    return shlex.join(one if isinstance(one, str) else str(one) if whole else one.name for one in paths)


def _option(name: str, value: Any, level: str, in_file: bool = False) -> Iterator[str]:
    """Words of an option that the level uses and that is not at its default."""
    field = Settings.__dataclass_fields__.get(name)
    section = "" if field is None else field.metadata.get("section", "")
    if field is None or not (section in SECTIONS or name in ALSO) or not is_read(level, name, section):
        return
    if _is_key(name) != in_file:
        return
    if value is None or field.default is dataclasses.MISSING or value == plain_value(field.default):
        return
    yield f"--{name.replace('_', '-')}"
    if value is not True:
        yield from map(str, value if isinstance(value, list) else [value])
