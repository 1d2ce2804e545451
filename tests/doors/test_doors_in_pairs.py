"""Every way in with every way on, for scans of more than one shape: right numbers, or a sentence that says why not.

A third of the cells is walked: each way in meets each way on, and each shape does. ``FCPOWER_FAULTS=all`` walks all.
"""

from __future__ import annotations

import os

import pytest

from tests.doors.cohort import ONE_SESSION, SHAPES, WAYS_IN, enter
from tests.doors.ways_on import WAYS_ON

ONE_SCAN = "Fingerprinting needs two sessions of the same people"
NO_SERIES = "holds matrices and no series"
PAIRS = [
    (way, shape)
    for way in WAYS_IN
    for shape, about in SHAPES.items()
    if (about.sessions == 1 or way not in ONE_SESSION) and shape != "one scan"
]
ALL = os.environ.get("FCPOWER_FAULTS") == "all"


def ways_on(way_in: str, shape: str) -> list[str]:
    """Ways on that are walked from a way in with a shape."""
    walks = [("group", "check"), ("identify",), ("group", "models then predict", "pack, pretrain, embed")]
    return list(WAYS_ON) if ALL else list(walks[PAIRS.index((way_in, shape)) % 3])


def why_not(way_in: str, way_on: str, sessions: int) -> str:
    """What a cell says in place of numbers; nothing where it has them."""
    if way_on == "identify" and sessions == 1:
        return ONE_SCAN
    if way_on == "pack, pretrain, embed" and way_in == "list of matrices":
        return NO_SERIES
    return ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("doors")


@pytest.mark.parametrize(("way_in", "shape"), PAIRS)
def test_every_way_on_ends_in_right_numbers_or_says_why_not(way_in, shape, folder):
    entered = enter(folder, way_in, SHAPES[shape])
    for way_on in ways_on(way_in, shape):
        said, expected = WAYS_ON[way_on](entered), why_not(way_in, way_on, SHAPES[shape].sessions)
        assert (expected in said) if expected else not said, f"{way_in}, {way_on}: {said}"
        assert "internal error" not in said
