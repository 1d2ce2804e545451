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
        raise UsageError(f"{path} cannot be read as YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path} is not a confound strategy: it must have the keys 'methods' and 'columns'.")
    known = {"name", "methods", "columns", "optional", "acompcor", "references"}
    unknown, absent = sorted(map(str, content.keys() - known)), sorted({"methods", "columns"} - content.keys())
    if unknown or absent:
        problem = f"the key '{unknown[0]}' is not known" if unknown else f"the key '{absent[0]}' is missing"
        raise UsageError(f"{path} is not a confound strategy: {problem}. Its keys are {', '.join(sorted(known))}.")
    defaults: dict[str, Any] = {"name": path.stem, "columns": [], "optional": [], "references": [], "acompcor": 0}
    content = defaults | content
    for key in ("columns", "optional", "references"):
        value = content[key]
        if not isinstance(value, list) or not all(isinstance(entry, str) and entry for entry in value):
            raise UsageError(f"{path}: '{key}' must be a list of names, not {value!r}.")
        content[key] = tuple(dict.fromkeys(value))
    if type(content["acompcor"]) is not int or content["acompcor"] < 0:
        raise UsageError(f"{path}: 'acompcor' must be a number of components, not {content['acompcor']!r}.")
    for entry in content["columns"] + content["optional"]:  # a pattern that is broken or would match parts of names
        if entry.startswith("^") != entry.endswith("$"):
            raise UsageError(f"{path}: the regular expression '{entry}' must begin with ^ and end with $.")
        try:
            re.compile(entry)
        except re.error as error:
            raise UsageError(f"{path}: '{entry}' is not a regular expression: {error}.") from None
    for key in ("name", "methods"):
        if not isinstance(content[key], str) or not content[key].strip():
            raise UsageError(f"{path}: '{key}' must be text, not {content[key]!r}.")
        content[key] = " ".join(content[key].split())
    return Strategy(**content)
