"""Stored outputs, connectomes and tables that were damaged and still can be read: each is named by the group level.

The faults are the lines of ``derivatives/damage.tsv`` about them.
"""

from __future__ import annotations

import pytest

from tests.planting.damage import NAMED, UNKNOWABLE, read_catalogue
from tests.planting.damage_of_cohorts import observe, plant

LINES = read_catalogue(of_cohorts=True)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    root = tmp_path_factory.mktemp("damaged")
    plant(root, LINES)
    return dict(zip(LINES, observe(root, LINES), strict=True))


@pytest.mark.parametrize("line", [line for line in LINES if line.outcome != UNKNOWABLE], ids=lambda line: line.name)
def test_every_line_becomes_what_it_says(damaged, line):
    became, _, said = damaged[line]
    assert became == (NAMED if line.is_named else line.outcome)
    if line.is_named:
        assert line.words in said
