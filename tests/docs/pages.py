"""The pages of the documentation, and what stands in them: links, headings, commands, tables of columns."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def without_blocks(text: str) -> str:
    """The text without its fenced blocks and comments."""
    return re.sub(r"<!--.*?-->", "", FENCE.sub("", text), flags=re.S)


def headings(text: str) -> list[str]:
    """The anchors of the headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+?) *$", without_blocks(text), re.M)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


def links(page: Path) -> list[str]:
    """Where the links of a page lead."""
    text = re.sub(r"`[^`]*`", "", without_blocks(read(page)))
    return re.findall(r"\]\(([^)\s]+)\)", text)


def code_blocks(text: str, language: str) -> list[str]:
    return [body for _, kind, body in FENCE.findall(text) if kind == language]


def code_spans(text: str) -> list[str]:
    """What stands between backticks, on one line."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", without_blocks(text))]


@dataclass(frozen=True)
class Command:
    """A command of the documentation."""

    page: str
    text: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)

    @property
    def program(self) -> str:
        """The program, without the variables that are set for it."""
        return next(word for word in self.words if "=" not in word)


def commands(page: Path, programs: tuple[str, ...]) -> list[Command]:
    """Every command of a page: all lines of its ``sh`` blocks, and code in the text that begins as a command does."""
    text = read(page)
    lines = [line for block in code_blocks(text, "sh") for line in block.replace("\\\n", " ").splitlines()]
    spans = [span for span in code_spans(text) if begins_as_command(span, programs)]
    return [Command(page.name, " ".join(line.split())) for line in (*lines, *spans) if line.strip()]


def begins_as_command(span: str, programs: tuple[str, ...]) -> bool:
    """Whether code in the text is a command with arguments, and not the mention of a program."""
    words = re.sub(r"^([A-Z_]+=\S+ )+", "", span).split()
    return len(words) > 1 and words[0] in programs
