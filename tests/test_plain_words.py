"""Words of the package are plain: things are not persons, and no sentence begins with a clause instead of a subject."""

from __future__ import annotations

import io
import re
import tokenize

from tests.docs.pages import PAGES, ROOT, read, without_blocks

DIALECT = re.compile(r"\b(tells?|told|somebody|nobody|beside|owes?)\b", re.I)
"""Words that speak of things as of persons, or that a stranger would look up."""
CLAUSE = re.compile(r'^(?:[rf]*"""|[rf]*")What (?!is\b.*\?)')
"""A text that begins with a clause in the place of its subject."""
SOURCES = sorted((ROOT / "fcpower_bids").rglob("*.py"))


def texts(path) -> list[tuple[int, str]]:
    """Comments and strings of a module, without the code inside of formatted strings."""
    tokens = tokenize.generate_tokens(io.StringIO(read(path)).readline)
    kinds = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", None))
    return [(one.start[0], re.sub(r"\{[^{}]*\}", "", one.string)) for one in tokens if one.type in kinds]


def test_modules_speak_plainly():
    each = ((path.relative_to(ROOT), line, text) for path in SOURCES for line, text in texts(path))
    assert [one for one in each if DIALECT.search(one[2]) or CLAUSE.match(one[2])] == []


def test_the_documentation_speaks_plainly():
    lines = [(page.name, line) for page in PAGES for line in without_blocks(read(page)).splitlines()]
    assert [one for one in lines if DIALECT.search(one[1])] == []


def test_the_words_are_found():
    assert DIALECT.search("The table tells how")
    assert CLAUSE.match('"""What is written: names."""')
    assert not CLAUSE.match('"""The names of files."""')
