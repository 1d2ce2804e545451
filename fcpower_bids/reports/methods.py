"""The methods text of a run, from the same settings as its numbers, for ``logs/CITATION`` and for the pages."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from fcpower_bids._version import __version__
from fcpower_bids.core.connectome import CLIP_TOLERANCE
from fcpower_bids.core.series import LONGEST_SPLINE
from fcpower_bids.encoders import PUBLISHED, name_of_weights
from fcpower_bids.errors import DatasetError
from fcpower_bids.imaging.confounds import load_strategy
from fcpower_bids.inputs.sources import is_hcp
from fcpower_bids.outputs.dataset import linked_datasets, without_folders
from fcpower_bids.outputs.tables import made_by
from fcpower_bids.reports.accounts import Parcellation
from fcpower_bids.reports.page import templates
from fcpower_bids.settings import Settings
from fcpower_bids.store import write_shared
from fcpower_bids.transforms.connectomes import TRANSFORMS
from fcpower_bids.transforms.stateless import REMEDY

FOLDER = Path(__file__).parents[1] / "data" / "boilerplate"
SURFACE = "fsLR"
HCP = "the minimal preprocessing pipelines of the Human Connectome Project [@glasser2013]"


def programs_of(output_dir: Path) -> dict[str, str]:
    """Programs that made the outputs, this one first, and how the dataset describes each; none where nothing does."""
    try:
        chain = made_by(output_dir)
    except DatasetError:
        return {}
    names = (" ".join(str(program[key]) for key in ("Name", "Version") if key in program) for program in chain)
    return {name: str(program.get("Description", "")) for name, program in zip(names, chain, strict=True)}


def write_methods(settings: Settings, atlases: Iterable[Parcellation] = ()) -> list[Path]:
    """Write ``logs/CITATION.{md,html,bib}``."""
    return write_citations(settings.output_dir, settings.output_dir / "logs", methods_text(settings, atlases))


def write_citations(output_dir: Path, folder: Path, markdown: str) -> list[Path]:
    """Write a text as ``CITATION.{md,html,bib}``, the last with the references that it cites."""
    references = all_references()
    body = to_html(markdown, references)
    head = '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>Methods</title></head>\n'
    page = f"{head}<body>\n{body}</body>\n</html>\n"
    entries = "\n\n".join(references[key]["text"] for key in cited_keys(markdown, references)) + "\n"
    texts = {".md": TAG.sub("&lt;", markdown), ".html": page, ".bib": entries}
    return [write_shared(output_dir, folder / f"CITATION{ending}", text) for ending, text in texts.items()]


def methods_text(settings: Settings, atlases: Iterable[Parcellation] = ()) -> str:
    """Return the text as Markdown with pandoc's citations; every sentence is true of a run with these settings."""
    strategy = load_strategy(settings.method.strategy)
    atlases = sorted(set(atlases))
    spaces = {atlas.space for atlas in atlases}
    # what the strategy says of itself, with its citations before the full stop; a DOI where there is no entry
    by_doi = {entry["doi"]: key for key, entry in all_references().items() if "doi" in entry}
    known = "; ".join(f"@{by_doi[doi]}" for doi in strategy.references if doi in by_doi)
    unknown = ", ".join(doi for doi in strategy.references if doi not in by_doi)
    cited = (f" [{known}]" if known else "") + (f" (doi: {unknown})" if unknown else "")
    summary = strategy.methods.strip()
    hcp = [is_hcp(folder) for folder in linked_datasets(settings.output_dir).values() if folder.is_dir()]
    return fill(
        "participant.md",
        settings=settings.method,
        configuration=settings.method.configuration_hash(),
        preprocessing=" and ".join([*[HCP] * (any(hcp) and not all(hcp)), *list(programs_of(settings.output_dir))[1:]]),
        hcp=any(hcp) and all(hcp),
        fixed=next((settings.output_dir / "logs" / "status").glob("*_proc-fix_*.json"), None) is not None,
        atlases=atlases,
        names=[without_folders(name) for name in settings.method.atlas],
        weights=name_of_weights(settings.method.encoder_weights) if settings.method.encoder_weights else "",
        published=PUBLISHED.get(settings.method.encoder or "", ""),
        surface=spaces == {SURFACE} if spaces and (SURFACE not in spaces or len(spaces) == 1) else None,
        filtered=any(settings.method.band),
        regressed=bool(strategy.columns or strategy.optional or strategy.acompcor),
        strategy=strategy,
        methods=f"{summary.removesuffix('.')}{cited}." if cited else summary,
        longest_spline=LONGEST_SPLINE,
        tolerance=f"{CLIP_TOLERANCE:g}",
        exponent=f"{settings.method.alpha:g}",
        summaries=[TRANSFORMS[name].summary for name in settings.method.transforms if name != "power"],
        full_rank=[
            name.replace("_", "-")
            for name in settings.method.transforms
            if REMEDY.keys() <= TRANSFORMS[name].parameters.keys()
        ],
    )


def fill(template: str, **content: Any) -> str:
    """Fill a template of ``data/boilerplate``; every paragraph is one line of Markdown."""
    text = fill_part(template, version=__version__, **content)
    paragraphs = ("\n".join(" ".join(line.split()) for line in block.splitlines()) for block in text.split("\n\n"))
    return "\n\n".join(block.strip() for block in paragraphs if block.strip()) + "\n"


@lru_cache(maxsize=1)
def all_references() -> dict[str, Entry]:
    """Every reference that the templates and the strategies can cite, by key; one ``name = {value}`` per line."""
    entries: dict[str, Entry] = {}
    file = (FOLDER / "references.bib").read_text(encoding="utf-8")
    for text in re.findall(r"^@\w+\{.*?^\}", file, flags=re.MULTILINE | re.DOTALL):
        key = text[text.index("{") + 1 : text.index(",")]
        fields = dict(re.findall(r"^\s*(\w+) = \{(.*)\},?$", text, flags=re.MULTILINE))
        for written, letter in ACCENTS.items():
            fields["author"] = fields["author"].replace(written, letter)
        entries[key] = {**fields, "key": key, "text": text}
    return entries


def fill_part(template: str, **content: Any) -> str:
    """Fill the template of a part of a text."""
    return templates().get_template(template).render(**content).strip()


Entry = Mapping[str, str]
"""A reference: its fields, ``key`` and ``text`` (the entry as the file has it)."""

TAG = re.compile(r"<(?=[A-Za-z/!?])")
"""Begin of what Markdown would pass on as HTML; names and sentences come from files of strangers."""
MARK = re.compile(r"\[(?P<cited>@\w+(?:; @\w+)*)\]|\^(?P<raised>[^\s^]+)\^")
ACCENTS = {r"{\'e}": "é", r"{\^o}": "ô", r"{\'i}": "í", r"{\~n}": "ñ", r"{\"o}": "ö", r"{\"a}": "ä"}


def cited_keys(markdown: str, references: Mapping[str, Entry]) -> list[str]:
    """Return the keys of all citations that the references have, once each, in the order of the alphabet."""
    return sorted({key for match in MARK.finditer(markdown) for key in _keys(match) if key in references})


def in_text(entry: Entry) -> str:
    """Return ``Lindquist et al., 2019``."""
    names = [author.partition(",")[0] for author in entry["author"].split(" and ")]
    who = names[0] if len(names) == 1 else " & ".join(names) if len(names) == 2 else f"{names[0]} et al."
    return f"{who}, {entry['year']}"


def in_list(entry: Entry) -> str:
    """Return a reference as plain text."""
    authors = [author if author != "others" else "et al." for author in entry["author"].split(" and ")]
    doi = f" https://doi.org/{entry['doi']}" if "doi" in entry else ""
    return f"{'; '.join(authors)} ({entry['year']}). {entry['title']}. {entry['journal']}.{doi}"


def to_html(markdown: str, references: Mapping[str, Entry], level: int = 0) -> str:
    """Return the text as escaped HTML with its list of references; headings are ``level`` deeper than written."""

    def mark(match: re.Match[str]) -> str:
        if match["raised"]:
            return f"<sup>{match['raised']}</sup>"
        cited = (in_text(references[key]) if key in references else key for key in _keys(match))
        return f"({html.escape('; '.join(cited))})"

    lines = []
    for block in filter(None, map(str.strip, re.split(r"\n\s*\n", markdown))):
        text = block.lstrip("#")
        heading, text = len(block) - len(text), " ".join(text.split())  # 0 for a paragraph
        tag = f"h{min(6, heading + level)}" if heading else "p"
        lines.append(f"<{tag}>{MARK.sub(mark, html.escape(text))}</{tag}>")
    cited = sorted((in_list(references[key]) for key in cited_keys(markdown, references)), key=str.casefold)
    items = [f"<li>{html.escape(entry)}</li>" for entry in cited]
    return "\n".join([*lines, f"<h{3 + level}>References</h{3 + level}>", "<ul>", *items, "</ul>"]) + "\n"


def _keys(match: re.Match[str]) -> list[str]:
    return re.findall(r"@(\w+)", match["cited"] or "")
