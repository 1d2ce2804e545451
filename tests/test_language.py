"""The field's nouns: a recording is what was scanned, a run is BIDS's entity or one start of the program."""

from __future__ import annotations

import re

from tests.docs.pages import PAGES, ROOT, read

SOURCES = sorted((ROOT / "fcpower_bids").rglob("*.py"))
NEVER = re.compile(r"\b(can(not)? be had|became of|left off)\b", re.I)
"""What a status, available or skip says plainly."""
A_SCAN = re.compile(r"\b(a|the|one|this|NIfTI|BOLD|CIFTI|very|same) runs?\b|mid-run", re.I)
"""A recording under another name, where nothing but recordings is spoken of."""


def hits(pattern: re.Pattern[str], page) -> list[str]:
    lines = enumerate(read(page).splitlines(), 1)
    return [f"{page.relative_to(ROOT)}:{number}: {line.strip()}" for number, line in lines if pattern.search(line)]


def test_plain_words_for_what_is_there_and_what_is_not():
    assert [hit for page in (*SOURCES, *PAGES) for hit in hits(NEVER, page)] == []


def test_what_reads_and_holds_recordings_calls_them_so():
    rooms = ("core", "imaging", "records", "interfaces", "measures", "transforms")
    found = [hit for page in SOURCES if page.parts[len(ROOT.parts) + 1] in rooms for hit in hits(A_SCAN, page)]
    assert found == []


def test_the_words_are_found():
    assert NEVER.search("what became of each")
    assert A_SCAN.search("Average a run within the parcels")
    assert not A_SCAN.search("run fMRIPrep again")
