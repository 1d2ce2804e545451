"""Whom intervals hold for, through the commands: eight sites, weak to strong targets, and new people to count on."""

from __future__ import annotations

import html
import json

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.cli.run import main
from fcpower_bids.outputs.tables import read_table
from tests.slices.clinic.planted import group, make_cohort, models

SITES, PEOPLE, NEW = 8, 320, 300


@pytest.mark.parametrize(("share", "r"), [(0.41, 0.4), (0.62, 0.6), (0.83, 0.8)])
def test_a_page_says_where_an_interval_holds_less_and_new_people_agree(tmp_path, share, r):
    root = make_cohort(tmp_path, share, SITES, people=PEOPLE, new=NEW)
    assert group(root, "--site-column", "site", permutations=50) == 0
    (model,) = models(root)
    facts = json.loads((model / "model.json").read_text())
    assert facts["Skill"]["OverSites"] == pytest.approx(r, abs=0.12)
    words = ["predict", str(model), str(root / "new"), "--phenotypes", str(root / "truth.tsv")]
    assert main([*words, "--no-pages"]) == 0
    table = read_table(root / "new" / "group" / "predicted" / "target-age-fc.tsv").set_index("participant_id")
    assert main([*words, "--participant-label", table.index[0].removeprefix("sub-")]) == 0
    page = html.unescape((root / "new" / f"{table.index[0]}_target-age-fc.html").read_text())
    stated = facts["Interval"]["CoverageByThirdOfValue"]
    uneven = not all(0.85 <= share <= 0.95 for share in stated)
    assert ("By known age it held unevenly" in page) == uneven
    known = pd.read_csv(root / "truth.tsv", sep="\t").set_index("participant_id")["age"][table.index]
    inside = (table["low"] <= known) & (known <= table["high"])
    part = np.searchsorted(known.quantile([1 / 3, 2 / 3]), known)
    seen = [inside[part == one].mean() for one in range(3)]
    assert seen == pytest.approx(stated, abs=0.12)
    assert inside.mean() == pytest.approx(0.9, abs=0.06)
