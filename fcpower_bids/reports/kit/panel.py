"""A panel: one part of a page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Panel:
    """One part of a page.

    Attributes
    ----------
    title, text : str
        Heading and how to read it.
    svg, alt : str
        A drawing and its description.
    matrices : dict
        For the script of the page: names, networks, encoded matrices.
    rows : tuple of (str, str)
        A table of two columns.
    sources : tuple of (str, str)
        Name and address of the data behind it.
    wide, folded : bool
        Over the whole width; closed at first.
    paper : str
        Its place on the printed sheet of a recording: ``whole``, ``left`` or ``right``; empty: on the screen alone.
    failure : str
        Why the program failed to make it.
    leads : bool
        Whether it comes first, as what calls for caution does.
    """

    title: str
    text: str
    svg: str = ""
    alt: str = ""
    matrices: dict[str, Any] = field(default_factory=dict)
    rows: tuple[tuple[str, str], ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    wide: bool = False
    folded: bool = False
    paper: str = ""
    failure: str = ""
    leads: bool = False
