"""What turns docs/ into a site: the README is its first page, and a link to the README leads there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ACCESSIBLE = (
    (re.compile(r'role="?dialog"?(?! aria-label)'), 'role="dialog" aria-label="Search"'),
    (re.compile(r"<th( [^>]*)?></th>"), r"<td\1></td>"),
)
"""A dialog without a name, and heads of columns without a word."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README, whose links to docs/ become links between pages, and the file it links to."""
    root = Path(config.config_file_path).parent
    readme = (root / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=readme))
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


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links that leave docs/ for the README to the first page."""
    return markdown.replace("](../README.md", "](index.md")
