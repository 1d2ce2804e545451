"""The pages of the documentation, and the code that stands in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def code_blocks(text: str, language: str) -> list[str]:
    return [body for _, kind, body in FENCE.findall(text) if kind == language]
