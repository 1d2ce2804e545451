"""Slices: folders of `slices/` that add to the program at the places that are named here.

A place is ``"package.module:attribute"`` and is imported when it is first asked for, so that the command line stays
light. The module of a `Slice` imports nothing else of the program, and those of its options import
`fcpower_bids.options` alone, since the settings are put together from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

SLICES = (
    *("check", "edges", "spectrum", "curves", "encoders_compared", "sites", "clinic"),
    *("elsewhere", "published_encoders", "pretraining"),
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
    """Methods of ``--sites``: `fcpower_bids.analyses.prediction.harmonise.Harmoniser`."""
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
    """All slices."""
    return tuple(import_module(f"fcpower_bids.slices.{name}").SLICE for name in SLICES)


def places(kind: str) -> dict[str, str]:
    """Return the names of a kind and their places, of all slices."""
    return extend({}, kind)


def extend(known: Mapping[str, str], *kinds: str) -> dict[str, str]:
    """Return the known names and their places with those of all slices."""
    found = dict(known)
    for kind in kinds:
        for one in slices():
            found |= getattr(one, kind)
    return found


def load(kind: str) -> Iterator[Any]:
    """Import what all slices add of a kind."""
    for place in places(kind).values():
        module, _, attribute = place.partition(":")
        yield getattr(import_module(module), attribute)
