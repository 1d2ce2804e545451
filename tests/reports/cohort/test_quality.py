"""Who was left out, on the page of the cohort."""

from __future__ import annotations

import html
import shutil
from collections import Counter

import pandas as pd

from fcpower_bids.reports.cohort.chapters import fold_parcels
from tests.command import main

RARE, SELDOM = "1.1 % of the scans lack it, and what a scan lacks is not filled in", "30.0 % of the scans lack it"


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


def test_the_row_of_a_run_names_what_its_connectomes_lack(troubled_demo, troubled_run, tmp_path):
    output = shutil.copytree(troubled_run.output, tmp_path / "out", ignore=shutil.ignore_patterns("work"))
    assert main([str(troubled_demo[0]), str(output), "group", "--check", "--nprocs", "1", "--quiet"]) == 0
    lacked: dict[str, set[str]] = {}
    for path in sorted(output.rglob("*_stat-pearsoncorrelation_relmat.tsv")):
        matrix = pd.read_csv(path, sep="\t", index_col=0, na_values="n/a")
        lacked.setdefault("_".join(path.name.split("_")[:2]), set()).update(matrix.columns[matrix.isna().all()])
    parcels = Counter(parcel for one in lacked.values() for parcel in one)
    (scans,) = set(parcels.values())
    first, second, third, *others = [parcel for parcel in matrix.columns if parcel in parcels]
    share = f"{100 * scans / len(lacked):.1f} % of the scans lack it"
    told = f"{first}, {second}, {third} and {len(others)} more, each: {share}"
    page = html.unescape((output / "group.html").read_text(encoding="utf-8"))
    assert len(others) > 1
    assert page.count(told) == 1
    assert f"{others[-1]}: " not in page
