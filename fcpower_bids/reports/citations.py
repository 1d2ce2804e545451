"""The methods text in other formats, from the little Markdown that its templates use, and its references.

The templates know headings, paragraphs, superscripts (``FC^0.35^``) and citations (``[@key; @key]``), which pandoc
reads as well. A well-kept converter would be one more dependency for five rules.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from pathlib import Path

Entry = Mapping[str, str]
"""A reference: its fields, ``key`` and ``text`` (the entry as the file has it)."""

MARK = re.compile(r"\[(?P<cited>@\w+(?:; @\w+)*)\]|\^(?P<raised>[^\s^]+)\^")
LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
ACCENTS = {r"{\'e}": "é", r"{\^o}": "ô"}


def read_references(path: Path) -> dict[str, Entry]:
    """Read a ``.bib`` file with one ``name = {value}`` per line, by key."""
    found: dict[str, Entry] = {}
    for text in re.findall(r"^@\w+\{.*?^\}", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL):
        key = text[text.index("{") + 1 : text.index(",")]
        fields = dict(re.findall(r"^\s*(\w+) = \{(.*)\},?$", text, flags=re.MULTILINE))
        for written, letter in ACCENTS.items():
            fields["author"] = fields["author"].replace(written, letter)
        found[key] = {**fields, "key": key, "text": text}
    return found


def cited_keys(markdown: str, references: Mapping[str, Entry]) -> list[str]:
    """Return the keys of all citations that the references have, once each, in the order of the alphabet."""
    groups = (_keys(match) for match in MARK.finditer(markdown) if match["cited"])
    return sorted({key for group in groups for key in group if key in references})


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
            return f"<sup>{html.escape(match['raised'])}</sup>"
        cited = (in_text(references[key]) if key in references else key for key in _keys(match))
        return f"({html.escape('; '.join(cited))})"

    lines = []
    for heading, text in _blocks(markdown):
        tag = f"h{min(6, heading + level)}" if heading else "p"
        lines.append(f"<{tag}>{_convert(text, html.escape, mark)}</{tag}>")
    items = [f"<li>{html.escape(in_list(references[key]))}</li>" for key in cited_keys(markdown, references)]
    return "\n".join([*lines, f"<h{3 + level}>References</h{3 + level}>", "<ul>", *items, "</ul>"]) + "\n"


def to_latex(markdown: str) -> str:
    """Return the text as LaTeX with natbib citations of ``CITATION.bib``."""

    def mark(match: re.Match[str]) -> str:
        if match["raised"]:
            return rf"\textsuperscript{{{_escape_latex(match['raised'])}}}"
        return rf"\citep{{{','.join(_keys(match))}}}"

    commands = {2: "section", 3: "subsection"}
    lines = []
    for heading, text in _blocks(markdown):
        converted = _convert(text, _escape_latex, mark)
        lines.append(rf"\{commands[heading]}{{{converted}}}" if heading else converted)
    return "\n\n".join([*lines, r"\bibliographystyle{plainnat}", r"\bibliography{CITATION}"]) + "\n"


def _keys(match: re.Match[str]) -> list[str]:
    return [key.removeprefix("@") for key in match["cited"].split("; ")]


def _blocks(markdown: str) -> list[tuple[int, str]]:
    """Return depth of heading (0 for a paragraph) and text of each block."""
    blocks = [block for block in re.split(r"\n\s*\n", markdown.strip()) if block.strip()]
    return [(len(block) - len(block.lstrip("#")), " ".join(block.lstrip("#").split())) for block in blocks]


def _convert(text: str, escape: Callable[[str], str], mark: Callable[[re.Match[str]], str]) -> str:
    parts, end = [], 0
    for match in MARK.finditer(text):
        parts += [escape(text[end : match.start()]), mark(match)]
        end = match.end()
    return "".join([*parts, escape(text[end:])])


def _escape_latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)
