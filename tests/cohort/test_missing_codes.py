"""Numbers that mean "missing" are found, and real values are left alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcpower_bids.cohort.people import remove_codes


def clean(values, hints=None):
    frame = pd.DataFrame({"x": values}, index=[f"sub-{i}" for i in range(len(values))])
    cleaned, codes = remove_codes(frame, {"x": hints} if hints else {})
    return cleaned["x"], dict(codes)


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ([20.0, 45.0, -9999.0, 30.0], [2]),
        ([20.0, 45.0, 999.0, -99.0], [2, 3]),
        ([0.0, 1.0, 1.0, 99.0, -9.0], [3, 4]),
        ([-1.5, 0.3, 1.1, -999.0], [3]),
        ([100.0, 85.0, np.inf], [2]),
        ([88.0, 99.0, 77.0, 100.0], []),
        ([20.0, 99.0, 65.0], []),
        ([300.0, 999.0, 1200.0], []),
        ([-9.0, -8.0, 3.0, 10.0], []),
        ([-120.0, -99.0, -80.0], []),
        ([9998.0, 9999.0, 10020.0], []),
        ([1.0, 2.0, 5000.0], []),
    ],
)
def test_codes_are_told_from_values(values, missing):
    if values[0] == -9.0:
        values = [*values, -3.0]
    cleaned, codes = clean(values)
    assert np.flatnonzero(cleaned.isna()).tolist() == missing
    assert set(codes) == {f"sub-{i}" for i in missing}


def test_the_report_names_the_column_and_the_code():
    assert clean([1.0, 2.0, -9999.0])[1] == {"sub-2": "x = -9999 read as missing"}


@pytest.mark.parametrize(
    "hint",
    [
        {"MissingValues": [-1]},
        {"MissingValue": "-1"},
        {"Levels": {"-1": "refused to answer", "1": "low", "2": "high"}},
        {"Levels": {"-1": {"Description": "Not available"}, "1": "low"}},
    ],
)
def test_what_the_sidecar_declares_is_believed(hint):
    cleaned, _ = clean([1.0, -1.0, 2.0], hint)
    assert np.flatnonzero(cleaned.isna()).tolist() == [1]
    assert not clean([1.0, -1.0, 2.0], {"Levels": {"-1": "below", "1": "above"}})[1]


def test_declared_text_is_missing_too():
    cleaned, codes = clean(["M", "U", "F"], {"Levels": {"M": "male", "F": "female", "U": "unknown"}})
    assert cleaned.tolist()[::2] == ["M", "F"]
    assert codes == {"sub-1": "x = U read as missing"}


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.lists(st.floats(-50, 60, width=32), min_size=3, max_size=20), st.integers(0, 19))
def test_a_planted_code_is_the_only_thing_removed(values, place):
    values = [value if value not in (-7, -8, -9) else 0.0 for value in values]
    planted = [*values, 9999.0]
    cleaned, codes = clean(planted)
    assert cleaned.isna().tolist() == [False] * len(values) + [True]
    assert len(codes) == 1
    assert not clean(values)[1]
