"""The methods text of a run, from the same settings as its numbers, for ``logs/CITATION`` and for the pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from fcpower_bids._version import __version__
from fcpower_bids.core.censoring import LONGEST_SPLINE
from fcpower_bids.core.spectrum import CLIP_TOLERANCE
from fcpower_bids.derivatives.tables import read_json, write_text
from fcpower_bids.encoders import PUBLISHED
from fcpower_bids.errors import DatasetError
from fcpower_bids.imaging.strategies import Strategy, load_strategy
from fcpower_bids.records import Atlas
from fcpower_bids.reports.citations import Entry, cited_keys, read_references, to_html, to_latex
from fcpower_bids.settings import Settings
from fcpower_bids.transforms import TRANSFORMS
from fcpower_bids.transforms.connectomes import FULL_RANK, PARAMETERS, make_transform

FOLDER = Path(__file__).parents[1] / "data" / "boilerplate"
SURFACE = "fsLR"


@dataclass(frozen=True, order=True)
class AtlasFacts:
    """What the text says about an atlas; "n/a" where nothing is known."""

    name: str
    space: str
    n_parcels: int
    source: str = "n/a"
    citation: str = "n/a"

    @classmethod
    def of(cls, atlas: Atlas) -> AtlasFacts:
        """Take the facts of a loaded atlas."""
        return cls(atlas.name, atlas.space, atlas.n_parcels, atlas.source, atlas.citation)


def write_methods(settings: Settings, atlases: Iterable[Atlas | AtlasFacts] = ()) -> list[Path]:
    """Write ``logs/CITATION.{md,html,tex,bib}``.

    Parameters
    ----------
    settings : Settings
        The choices of the run.
    atlases : iterable of Atlas or AtlasFacts
        Those in use; without them the text names what was asked for.

    Returns
    -------
    list of Path
        The four files.
    """
    facts = [one if isinstance(one, AtlasFacts) else AtlasFacts.of(one) for one in atlases]
    markdown = methods_text(settings, facts)
    references = all_references()
    body = to_html(markdown, references)
    head = '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>Methods</title></head>\n'
    page = f"{head}<body>\n{body}</body>\n</html>\n"
    entries = "\n\n".join(references[key]["text"] for key in cited_keys(markdown, references)) + "\n"
    stem = settings.output_dir / "logs" / "CITATION"
    texts = {".md": markdown, ".html": page, ".tex": to_latex(markdown), ".bib": entries}
    return [write_text(stem.with_suffix(ending), text) for ending, text in texts.items()]


def methods_html(settings: Settings, atlases: Sequence[AtlasFacts], level: int = 1) -> str:
    """Return the text as escaped HTML for a page."""
    return to_html(methods_text(settings, atlases), all_references(), level)


def methods_text(settings: Settings, atlases: Sequence[AtlasFacts] = ()) -> str:
    """Return the text as Markdown with pandoc's citations; every sentence is true of a run with these settings."""
    strategy = load_strategy(settings.strategy)
    spaces = {atlas.space for atlas in atlases}
    text = _template("participant.md").render(
        settings=settings,
        version=__version__,
        configuration=settings.configuration_hash(),
        preprocessing=_preprocessing(settings.output_dir),
        atlases=sorted(set(atlases)),
        names=settings.atlas,
        published=settings.encoder in PUBLISHED,
        surface=spaces == {SURFACE} if spaces and (SURFACE not in spaces or len(spaces) == 1) else None,
        filtered=any(settings.band),
        regressed=bool(strategy.columns or strategy.optional or strategy.acompcor),
        strategy=strategy,
        methods=_strategy_sentence(strategy),
        longest_spline=LONGEST_SPLINE,
        tolerance=f"{CLIP_TOLERANCE:g}",
        exponent=f"{settings.exponent:g}",
        summaries=[_summary(name, settings) for name in settings.transforms if name != "power"],
        full_rank=[name.replace("_", "-") for name in settings.transforms if PARAMETERS.get(name) == FULL_RANK],
    )
    paragraphs = ("\n".join(" ".join(line.split()) for line in block.splitlines()) for block in text.split("\n\n"))
    return "\n\n".join(block.strip() for block in paragraphs if block.strip()) + "\n"


def _summary(name: str, settings: Settings) -> str:
    return str(make_transform(name, settings).summary) if TRANSFORMS[name].stateless else str(TRANSFORMS[name].summary)


def _strategy_sentence(strategy: Strategy) -> str:
    """Return what a strategy says of itself, with its citations before the full stop; a DOI where there is no entry."""
    by_doi = {entry["doi"]: key for key, entry in all_references().items() if "doi" in entry}
    known = "; ".join(f"@{by_doi[doi]}" for doi in strategy.references if doi in by_doi)
    others = ", ".join(doi for doi in strategy.references if doi not in by_doi)
    cited = (f" [{known}]" if known else "") + (f" (doi: {others})" if others else "")
    said = strategy.methods.strip()
    return f"{said.removesuffix('.')}{cited}." if cited else said


def _preprocessing(output_dir: Path) -> str:
    """Return what made the input, as the description of the outputs has it."""
    try:
        made_by = read_json(output_dir / "dataset_description.json").get("GeneratedBy", [])
    except DatasetError:
        return ""
    return " and ".join(" ".join(str(one[key]) for key in ("Name", "Version") if key in one) for one in made_by[1:])


@lru_cache(maxsize=1)
def all_references() -> dict[str, Entry]:
    """Every reference that the templates and the strategies can cite, by key."""
    return read_references(FOLDER / "references.bib")


@lru_cache(maxsize=4)
def _template(name: str) -> Template:
    environment = Environment(
        loader=FileSystemLoader(FOLDER), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["decimal"] = lambda value: f"{float(value):g}"
    return environment.get_template(name)
