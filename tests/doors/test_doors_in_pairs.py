"""Every way in with every way on, for scans of more than one shape: right numbers, or a sentence that says why not.

A third of the cells is walked: each way in meets each way on but training. ``FCPOWER_FAULTS=all`` walks all.
"""

from __future__ import annotations

import os

import pytest

from tests.doors.cohort import ONE_SESSION, SHAPES, WAYS_IN, enter
from tests.doors.ways_on import WAYS_ON

ONE_SCAN = "Fingerprinting needs two sessions of the same people"
NO_SERIES = "holds matrices and no series"
ALL = os.environ.get("FCPOWER_FAULTS") == "all"
SHORT, ACCEPTED, TWO = ("one short scan, one person rejected", "one scan, all accepted", "two sessions")
CHECKED, MODELLED, TRAINED = ("check", "identify"), ("group", "models then predict"), ("pack, pretrain, embed",)
SOME = {
    ("fMRIPrep", TWO): (*CHECKED, *MODELLED, *TRAINED),
    ("HCP", SHORT): (*CHECKED, *MODELLED),
    ("XCP-D", ACCEPTED): MODELLED,
    ("XCP-D", TWO): CHECKED,
    ("C-PAC", SHORT): CHECKED,
    ("C-PAC", ACCEPTED): (*MODELLED, *TRAINED),
    ("list of series", SHORT): MODELLED,
    ("list of series", TWO): CHECKED,
    ("list of matrices", SHORT): (*MODELLED, *TRAINED),
    ("list of matrices", TWO): CHECKED,
}
"""Ways on that are walked from a way in with a shape: training takes long, and reads what all ways in write alike."""
EVERY = {(way, shape): tuple(WAYS_ON) for way in WAYS_IN for shape in SHAPES if way not in ONE_SESSION or shape != TWO}
WALKS = EVERY if ALL else SOME


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


@pytest.mark.parametrize(("way_in", "shape"), WALKS)
def test_every_way_on_ends_in_right_numbers_or_says_why_not(way_in, shape, folder):
    entered = enter(folder, way_in, SHAPES[shape])
    for way_on in WALKS[way_in, shape]:
        said, expected = WAYS_ON[way_on](entered), why_not(way_in, way_on, SHAPES[shape].sessions)
        assert (expected in said) if expected else not said, f"{way_in}, {way_on}: {said}"
        assert "internal error" not in said
