"""What turns docs/ into a site: the README is its first page, but for its last part, which ends the architecture."""

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


SOURCE = "## Where things are"
"""Heading of the last part of the README, which is about the source."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README without its part about the source as the first page, and the file that it links to."""
    first, _ = _readme(config)
    files.append(File.generated(config, "index.md", content=f"---\nhide: [navigation]\n---\n{first}"))
    citation = Path(config.config_file_path).with_name("CITATION.cff")
    files.append(File.generated(config, "CITATION.cff", abs_src_path=str(citation)))
    return files


def _readme(config: MkDocsConfig) -> tuple[str, str]:
    """The README up to its part about the source, and that part; links to docs/ become links between pages."""
    text = Path(config.config_file_path).with_name("README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    first, source = text.split(f"\n{SOURCE}\n")
    return first, f"\n{SOURCE}\n{source}"


def on_post_page(output: str, **_: Any) -> str:
    """Take from the site itself what the search needs in pages that are opened from the disk; mend what axe finds."""
    for found, better in ACCESSIBLE:
        output = found.sub(better, output)
    return output.replace("https://unpkg.com/iframe-worker/shim", "search_from_disk.js")


def on_post_template(output_content: str, **_: Any) -> str:
    """Do the same for the page of what is not there."""
    return on_post_page(output_content)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """End the architecture with the README's part about the source; lead links to the README to the first page."""
    if page.file.src_uri == "architecture.md":
        here = markdown.replace("[README](../README.md)", "[last part of this page](#where-things-are)")
        markdown = here + _readme(config)[1]
    return markdown.replace("](../README.md", "](index.md")
