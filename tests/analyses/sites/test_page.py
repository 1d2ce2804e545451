"""What the page says of sites: a line for each target while these are few, else of those that mislead most."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest

from fcpower_bids.analyses.sites import RANDOM
from fcpower_bids.outputs.tables import write_table
from fcpower_bids.reports.cohort.prediction import MOST_SAID, sites_chapter
from fcpower_bids.reports.cohort.tables import GroupTables
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Settings


def said_of(folder, gaps: dict[str, float | None], interval: tuple[float, float] | None = None) -> list[str]:
    """What is said where all together score so far above .1, which they score within each of two sites.

    Two representations score alike there, and over folds FC is the best.
    """
    tables = GroupTables(Settings(folder / "bids", folder / "out", "group"))
    rows = []
    for (target, gap), name in itertools.product(gaps.items(), ("fc", "fisher_z")):
        known = {"target": target, "representation": name, "score": "r", "n_people": 20, "n_compared": 20}
        value = None if gap is None else 0.1
        rows += [known | {"over": "site", "site": site, "value": value} for site in "ab"]
        rows.append(known | {"over": "within sites", "value": value})
        if interval:
            low, high = interval
            rows.append(known | {"over": RANDOM, "value": (low + high) / 2, "ci_low": low, "ci_high": high})
    pooled = [
        {"target": target, "representation": name, "r_pooled_mean": 0.1 + (gap or 0.5), "ranked_by": "fold_mean"}
        | {"r_fold_mean": 0.2 if name == "fc" else 0.1, "r_within_mean": 0.1, "n_permutations": 0}
        for name in ("fisher_z", "fc")
        for target, gap in gaps.items()
    ]
    tables.path("prediction_sites").parent.mkdir(parents=True)
    for name, planted in (("prediction_sites", rows), ("prediction_summary", pooled)):
        write_table(tables.path(name), pd.DataFrame(planted, columns=list(TABLES[name].columns)))
    (section,) = sites_chapter(tables)
    assert tables.problems == {}
    return list(section.sentences)


def test_few_targets_have_a_line_each_in_the_order_of_the_table(tmp_path):
    said = said_of(tmp_path, {"one": 0.0, "two": None, "three": 0.4, "four": 0.2})
    assert [line.split(" from ")[0] for line in said] == ["one", "two", "three", "four"]
    assert said[1] == "two from FC: no site of 2 sites has enough people for a score of its own."
    assert said[2] == "three from FC: within sites r 0.10 (2 sites), all together 0.50."


def test_a_damaged_table_of_scores_costs_these_alone(tmp_path):
    assert "all together" in said_of(tmp_path, {"one": 0.2})[0]
    tables = GroupTables(Settings(tmp_path / "bids", tmp_path / "out", "group"))
    tables.path("prediction_summary").write_text("target\n")
    (section,) = sites_chapter(tables)
    both = [f"one from {name}: within sites r 0.10 (2 sites)." for name in ("FC", "fisher_z")]
    assert list(section.sentences) == both, "which is the best is not known"
    assert "prediction_summary.tsv has no column" in tables.problems["prediction_summary"]


@pytest.mark.parametrize("unknown", [{}, {"unknown": None}])
def test_of_many_the_largest_differences_come_first_and_the_others_are_counted(tmp_path, unknown):
    gaps = {"least": -0.2, "less": 0.1, **unknown, "most": 0.6, "some": 0.2, "more": 0.4, "bit": 0.3}
    said = said_of(tmp_path, gaps)
    assert [line.split(" from ")[0] for line in said[:-1]] == ["most", "more", "bit", "some"]
    rest = len(gaps) - MOST_SAID
    assert said[-1] == (
        f"{rest} more targets are in the table; the best of none scores further above what it scores within sites."
    )
