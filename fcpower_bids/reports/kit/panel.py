"""A panel: one part of a page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Panel:
    """One part of a page."""

    # title, text: heading and how to read it
    title: str
    text: str
    # svg, alt: a drawing and its description
    svg: str = ""
    alt: str = ""
    rows: tuple[tuple[str, str], ...] = ()  # a table of two columns
    sources: tuple[tuple[str, str], ...] = ()  # name and address of the data behind it
    # wide, folded: over the whole width; closed at first
    wide: bool = False
    folded: bool = False
    failure: str = ""  # why the program failed to make it
