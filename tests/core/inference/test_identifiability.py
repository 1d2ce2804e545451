"""Identifiability and the reliability of edges against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.core.identification import identifiability

PERSONS, SESSIONS = np.repeat(np.arange(9), 2), np.tile(["a", "b"], 9)


def test_means_and_d_prime_by_definition():
    similarity = np.corrcoef(np.random.default_rng(0).standard_normal((18, 12)))
    result = identifiability(similarity, PERSONS, SESSIONS)
    block = similarity[::2, 1::2]
    own, others = np.diag(block), block[~np.eye(9, dtype=bool)]
    assert result.i_self == pytest.approx(own.mean())
    assert result.i_others == pytest.approx(others.mean())
    assert result.i_diff == pytest.approx(100 * (own.mean() - others.mean()))
    # Each direction of a symmetric matrix holds the same values, so only ddof differs from the one-way d'.
    own, others = np.tile(own, 2), np.tile(others, 2)
    expected = (own.mean() - others.mean()) / np.sqrt((own.var(ddof=1) + others.var(ddof=1)) / 2)
    assert result.d_prime == pytest.approx(expected)


def test_without_variance_d_prime_is_nan():
    assert np.isnan(identifiability(np.ones((18, 18)), PERSONS, SESSIONS).d_prime)
