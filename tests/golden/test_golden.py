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


def test_a_comparison_finds_what_differs():
    expected = read("surface")
    name = next(each for each in expected if each.endswith("relmat.tsv"))
    changed = expected[name].copy()
    changed.iloc[1, 2] = repr(float(changed.iloc[1, 2]) + 1e-8)
    assert len(list(differences(expected, expected | {name: changed}))) == 1
    assert list(differences(expected, {key: expected[key] for key in expected if key != name})) == [f"{name}: missing"]
    assert any("rows" in each for each in differences(expected, expected | {name: expected[name].iloc[1:]}))
    assert not list(differences(expected, expected))
