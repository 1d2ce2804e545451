"""New people of known value show whether intervals hold where a model is used."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.slices.clinic.people import check_known_values


def test_values_are_counted_and_errors_averaged():
    found = check_known_values([1.0, 2.0, 3.0, np.nan], [1.5, 5.0, np.nan, 1.0], radius=1.0, level=0.9)
    assert (found.people, found.inside, found.mean_error, found.mean_absolute_error) == (2, 1, -1.75, 1.75)
    assert check_known_values([1.0], [np.nan], 1.0, 0.9) is None


@pytest.mark.parametrize(("n", "inside", "fails"), [(1, 0, False), (3, 0, True), (20, 14, False), (20, 13, True)])
def test_so_few_inside_are_no_chance(n, inside, fails):
    """.1 ^ 3 is less than .01; of 20, 14 or fewer are inside in .0113 and 13 or fewer in .0024 of all cases."""
    known = np.where(np.arange(n) < inside, 0.5, 2.0)
    assert check_known_values(np.zeros(n), known, 1.0, 0.9).fails == fails
