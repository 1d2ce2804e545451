"""What the commands write, against the golden tables that an earlier version of them wrote."""

from __future__ import annotations

import pytest

from tests.conftest import copy_study
from tests.golden.freeze import CASES, differences, read, tables


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_the_golden_tables(case, request, tmp_path):
    if case == "group":
        copy_study(request.getfixturevalue("cohort_of_24"), tmp_path)
    folder = request.getfixturevalue("painted_people") if case == "stages" else tmp_path
    assert not list(differences(read(case), dict(tables(CASES[case](folder)))))
