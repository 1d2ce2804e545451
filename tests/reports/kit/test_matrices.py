from __future__ import annotations

import base64

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcpower_bids.reports.kit.charts import MISSING, encode_matrix, network_spans


def decode_matrix(encoded, size):
    """What the page shows: the two-byte numbers of the lower triangle, on both sides of the diagonal."""
    packed = np.frombuffer(base64.b64decode(encoded["data"]), dtype="<i2").astype(float)
    packed[packed == MISSING] = np.nan
    values, (rows, columns) = np.empty((size, size)), np.tril_indices(size)
    values[rows, columns] = values[columns, rows] = packed / 10.0 ** encoded["digits"]
    return values


quick = settings(max_examples=50, deadline=None, derandomize=True)


@quick
@given(st.integers(1, 12), st.floats(0.01, 5000), st.integers(0, 2**31))
def test_the_page_shows_the_number_of_the_table_rounded_to_its_digits(size, scale, seed):
    random = np.random.default_rng(seed)
    values = random.uniform(-scale, scale, (size, size))
    values = (values + values.T) / 2
    order = random.permutation(size)
    encoded = encode_matrix("FC", values, order)
    shown = decode_matrix(encoded, size)
    np.testing.assert_allclose(shown, values[np.ix_(order, order)], atol=0.5000001 * 10.0 ** -encoded["digits"])
    np.testing.assert_array_equal(shown, shown.T)


def test_correlations_have_four_digits_and_missing_parcels_stay_missing():
    values = np.array([[1.0, -0.12346, np.nan], [-0.12346, 1.0, np.nan], [np.nan] * 3])
    encoded = encode_matrix("FC", values, np.arange(3))
    assert encoded["digits"] == 4
    shown = decode_matrix(encoded, 3)
    assert f"{shown[0, 1]:.4f}" == f"{values[0, 1]:.4f}" == "-0.1235"
    np.testing.assert_array_equal(np.isnan(shown), np.isnan(values))


def test_a_matrix_without_any_value_can_be_encoded():
    assert np.isnan(decode_matrix(encode_matrix("FC", np.full((2, 2), np.nan), np.arange(2)), 2)).all()


def test_two_bytes_a_value_of_half_the_matrix():
    encoded = encode_matrix("FC", np.eye(450), np.arange(450))
    assert len(encoded["data"]) == pytest.approx(450 * 451 / 2 * 2 * 4 / 3, abs=4)


def test_the_colour_limit_leaves_the_diagonal_out():
    values = np.full((5, 5), 0.2)
    np.fill_diagonal(values, 1.0)
    assert encode_matrix("FC", values, np.arange(5))["limit"] == pytest.approx(0.2)


def test_spans_of_networks():
    assert network_spans(["a", "a", "b", "a"]) == [("a", 0, 2), ("b", 2, 3), ("a", 3, 4)]
