"""The documentation holds together: links lead somewhere, every page can be found, and it builds into a site."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, headings, links, read, without_blocks

TARGETS = [(page, link) for page in PAGES for link in links(page) if not link.startswith(("http://", "https://"))]


def follow(page: Path, link: str) -> tuple[Path, str]:
    name, _, anchor = link.partition("#")
    return (page.parent / name).resolve() if name else page, anchor


@pytest.mark.parametrize(("page", "link"), TARGETS, ids=[f"{page.name}:{link}" for page, link in TARGETS])
def test_links_lead_somewhere(page, link):
    target, anchor = follow(page, link)
    assert target.exists()
    assert target.is_relative_to(ROOT)
    if anchor:
        assert anchor in headings(read(target))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_can_be_reached_from_the_readme(page):
    found, todo = set(), [ROOT / "README.md"]
    while todo:
        page_now = todo.pop()
        found.add(page_now)
        todo += [target for target, _ in (follow(page_now, link) for link in links(page_now)) if target in PAGES]
        todo = [one for one in todo if one not in found]
    assert page in found


def test_every_page_is_in_the_navigation():
    listed = re.findall(r": (\w+\.md)$", read(ROOT / "mkdocs.yml"), re.M)
    assert sorted(listed) == sorted(["index.md", *(page.name for page in DOCS.glob("*.md"))])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lists_begin_after_an_empty_line(page):
    """Or else they are lists on GitHub and one paragraph on the site."""
    lines = without_blocks(read(page)).splitlines()
    item = re.compile(r"^(-|\d+\.) ")
    joined = [
        line
        for before, line in pairwise(lines)
        if item.match(line) and re.match(r"^[\w*`(]", before) and not item.match(before)
    ]
    assert joined == []


def test_it_builds_into_a_site_that_needs_no_network(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (pip install -e '.[docs]')")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "site").glob("*.html")}
    assert set(built) == {"404.html", "index.html", *(page.with_suffix(".html").name for page in DOCS.glob("*.md"))}
    for name, text in built.items():
        fetched = re.findall(r"<(?:script|img|iframe)[^>]* src=\"([^\"]+)\"|<link[^>]* href=\"([^\"]+)\"", text)
        assert not [one for pair in fetched for one in pair if re.match(r"(https?:)?//", one)], name
    for style in (tmp_path / "site").rglob("*.css"):
        assert not re.search(r"(url|@import)\s*\(?['\"]?https?:", style.read_text(encoding="utf-8")), style.name
    assert '<h1 id="fcpower_bids">' in built["index.html"]
    assert 'href="quickstart.html"' in built["index.html"], "links of the README lead to pages of the site"
