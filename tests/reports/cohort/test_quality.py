"""Who was left out, on the page of the cohort."""

from __future__ import annotations

import pandas as pd

from fcpower_bids.reports.cohort.sections.quality import fold_parcels

RARE, SELDOM = "1.1% of the scans lack it, and what a scan lacks is not filled in", "30.0% of the scans lack it"


def test_parcels_of_one_reason_share_a_row_and_nobody_else_does():
    parcels = [f"P{number}: {RARE}" for number in range(9)] + [f"Q{number}: {SELDOM}" for number in range(4)]
    others = ["sub-01: no scan", "missing: age", "missing: age", "missing: age", "missing: age", "missing: age"]
    excluded = pd.DataFrame(
        {
            "participant_id": ["n/a"] * 13 + ["sub-01", *(f"sub-{number}" for number in range(2, 7))],
            "session": "n/a",
            "what": ["parcel"] * 13 + ["person"] + ["value"] * 5,
            "reason": [*parcels, *others],
        }
    ).iloc[[0, 13, *range(1, 13), *range(14, 19)]]
    told = fold_parcels(excluded)
    assert told["reason"].tolist() == [f"P0, P1, P2 and 6 more, each: {RARE}", others[0], *parcels[9:], *others[1:]]
    assert told["participant_id"].tolist()[-5:] == [f"sub-{number}" for number in range(2, 7)]
    without = excluded[excluded["what"] != "parcel"]
    pd.testing.assert_frame_equal(fold_parcels(without), without)
