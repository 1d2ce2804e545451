"""Self-contained pages: text is escaped, and their content policy allows their own style, script and images alone."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fcpower_bids._version import __version__
from fcpower_bids.outputs.dataset import short_name
from fcpower_bids.store import LOCKS, lock, write_text

Sources = tuple[tuple[str, str], ...]
"""Name and address of each file that something is made of."""


@dataclass(frozen=True)
class Panel:
    """One part of a page."""

    # title, text: heading and how to read it
    title: str
    text: str
    # svg, alt: a drawing and its description
    svg: str = ""
    alt: str = ""
    sources: Sources = ()
    wide: bool = False  # over the whole width


@dataclass(frozen=True)
class Verdict:
    """First lines of a page."""

    level: str  # ``ok``, ``caution`` or ``stop``
    headline: str
    facts: Sequence[tuple[str, str]] = ()  # label and value
    # of a participant: recording, how grave, its state, why; all that is not used, and every caution
    problems: Sequence[tuple[str, str, str, str]] = ()
    # of a cohort: a question, the sentences that answer it, the anchor of the section behind it
    findings: Sequence[tuple[str, Sequence[str], str]] = ()
    further: Sequence[tuple[str, str, str]] = ()  # of each further analysis and target: title, answer, anchor
    cautions: Sequence[str] = ()  # limits of the findings
    figures: Sequence[Panel] = ()  # of prediction and identification


@dataclass(frozen=True)
class Cell:
    """One cell of a table: text, sorting key and link."""

    text: str
    value: Any = ""
    address: str = ""


@dataclass(frozen=True)
class Grid:
    """A sortable table of a page; ``title`` and ``text`` as for a panel, ``rest`` about the rows that it leaves out."""

    title: str
    text: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sources: Sources = ()
    rest: str = ""


LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""That of libyaml where it is there: the words of a page take a tenth of the time."""


@lru_cache(maxsize=4)
def _words(kind: str) -> Mapping[str, Any]:
    return dict(yaml.load((FOLDER / f"{kind}.yml").read_text(encoding="utf-8"), Loader=LOADER))  # noqa: S506 (safe)


def look_up(kind: str, name: str) -> dict[str, Any]:
    """Return an entry of ``panels``, ``grids``, ``recording`` or ``titles``, files of words in ``data/report``."""
    return dict(_words(kind)[name])


def make_panel(kind: str, name: str, svg: str, sources: Sources, **words: Any) -> Panel:
    """Return a figure with its words, whose gaps are filled; a wide drawing has the whole width."""
    about = look_up(kind, name)
    title, text, alt = (str(about[part]).format(**words).strip() for part in ("title", "text", "alt"))
    width = re.search(r'width="([\d.]+)pt"', svg)
    return Panel(title, text, svg, alt, sources=sources, wide=width is not None and float(width[1]) > HALF)


FOLDER = Path(__file__).parents[1] / "data" / "report"
CONTAINER = "FCPOWER_CONTAINER"
"""Variable of the environment with name or digest of the container; it stands at the foot of every page."""
IMAGES = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
"""Variables in which Apptainer names the file of the image."""
LIBRARIES = ("numpy", "scipy", "pandas", "nibabel")
"""Whose versions stand at the foot of a page."""
IN_ADDRESS = {ord(sign): f"%{ord(sign):02X}" for sign in "<>\"'#%&{}|\\^`"}
"""Characters that neither an address nor an attribute may hold."""
HALF = 400.0
"""Points of the widest drawing that has half of the page."""
MINUS_ZERO = re.compile(r"-(?<![\w.]-)(0\.0+)(?!\d)")
"""A small negative number that rounding has made zero."""


def render_page(template: str, *, further_script: str = "", **content: Any) -> str:
    """Fill a template of ``data/report``; every value is escaped unless it is `Markup`; the foot says by what."""
    style, script = _asset("page.css"), _asset("page.js") + (_asset(further_script) if further_script else "")
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    policy = "default-src 'none'; img-src data:; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; "
    images = (Path(os.environ[name]).name for name in IMAGES if os.environ.get(name))
    text = (
        templates()
        .get_template(template)
        .render(
            style=Markup(style),
            script=Markup(script),
            policy=policy.format(*hashes) + "form-action 'none'",
            version=__version__,
            software=_software(),
            container=os.environ.get(CONTAINER) or next(images, ""),  # as its starter names it, else Apptainer's image
            **{"date": time.strftime("%Y-%m-%d"), **content},
        )
    )
    return MINUS_ZERO.sub(r"\1", text) if "-0.0" in text else text


@lru_cache(maxsize=1)
def _software() -> str:
    return ", ".join([f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in LIBRARIES)])


@lru_cache(maxsize=1)
def templates() -> Environment:
    """Return the templates of pages, in which all is escaped, and of texts in Markdown."""
    environment = Environment(
        loader=FileSystemLoader((FOLDER, FOLDER.parent / "boilerplate")),
        autoescape=lambda name: name is None or not name.endswith(".md"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"inline": inline_image, "short": short_name, "number": show_number}
    environment.filters |= {"decimal": lambda value: f"{float(value):g}", "listed": listed}
    return environment


@lru_cache(maxsize=8)
def _asset(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def write_page(path: Path, text: str) -> Path:
    """Write a page of an output folder in turn, so that leftovers are distinguished from pages being written."""
    with lock(path.parent / LOCKS / path.name):
        return write_text(path, text)


def inline_image(svg: str) -> str:
    """Return an SVG drawing as an address that holds the drawing itself; its images are in base64 already."""
    ascii_only = svg.replace("\n", " ").encode("ascii", "xmlcharrefreplace").decode("ascii")
    return "data:image/svg+xml," + ascii_only.translate(IN_ADDRESS)


def show_number(value: Any, digits: int = 2) -> str:
    """Show a number with so many decimals, an integer without, and what is missing as ``n/a``."""
    if value is None or value != value:
        return "n/a"
    if digits == 0 or isinstance(value, int):
        return f"{int(value)}"
    text = f"{value:.{digits}f}"
    return text if float(text) else text.lstrip("-")  # minus zero is zero


def count(number: float, noun: str, many: str = "") -> str:
    """``1 scan``, ``2 scans``, ``1 person``, ``2 people``."""
    many = many or ("people" if noun == "person" else noun + "s")
    return f"{int(number):,} {noun if number == 1 else many}"


def listed(words: Iterable[object], most: int = 0) -> str:
    """``a, b and c``; after so many words, if any, the number of the others."""
    *first, last = map(str, words)
    if most and len(first) >= most:
        first, last = first[:most], f"{len(first) + 1 - most} more"
    return f"{', '.join(first)} and {last}" if first else last


def relative_link(path: Path, root: Path) -> str:
    """Return the address of a file from a page in ``root``."""
    return quote(path.relative_to(root).as_posix())
