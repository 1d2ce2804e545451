"""Confound strategies, one YAML file each: which columns of an fMRIPrep table are regressed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fcpower_bids.errors import UsageError

STRATEGIES = Path(__file__).parents[1] / "data" / "strategies"


@dataclass(frozen=True)
class Strategy:
    """A set of confounds and how to describe it."""

    name: str  # as on the command line
    methods: str  # the sentence for the methods section
    # columns that must be there, by fMRIPrep's present names, or regular expressions anchored with ``^`` and ``$`` of
    # which each must match something
    columns: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()  # the same, taken where they exist
    acompcor: int = 0  # aCompCor components from white matter, and as many from cerebrospinal fluid
    references: tuple[str, ...] = ()  # DOIs of what to cite


@lru_cache
def strategy_names() -> tuple[str, ...]:
    """Return the names of the shipped strategies."""
    return tuple(sorted(path.stem for path in STRATEGIES.glob("*.yml")))


def load_strategy(name_or_path: str | Path) -> Strategy:
    """Load a shipped strategy by name, or the user's own from a YAML file. Raises UsageError."""
    shipped = STRATEGIES / f"{name_or_path}.yml"
    path = shipped if str(name_or_path) in strategy_names() else Path(name_or_path)
    if not path.is_file():
        raise UsageError(
            f"There is no confound strategy '{name_or_path}'. Choose from {', '.join(strategy_names())}, or give the "
            "path of a YAML file."
        )
    state = path.stat()
    return _load(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=8)
def _load(path: Path, _time: int, _size: int) -> Strategy:
    """Read and check a file once for all recordings, until it is another."""
    import yaml  # --help has no need of it

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{path} cannot be read as YAML: {reason}.") from None
    return _parse(content, path)


def is_pattern(entry: str) -> bool:
    """Say whether an entry of a strategy is a regular expression and not a column name."""
    return entry.startswith("^")


def _parse(content: Any, path: Path) -> Strategy:
    """Check what was read and return it as a strategy."""
    known = {"name", "methods", "columns", "optional", "acompcor", "references"}
    if not isinstance(content, dict):
        raise UsageError(f"{path} is not a confound strategy: it must have the keys 'methods' and 'columns'.")
    unknown, absent = sorted(map(str, content.keys() - known)), sorted({"methods", "columns"} - content.keys())
    if unknown or absent:
        problem = f"the key '{unknown[0]}' is not known" if unknown else f"the key '{absent[0]}' is missing"
        raise UsageError(f"{path} is not a confound strategy: {problem}. Its keys are {', '.join(sorted(known))}.")
    lists = {key: content.get(key, []) for key in ("columns", "optional", "references")}
    for key, value in lists.items():
        if not isinstance(value, list) or not all(isinstance(entry, str) and entry for entry in value):
            raise UsageError(f"{path}: '{key}' must be a list of names, not {value!r}.")
    columns, optional, references = (tuple(dict.fromkeys(value)) for value in lists.values())
    count = content.get("acompcor", 0)
    if type(count) is not int or count < 0:
        raise UsageError(f"{path}: 'acompcor' must be a number of components, not {count!r}.")
    for entry in columns + optional:  # a regular expression that is broken or would match parts of names
        if is_pattern(entry) != entry.endswith("$"):
            raise UsageError(f"{path}: the regular expression '{entry}' must begin with ^ and end with $.")
        try:
            re.compile(entry)
        except re.error as error:
            raise UsageError(f"{path}: '{entry}' is not a regular expression: {error}.") from None
    name, methods = _text(content.get("name", path.stem), "name", path), _text(content["methods"], "methods", path)
    return Strategy(name, methods, columns, optional, count, references)


def _text(value: Any, key: str, path: Path) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{path}: '{key}' must be text, not {value!r}.")
    return " ".join(value.split())
