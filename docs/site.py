"""Hooks of mkdocs: the README becomes the first page of the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ACCESSIBLE = (
    (re.compile(r'role="?dialog"?(?! aria-label)'), 'role="dialog" aria-label="Search"'),
    (re.compile(r"<th( [^>]*)?></th>"), r"<td\1></td>"),
)
"""A dialog without a name, and heads of columns without a word."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README as the first page, and the file that it links to."""
    root = Path(config.config_file_path).parent
    first = (root / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=f"---\nhide: [navigation]\n---\n{first}"))
    files.append(File.generated(config, "CITATION.cff", abs_src_path=str(root / "CITATION.cff")))
    return files


def on_post_page(output: str, **_: Any) -> str:
    """Take from the site itself what the search needs in pages that are opened from the disk; mend what axe finds."""
    for found, better in ACCESSIBLE:
        output = found.sub(better, output)
    return output.replace("https://unpkg.com/iframe-worker/shim", "search_from_disk.js")


def on_post_template(output_content: str, **_: Any) -> str:
    """Do the same for the page of what is not there."""
    return on_post_page(output_content)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links to the README to the first page."""
    return markdown.replace("](../README.md", "](index.md")
