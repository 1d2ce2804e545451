"""Hooks of mkdocs: the README becomes the first page of the site, and references are made from the declarations."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # scripts/ is not installed
group_tables, recording_tables, usage = (
    import_module(f"scripts.reference.{name}") for name in ("group_tables", "recording_tables", "usage")
)
ACCESSIBLE = (
    (re.compile(r'role="?dialog"?(?! aria-label)'), 'role="dialog" aria-label="Search"'),
    (re.compile(r"<th( [^>]*)?></th>"), r"<td\1></td>"),
)
"""A dialog without a name, and heads of columns without a word."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages of the tables to the navigation."""
    titles = group_tables.tables_by_title()
    pages = [{title.strip("`"): f"tables/{group_tables.file_name(title)}"} for title in titles]
    next(part["Cohorts"] for part in config.nav or () if "Cohorts" in part).append({"Tables": pages})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README as the first page, the file that it links to, and the pages of the tables."""
    first = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=f"---\nhide: [navigation]\n---\n{first}"))
    files.append(File.generated(config, "CITATION.cff", abs_src_path=str(ROOT / "CITATION.cff")))
    for name, text in group_tables.table_pages().items():
        files.append(File.generated(config, f"tables/{name}", content=text))
    return files


def on_post_page(output: str, page: Page | None = None, **_: Any) -> str:
    """Take from the site itself what the search needs in pages that are opened from the disk; mend what axe finds."""
    for found, better in ACCESSIBLE:
        output = found.sub(better, output)
    up = "../" * page.url.count("/") if page else ""
    return output.replace("https://unpkg.com/iframe-worker/shim", f"{up}search_from_disk.js")


def on_post_template(output_content: str, **_: Any) -> str:
    """Do the same for the page of what is not there."""
    return on_post_page(output_content)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links to the README to the first page; add what is generated."""
    added = {"usage.md": usage.reference, "group_outputs.md": group_tables.list_pages}.get(page.file.src_uri)
    markdown = recording_tables.fill_columns(markdown.rstrip("\n") + "\n") + (f"\n{added()}" if added else "")
    return markdown.replace("](../README.md", "](index.md")
