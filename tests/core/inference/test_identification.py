"""Identification against loops, closed forms and invariances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fcpower_bids.core.differences import permutation_p_value
from fcpower_bids.core.identification import (
    compare_identification,
    identifiability,
    identify,
    identify_within,
    permutation_null,
)

PERSONS = np.array(["ann", "ben", "cem", "ann", "ben", "cem"])
SESSIONS = np.array(["1", "1", "1", "2", "2", "2"])


def full(block, back=None):
    """Similarity matrix of two sessions from what session 1 sees in session 2, and the reverse."""
    n = len(block)
    similarity = np.zeros((2 * n, 2 * n))
    similarity[:n, n:], similarity[n:, :n] = block, np.transpose(block) if back is None else back
    return similarity


def cohort(seed, n=8, sessions=2, noise=1.0):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, 1, 20)) + noise * rng.standard_normal((n, sessions, 20))
    persons, session = np.repeat(np.arange(n), sessions).astype(str), np.tile(np.arange(sessions), n).astype(str)
    return np.corrcoef(features.reshape(-1, 20)), persons, session


def test_both_directions_by_hand():
    block = [[0.9, 0.1, 0.2], [0.8, 0.3, 0.4], [0.1, 0.35, 0.7]]
    result = identify(full(block), PERSONS, SESSIONS)
    # From 1 to 2 ben looks like ann; back from 2 to 1 ben looks like cem.
    assert result.by_direction() == {("1", "2"): pytest.approx(2 / 3), ("2", "1"): pytest.approx(2 / 3)}
    assert result.accuracy == pytest.approx(2 / 3)
    assert result.chance == pytest.approx(1 / 3)
    ben = (result.person == "ben") & (result.session == "1")
    assert (result.matched[ben], result.similarity[ben], result.own_similarity[ben]) == ("ann", 0.8, 0.3)
    assert (result.rank[ben], result.credit[ben], result.searched[ben]) == (3, 0, "2")
    assert result.matched[(result.person == "ben") & (result.session == "2")] == "cem"


def test_ties_earn_their_share():
    block = [[0.5, 0.5, 0.1], [0.2, 0.9, 0.1], [0.7, 0.7, 0.6]]
    result = identify(full(block, np.eye(3)), PERSONS, SESSIONS)
    np.testing.assert_allclose(result.credit, [0.5, 1, 0, 1, 1, 1])
    np.testing.assert_array_equal(result.matched[:3], ["ann", "ben", "ann"])
    np.testing.assert_array_equal(result.rank[:3], [1, 1, 3])
    constant = identify(np.ones((6, 6)), PERSONS, SESSIONS)
    assert constant.accuracy == pytest.approx(constant.chance) == pytest.approx(1 / 3)


def test_more_sessions_search_every_ordered_pair_among_the_people_who_have_both():
    similarity, persons, sessions = cohort(0, n=7, sessions=3, noise=0.8)
    kept = ~((persons == "0") & (sessions == "2")) & ~((persons == "1") & (sessions != "0"))
    similarity, persons, sessions = similarity[np.ix_(kept, kept)], persons[kept], sessions[kept]
    result = identify(similarity, persons, sessions)
    credits = []
    for scan, other in np.ndindex(len(persons), 3):
        a, b = sessions[scan], str(other)
        both = [p for p in np.unique(persons) if {a, b} <= set(sessions[persons == p])]
        if a == b or persons[scan] not in both:
            continue
        gallery = [np.flatnonzero((persons == p) & (sessions == b))[0] for p in both]
        credits.append(both[int(np.argmax(similarity[scan, gallery]))] == persons[scan])
    assert len(result.credit) == len(credits) == 6 * 2 + 4 * 5
    assert result.accuracy == pytest.approx(np.mean(credits))
    assert set(zip(result.session, result.searched, result.candidates, strict=True)) == {
        ("0", "1", 6), ("1", "0", 6), ("0", "2", 5), ("2", "0", 5), ("1", "2", 5), ("2", "1", 5),
    }  # fmt: skip


def test_the_interval_is_that_of_wilson_for_people_whose_searches_agree():
    """Both searches of each of 40 people end alike, so that there are 40 and not 80; t has 39 degrees of freedom."""
    names = np.array([f"p{number}" for number in range(40)])
    block = np.eye(40)
    block[np.arange(30), np.arange(1, 31)] = 2  # 30 people are missed from either side
    block = np.maximum(block, block.T)
    found = identify(full(block), np.tile(names, 2), np.repeat(["1", "2"], 40))
    assert found.accuracy == 9 / 40
    error, low, high = found.interval()
    assert error == pytest.approx(np.sqrt(9 / 40 * 31 / 40 / 39))
    ratio = (stats.norm.isf(0.025) / stats.t.isf(0.025, 39)) ** 2
    n, z = 40 * ratio, stats.norm.isf(0.025)
    for end in (low, high):  # Wilson's limits are where the score test has its critical value
        assert abs(end - 9 / 40) == pytest.approx(z * np.sqrt(end * (1 - end) / n))
    families = {name: f"f{number // 4}" for number, name in enumerate(names)}
    assert np.diff(found.interval(families)[1:]) > high - low


def test_the_interval_of_a_perfect_identification_ends_at_one_and_has_a_width():
    names = np.tile([f"p{number}" for number in range(20)], 2)
    error, low, high = identify(full(np.eye(20)), names, np.repeat(["1", "2"], 20)).interval()
    t = stats.t.isf(0.025, 19)
    assert (error, high) == (0, 1)
    assert low == pytest.approx(20 / (20 + t**2))


@pytest.mark.parametrize("sessions", [2, 3])
@pytest.mark.parametrize("decimals", [0, 8])  # with ties, without
@pytest.mark.parametrize("missing", [0, 3])  # scans: then another label changes who is compared with whom
def test_the_null_is_the_accuracy_of_shuffled_labels(sessions, decimals, missing):
    similarity, persons, days = cohort(5, n=7, sessions=sessions)
    kept = np.arange(len(persons)) >= missing
    similarity, persons, days = np.round(similarity[np.ix_(kept, kept)], decimals), persons[kept], days[kept]
    sites = np.where(persons < "3", "x", "y")
    for places in (None, sites):
        rng, cells = np.random.default_rng(2), days if places is None else np.char.add(np.char.add(days, "/"), places)
        for accuracy in permutation_null(similarity, persons, days, 20, seed=2, sites=places):
            shuffled = persons.copy()
            for cell in np.unique(cells):
                shuffled[cells == cell] = rng.permutation(persons[cells == cell])
            assert accuracy == identify(similarity, shuffled, days).accuracy


def test_comparison_counts_discordant_searches():
    first = identify(full(np.eye(3)), PERSONS, SESSIONS)
    second = identify(full([[1, 0, 0], [2, 1, 0], [0.5, 0, 0.5]], np.eye(3)), PERSONS, SESSIONS)
    result = compare_identification(first, second)
    # ben is missed and cem ties: neither is right for McNemar, the tie earns half for the accuracy.
    assert (result.n_searches, result.only_first, result.only_second) == (6, 2, 0)
    assert result.difference == pytest.approx(1.5 / 6)
    assert result.p_mcnemar == pytest.approx(0.5)
    assert result.p_people == pytest.approx(0.5)  # ben and cem: two coins, both as observed or both not
    assert result.bootstrap.mean == pytest.approx(result.difference)
    assert compare_identification(first, first).p_mcnemar == 1


def test_comparison_of_different_people_is_refused():
    first = identify(full(np.eye(3)), PERSONS, SESSIONS)
    fewer = identify(np.eye(4), ["ann", "ben", "ann", "ben"], ["1", "1", "2", "2"])
    with pytest.raises(ValueError, match="same people"):
        compare_identification(first, fewer)
    with pytest.raises(ValueError, match="same people"):
        compare_identification(first, identify(full(np.eye(3)), ["x", "y", "z"] * 2, SESSIONS))


def test_what_cannot_be_identified_is_refused_in_words():
    with pytest.raises(ValueError, match="Scan 1"):
        identify(nan_at(1), PERSONS, SESSIONS)
    with pytest.raises(ValueError, match="square"):
        identify(np.ones((6, 5)), PERSONS, SESSIONS)
    with pytest.raises(ValueError, match="each of the 6 scans"):
        identify(np.eye(6), PERSONS[:5], SESSIONS)
    with pytest.raises(ValueError, match="'ann' has several scans in session '1'"):
        identify(np.eye(6), PERSONS, ["1", "1", "1", "1", "2", "2"])
    with pytest.raises(ValueError, match="two people"):
        identify(np.eye(3), ["a", "a", "b"], ["1", "2", "1"])


def nan_at(scan):
    similarity = np.eye(6)
    similarity[scan, 4] = np.nan
    return similarity


def test_scanners_that_are_recognised_identify_no_person():
    """Six scanners of ten exchangeable people each: guessing in the site finds 10 %, for which a free p is small."""
    rng = np.random.default_rng(0)
    sites = np.repeat(np.arange(6), 10)
    scanner = rng.standard_normal((6, 40))[sites]
    persons, sessions, both = np.tile(np.arange(60), 2).astype(str), np.repeat(["1", "2"], 60), np.tile(sites, 2)
    free, within = [], []
    for _ in range(40):
        similarity = np.corrcoef(np.vstack([scanner, scanner]) + rng.standard_normal((120, 40)))
        accuracy = identify(similarity, persons, sessions).accuracy
        for each, place in ((free, None), (within, both)):
            each.append(permutation_p_value(accuracy, permutation_null(similarity, persons, sessions, 39, 1, place)))
    assert np.mean(np.array(free) <= 0.05) > 0.5
    assert np.mean(np.array(within) <= 0.05) < 0.16
    own = identify_within(similarity, persons, sessions, both)
    assert own.chance == pytest.approx(0.1)
    rows = [np.flatnonzero(both == site) for site in range(6)]
    each = [identify(similarity[np.ix_(row, row)], persons[row], sessions[row]).accuracy for row in rows]
    assert own.accuracy == pytest.approx(np.mean(each))
    assert identify_within(similarity, persons, sessions, persons) is None
    assert (
        identifiability(similarity, persons, sessions, both).i_others
        > identifiability(similarity, persons, sessions).i_others
    )
