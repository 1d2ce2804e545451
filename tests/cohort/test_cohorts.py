"""The cohort as a whole, from files and through the command: every value, every loss, every name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.cohort.assembly import load_cohort
from fcpower_bids.cohort.people import match_ids
from fcpower_bids.cohort.phenotype_columns import measure_sets
from tests.cases.cohorts import group, run, write_series, write_table
from tests.planting.participant_outputs import PARCELS, add_output, make_outputs, series_of, write_participants
from tests.planting.planted import Planted, make_cohort


def rows_of(cohort, what):
    table = cohort.excluded[cohort.excluded["what"] == what]
    return list(table[["participant_id", "session", "reason"]].itertuples(index=False, name=None))


def test_every_loss_is_on_record_and_nothing_is_filled_in(tmp_path, monkeypatch):
    monkeypatch.setattr("fcpower_bids.cohort.inclusion.MOST_MISSING", 0.3)  # there are six parcels
    settings = make_outputs(tmp_path, people=8)
    out = settings.output_dir
    add_output(out, "sub-01_ses-a", series_of(900), mean_fd=0.9)
    add_output(out, "sub-02_ses-a", series_of(901, missing=(0, 1, 2)))
    add_output(out, "sub-03_ses-a", series_of(902, missing=(5,)))
    add_output(out, "sub-04_ses-b", series_of(100 * 4 + ord("a")))
    listed = tmp_path / "out_of_it.tsv"
    listed.write_text("participant_id\treason\nsub-08\tWithdrew\n")
    write_participants(settings.bids_dir / "participants.tsv", 9, score=[1, 2, -9999, 4, 5, 6, None, 8, 9])
    choices = {"max_mean_fd": 0.5, "exclude_file": listed, "targets": ("score",), "missing_values": ("score=-9999",)}
    cohort = load_cohort(settings.changed(**choices))
    left_out = {(person, session) for person, session, _ in rows_of(cohort, "recording")}
    twins = {("sub-05", "ses-a"), ("sub-04", "ses-b")}
    assert left_out == {("sub-01", "ses-a"), ("sub-02", "ses-a"), ("sub-08", "ses-a"), ("sub-08", "ses-b")} | twins
    kept = set(zip(cohort.scans["participant_id"], cohort.scans["session"], strict=True))
    assert kept.isdisjoint(left_out)
    assert len(kept) == len(cohort.edges) == 10
    assert cohort.parcels == PARCELS[:5]
    assert rows_of(cohort, "parcel")[0][2].startswith("LH_f: ")
    assert np.isfinite(cohort.edges).all()
    assert [row[0] for row in rows_of(cohort, "person")] == ["sub-08", "sub-09"]
    assert rows_of(cohort, "code") == [("sub-03", "n/a", "participants.tsv: score = -9999 read as missing")]
    assert rows_of(cohort, "value") == [("sub-03", "n/a", "missing: score"), ("sub-07", "n/a", "missing: score")]
    assert np.isnan(cohort.phenotypes.loc["sub-03", "score"])


WORDS = ["--analyses", "check", "--quiet", "--targets", "score", "--min-time", "1"]


@pytest.fixture
def listed(tmp_path):
    """Twelve people with two-digit labels, as series in a list, and a dataset whose table has them."""
    people = [f"sub-{number:02d}" for number in range(1, 13)]
    write_table(tmp_path / "bids" / "participants.tsv", participant_id=people, sex=list("MF") * 6)
    write_table(tmp_path / "scores.csv", ",", participant_id=range(1, 13), score=np.arange(12) * 1.5)
    return write_series(tmp_path, people, parcels=8)


def test_a_row_whose_path_is_of_somebody_else_is_refused(listed):
    table = (listed / "list.tsv").read_text().replace("sub-03\tsub-03.npy", "sub-03\tsub-04.npy")
    (listed / "list.tsv").write_text(table)
    told = group(listed, "--targets", "sex", quick=WORDS, code=3).err
    assert "line 4: the path sub-04.npy is of sub-04, and participant_id says 03" in told


@pytest.mark.parametrize(
    ("there", "people", "expected"),
    [
        (["sub-Pitt_0050003"], ["sub-Pitt0050003"], {"sub-Pitt_0050003": "sub-Pitt0050003"}),
        (["sub-50003"], ["sub-Pitt0050003"], {}),
        (["sub-1", "sub-01"], ["sub-01"], {}),
        (["sub-1"], ["sub-01", "sub-001"], {}),
    ],
)
def test_an_id_is_changed_where_one_alone_can_be_meant(there, people, expected):
    assert match_ids(there, people) == expected


def people_of(listed):
    return set(pd.read_csv(listed / "out" / "group" / "scans.tsv", sep="\t")["participant_id"])


def test_a_copy_under_two_ids_keeps_both_out_until_one_is_rejected(listed):
    (listed / "sub-02.npy").write_bytes((listed / "sub-01.npy").read_bytes())
    scores = listed / "scores.csv"
    group(listed, "--phenotypes", scores, quick=WORDS)
    assert not people_of(listed) & {"sub-01", "sub-02"}
    told = pd.read_csv(listed / "out" / "group" / "check.tsv", sep="\t").set_index("check")
    assert told.loc["copied scans", "level"] == "alarm"
    (listed / "out" / "exclude.tsv").write_text("participant_id\tdecision\nsub-01\taccept\nsub-02\treject\n")
    group(listed, "--phenotypes", scores, quick=WORDS)
    assert people_of(listed) & {"sub-01", "sub-02"} == {"sub-01"}


def test_a_label_without_its_zero_is_answered_with_those_that_there_are(listed):
    group(listed, "--phenotypes", listed / "scores.csv", quick=WORDS)
    asked = ("group", *WORDS, "--replace", "--participant-label", "1")
    assert "There are 01, 02" in run(listed / "bids", listed / "out", *asked, code=3).err


QUICK = ["--quiet", "--nprocs", "1", "--folds", "4", "--inner-folds", "2", "--repeats", "1", "--analyses", "prediction"]
QUICK += ["--representations", "fc", "--permutations", "19"]


def test_the_sets_are_those_of_the_papers(shared):
    names = (shared / "paper" / "hcp_58_measures.txt").read_text().split()
    assert list(measure_sets()["hcp58"][1]) == names
    assert len(set(names)) == 58


def test_a_set_is_its_columns_that_are_there(tmp_path):
    cohort, _ = make_cohort(tmp_path, 24, "a")
    rng = np.random.default_rng(0)
    has = ("Flanker_Unadj", "PMAT24_A_CR", "Odor_Unadj", "IST_fluid", "IST_memory")
    cohort.phenotypes = cohort.phenotypes.assign(**{name: rng.standard_normal(24) for name in has})
    tables, named = [], ("PMAT24_A_CR", "Flanker_Unadj", "Odor_Unadj", "ist=IST_fluid,IST_memory")
    for name, targets in (("set", ("hcp58", "ist=ist")), ("named", named)):
        cohort.group(*QUICK, "--name", name, "--targets", *targets)
        tables.append(Planted(cohort.root, name).table("prediction_summary").set_index("target").sort_index())
    assert tables[0].index.tolist() == ["Flanker_Unadj", "Odor_Unadj", "PMAT24_A_CR", "ist"]
    pd.testing.assert_frame_equal(*tables)
