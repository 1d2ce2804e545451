"""Rates and ratios of normal scores have closed forms; few pairs promise little."""

from __future__ import annotations

import re
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fcpower_bids.reports.kit.figures import AFTER, BEFORE
from fcpower_bids.slices.clinic.equations import error_rates, verify
from fcpower_bids.slices.clinic.pages.identity import answer_for, draw_pairs, write_identity_pages
from fcpower_bids.slices.clinic.same_person import OPEN, OTHER, SAME

RNG = np.random.default_rng(0)
OWN, DIFFERENT = RNG.normal(4, 1, 4000), RNG.normal(0, 1, 20000)


@pytest.mark.parametrize("score", [1.0, 2.0, 3.0])
def test_normal_scores(score):
    found = verify(score, OWN, DIFFERENT)
    assert found.false_match == pytest.approx(stats.norm.sf(score), rel=0.2)
    assert found.false_non_match == pytest.approx(stats.norm.cdf(score - 4), rel=0.25, abs=5e-4)
    assert np.log(found.likelihood_ratio) == pytest.approx(4 * score - 8, abs=0.5)


def test_the_ratio_stays_within_what_the_pairs_can_show():
    assert verify(40.0, OWN[:50], DIFFERENT[:100]).likelihood_ratio <= 101
    assert verify(-40.0, OWN[:50], DIFFERENT[:100]).likelihood_ratio >= 1 / 51
    assert np.isnan(verify(1.0, OWN[:5], DIFFERENT).likelihood_ratio)
    assert verify(100.0, OWN, DIFFERENT).false_match == 1 / 20001


def test_error_rates_are_those_of_the_thresholds():
    rows = np.array(list(error_rates(OWN, DIFFERENT)))
    assert len(rows) == 4
    for threshold, matches, misses in rows:
        assert matches == pytest.approx(np.mean(threshold <= DIFFERENT))
        assert misses == pytest.approx(np.mean(threshold > OWN))
    np.testing.assert_allclose(rows[:3, 1], [0.001, 0.01, 0.05], atol=1e-4)
    assert rows[3, 1] == pytest.approx(rows[3, 2], abs=1e-3)
    assert rows[3, 0] == pytest.approx(2, abs=0.1)
    assert len(list(error_rates(OWN, DIFFERENT[:30]))) == 2
    assert list(error_rates([], DIFFERENT)) == []


@pytest.mark.parametrize(
    ("rows", "answer", "words"),
    [
        ([("a", "b", "01", SAME)], SAME, "The 2 scans filed under sub-01 are of one person."),
        ([("a", "b", "01", OPEN)], OPEN, "Whether the 2 scans filed under sub-01 are of one person cannot be said."),
        ([("a", "b", "01", OTHER)], OTHER, "The 2 scans filed under sub-01 are not all of one person."),
        ([("a", "b", "01", SAME), ("a", "c", "01", OPEN)], OPEN, "Whether the 3 scans filed under sub-01 "),
        ([("a", "b", "01", OPEN), ("b", "c", "02", SAME)], OTHER, "not all of one person: one fits sub-02 better."),
        ([("a", "b", "01", SAME), ("b", "c", "02", OPEN)], SAME, "The 2 scans filed under sub-01 are of one person."),
    ],
)
def test_there_are_three_answers(tmp_path, rows, answer, words):
    pairs = pd.DataFrame(
        {
            "participant_id": "sub-01",
            "scan": f"sub-01_ses-{one}",
            "other_participant_id": f"sub-{whose}",
            "other_scan": f"sub-{whose}_ses-{other}",
            "verdict": verdict,
            "likelihood_ratio": 0.004,
            "false_match": 0.01,
        }
        for one, other, whose, verdict in rows
    )
    found, headline = answer_for("sub-01", pairs)
    assert found == answer
    assert words in headline
    (page,), broken = write_identity_pages(tmp_path, pairs, 12)
    assert not broken
    assert headline in page.read_text()
    assert "1/250" in page.read_text()
    drawn = unquote(re.search(r'data:image/svg\+xml,([^"]+)', page.read_text())[1])
    left, right = (float(re.search(rf'd="M([\d.]+) [^"]*" [^>]*stroke="{one}"', drawn)[1]) for one in (BEFORE, AFTER))
    marks = [float(one) for one in re.findall(r'<circle cx="([\d.]+)"', drawn)]
    assert len(marks) == len(rows)
    share = (np.log10(0.004) + 2) / 4  # between the limits of 1/100 and 100
    np.testing.assert_allclose(marks, left + share * (right - left), atol=0.3)


def test_the_figure_names_each_pair_without_the_parts_that_all_scans_share():
    scans = [f"sub-{one}_ses-{session}_task-rest_space-x" for one, session in (("07", 1), ("07", 2), ("12", 1))]
    pairs = pd.DataFrame(
        {
            "participant_id": "sub-07",
            "scan": scans[0],
            "other_participant_id": ["sub-07", "sub-12"],
            "other_scan": scans[1:],
            "verdict": SAME,
            "likelihood_ratio": [4.2e4, 0.003],
            "false_match": 0.01,
        }
    )
    assert draw_pairs(pairs).alt == "Session 1 - Session 2: 42,000; Session 1 - sub-12, session 1: 1/333."
    alone = pairs.assign(scan="sub-07_task-rest_space-x", other_scan="sub-12_task-rest_space-x")[1:]
    assert draw_pairs(alone).alt == "Task rest - sub-12: 1/333."
