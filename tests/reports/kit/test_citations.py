from __future__ import annotations

import re

import pytest

from fcpower_bids.reports.methods import FOLDER, all_references, cited_keys, in_list, in_text, to_html

TEXT = "## Head & tail\n\nFC^0.35^ by <b>us</b> [@power2012; @lindquist2019], 5 % of a_b.\n\n### More\n\n[@unknown]\n"


def test_every_entry_of_the_file_is_read_with_author_year_and_title():
    text = (FOLDER / "references.bib").read_text(encoding="utf-8")
    references = all_references()
    assert len(references) == text.count("\n@") + 1
    assert all({"author", "year", "title"} <= entry.keys() for entry in references.values())
    assert not any("{" in entry["author"] for entry in references.values())


def test_html_is_escaped_and_lists_what_is_cited():
    html = to_html(TEXT, all_references(), level=1)
    assert "<h3>Head &amp; tail</h3>" in html
    assert (
        "FC<sup>0.35</sup> by &lt;b&gt;us&lt;/b&gt; (Power et al., 2012; Lindquist et al., 2019), 5 % of a_b." in html
    )
    assert html.count("<li>") == 2
    assert "(unknown)" in html


def test_keys_are_those_the_references_have():
    assert cited_keys(TEXT, all_references()) == ["lindquist2019", "power2012"]


@pytest.mark.parametrize(
    ("authors", "expected"),
    [
        ("One, A.", "One, 2020"),
        ("One, A. and Two, B.", "One & Two, 2020"),
        ("One, A. and Two, B. and others", "One et al., 2020"),
    ],
)
def test_names_in_the_text(authors, expected):
    assert in_text({"author": authors, "year": "2020"}) == expected


def test_a_reference_in_the_list():
    entry = in_list(all_references()["power2012"])
    assert re.fullmatch(
        r"Power, Jonathan D\.; .*\(2012\)\. Spurious .*NeuroImage\. https://doi\.org/10\.1016/.*", entry
    )
