"""Slices: folders of `slices/`, and other packages, that add to the program at the places that are named here.

A place is ``"package.module:attribute"`` and is imported when it is first asked for, so that the command line stays
light. A slice whose folder is not there adds nothing, and nothing else asks for it. Another package registers its own
`Slice` as an entry point of the group ``fcpower_bids.plugins``. The module of a `Slice` imports nothing else of the
program, and those of its options import `fcpower_bids.options` alone, since the settings are put together from them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fcpower_bids.errors import UsageError

GROUP = "fcpower_bids.plugins"
SLICES = (
    *("check", "plan", "edges", "spectrum", "curves", "encoders_compared", "sites", "clinic"),
    *("elsewhere", "published_encoders", "pretraining", "sharing"),
)
"""Folders of `slices/`, in the order of their analyses, options and methods."""


def _hook() -> Any:
    return field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Slice:
    """All that one slice adds: of each kind names, and the places of what they stand for."""

    options: Mapping[str, str] = _hook()
    """Parts of `fcpower_bids.settings.Settings`: frozen dataclasses of `fcpower_bids.options.option`."""
    checks: Mapping[str, str] = _hook()
    """Functions of the settings that yield a sentence for each choice that cannot work."""
    analyses: Mapping[str, str] = _hook()
    """Entries of `fcpower_bids.analyses.ANALYSES`."""
    analyses_of_cohorts: Mapping[str, str] = _hook()
    """The same, of those that take a mapping of atlas to cohort."""
    sections: Mapping[str, str] = _hook()
    """Parts of the page of a cohort: `fcpower_bids.reports.cohort.tables.Part`."""
    methods: Mapping[str, str] = _hook()
    """Paragraphs of the methods text of a cohort: `fcpower_bids.reports.cohort.methods.Paragraph`."""
    harmonisers: Mapping[str, str] = _hook()
    """Methods of ``--harmonise``: `fcpower_bids.analyses.prediction.harmonise.Harmoniser`."""
    encoders: Mapping[str, str] = _hook()
    """Encoders of others, entries of `fcpower_bids.encoders.ENCODERS`: their loaders take ``published`` too."""
    sources: Mapping[str, str] = _hook()
    """Kinds of sources of the group level: `fcpower_bids.workflows.cohorts.Source`."""
    before_analyses: Mapping[str, str] = _hook()
    """Functions of a cohort and the settings that return the cohort, before the first analysis."""
    alike: Mapping[str, str] = _hook()
    """Functions of a cohort and the settings that return pairs of people who share a fold."""
    after_analyses: Mapping[str, str] = _hook()
    """Functions of a cohort and `fcpower_bids.workflows.run_progress.Attempts`, at the end of the group level."""
    cohort_tables: Mapping[str, str] = _hook()
    """Tables about a cohort that no analysis declares: `fcpower_bids.schema.TableSpec`."""
    tables: Mapping[str, str] = _hook()
    """Further tables, for the reference, by the title of their section."""
    levels: Mapping[str, str] = _hook()
    """Levels: `fcpower_bids.options.Level`."""
    option_sections: Mapping[str, str] = _hook()
    """Sections of options, and their titles, which are no places."""
    commands: Mapping[str, str] = _hook()
    """Modules with ``build_parser`` and ``main``: words in place of ``bids_dir output_dir level``."""
    usage: tuple[str, ...] = ()
    """How these commands are written: lines of the help."""


@cache
def slices() -> tuple[Slice, ...]:
    """All slices: those of this package that are there, then those of other packages. Raises UsageError."""
    names = (f"fcpower_bids.slices.{name}" for name in SLICES)
    own = tuple(import_module(name).SLICE for name in names if _is_there(name))
    return (*own, *(map(_load, entry_points(group=GROUP)) if _is_registered() else ()))


def places(kind: str) -> dict[str, str]:
    """Return the names of a kind and their places, of all slices. Raises UsageError."""
    return extend({}, kind)


def extend(known: Mapping[str, str], *kinds: str) -> dict[str, str]:
    """Return the known names and their places with those of all slices. Raises UsageError where one is known."""
    found = dict(known)
    for kind in kinds:
        for name, place in ((name, place) for one in slices() for name, place in getattr(one, kind).items()):
            if name in found:
                raise UsageError(
                    f"Two places have the name '{name}' ({kind}): {found[name]} and {place}. Uninstall the package of "
                    "one, or ask its authors for another name."
                )
            found[name] = place
    return found


def load(kind: str) -> Iterator[Any]:
    """Import what all slices add of a kind."""
    for place in places(kind).values():
        module, _, attribute = place.partition(":")
        yield getattr(import_module(module), attribute)


def _is_there(name: str) -> bool:
    try:
        found = find_spec(name)
    except ModuleNotFoundError:  # no slice at all
        return False
    return found is not None and found.origin is not None  # a folder of what was compiled is none


def _is_registered() -> bool:
    """Whether any installed package has the group: the files alone, a tenth of the time of asking for entry points."""
    return any(f"[{GROUP}]".encode() in text for folder in sys.path for text in _entry_points(folder))


def _entry_points(folder: str) -> Iterator[bytes]:
    with suppress(OSError):  # not there, an archive, or closed
        for name in (each for each in os.listdir(folder) if each.endswith("-info")):
            with suppress(OSError):
                yield Path(folder, name, "entry_points.txt").read_bytes()


def _load(entry: Any) -> Slice:
    try:
        found = entry.load()
    except Exception as error:
        raise UsageError(
            f"The plug-in '{entry.name}' ({entry.value}) cannot be loaded: {error!r}. Uninstall it, or ask its authors."
        ) from error
    if not isinstance(found, Slice):
        raise UsageError(
            f"The plug-in '{entry.name}' ({entry.value}) is not a slice. Uninstall it, or ask its authors."
        )
    return found
