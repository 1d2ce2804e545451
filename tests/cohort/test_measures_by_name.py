"""Sets of measures by name, through the command: the same as their columns by name, and what is missing is said."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.cohort.phenotype_columns import measure_sets
from tests.command import main
from tests.planting.planted import Planted, make_cohort

QUICK = ["--quiet", "--nprocs", "1", "--folds", "4", "--inner-folds", "2", "--repeats", "1", "--analyses", "prediction"]
QUICK += ["--representations", "fc", "--permutations", "19"]
HAS = ("Flanker_Unadj", "PMAT24_A_CR", "Odor_Unadj", "IST_fluid", "IST_memory")


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    made, _ = make_cohort(tmp_path_factory.mktemp("sets"), 24, "a")
    rng = np.random.default_rng(0)
    made.phenotypes = made.phenotypes.assign(**{name: rng.standard_normal(24) for name in HAS})
    return made


def run(cohort, name, *options, code=0):
    assert main([*map(str, (cohort.bids, cohort.out, "group", *QUICK, "--name", name, *options))]) == code
    return Planted(cohort.root, name)


def test_the_sets_are_those_of_the_papers(shared):
    names = (shared / "paper" / "hcp_58_measures.txt").read_text().split()
    assert list(measure_sets()["hcp58"][1]) == names
    assert len(set(names)) == 58


@pytest.fixture(scope="module")
def by_set(cohort):
    return run(cohort, "set", "--targets", "hcp58", "ist=ist")


def test_a_set_is_its_columns_that_are_there(cohort, by_set):
    named = run(
        cohort,
        "named",
        "--targets",
        "PMAT24_A_CR",
        "Flanker_Unadj",
        "Odor_Unadj",
        "ist=IST_fluid,IST_memory",
    )
    tables = [each.table("prediction_summary").set_index("target").sort_index() for each in (by_set, named)]
    assert tables[0].index.tolist() == ["Flanker_Unadj", "Odor_Unadj", "PMAT24_A_CR", "ist"]
    pd.testing.assert_frame_equal(*tables)
    observed = by_set.table("predictions").query("target == 'ist'").set_index("participant_id")["observed"]
    parts = cohort.phenotypes.set_index("participant_id")[["IST_fluid", "IST_memory"]]
    for _, fold in by_set.table("folds").groupby("fold"):
        roles = fold.set_index("participant_id")["role"]
        train, test = (parts.loc[roles.index[roles == role]] for role in ("train", "test"))
        z, seen = ((each - train.mean()) / train.std(ddof=0) for each in (test, train))
        first = z @ np.linalg.svd(seen.to_numpy())[2][0]
        assert abs(np.corrcoef(first, observed[first.index])[0, 1]) == pytest.approx(1)


def test_how_many_there_are_is_said_on_the_page(by_set):
    page = re.sub(r"\s+", " ", (by_set.out / "group_set.html").read_text())
    assert "hcp58, targets: 3 of 58 columns are there; missing: PicSeq_Unadj, CardSort_Unadj, ReadEng_Unadj," in page
    assert "ist, a composite: 2 of 4 columns are there; missing: IST_crystallised, IST_intelligence_total (" in page


def test_a_set_without_columns_is_refused(cohort, capsys):
    table = cohort.phenotypes
    cohort.phenotypes = table.drop(columns=["IST_memory"])
    try:
        run(cohort, "refused", "--targets", "ist=ist", code=3)
    finally:
        cohort.phenotypes = table
    said = "Of the 4 columns of 'ist' (IST_fluid, IST_memory, IST_crystallised, ...) the phenotype tables have 1, and 2"
    assert said in capsys.readouterr().err
