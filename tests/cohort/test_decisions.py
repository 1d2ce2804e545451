"""What the file of decisions says is done: by label, by recording, and with its word."""

from __future__ import annotations

from pathlib import Path

import pytest

from fcpower_bids.cohort.features import list_connectomes
from fcpower_bids.cohort.inclusion import Exclusion
from fcpower_bids.cohort.recordings import Selected, decide, decisions_of
from fcpower_bids.errors import DatasetError
from tests.planting.participant_outputs import add_output, series_of


def tree(out: Path, *names: str):
    for number, name in enumerate(names):
        add_output(out, name, series_of(number))
    return tuple(list_connectomes(out))


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ("participant_id\treason\n01\tAsleep\n", ["sub-02_ses-a", "sub-02_ses-b"]),
        ("participant_id\tsession\nsub-02\tb\n", ["sub-01_ses-a", "sub-02_ses-a"]),
        ("participant_id\tsession_id\ttask\trun\n02\tses-a\trest\t1\n02\tn/a\trest\t02\n", ["sub-01_ses-a"]),
    ],
)
def test_the_users_list_names_people_sessions_or_runs(tmp_path, lines, left):
    found = tree(tmp_path / "out", "sub-01_ses-a_run-1", "sub-02_ses-a_run-1", "sub-02_ses-b_run-2")
    path = tmp_path / "leave_out.tsv"
    path.write_text(lines)
    decided = decide(Selected(found, ()), path)
    assert [f"{one.participant}_{one.session}" for one in decided.connectomes] == left
    assert all("leave_out.tsv" in one.reason for one in decided.left_out)


def test_who_is_listed_and_not_there_is_reported_and_a_list_without_people_is_an_error(tmp_path):
    found = tree(tmp_path / "out", "sub-01")
    path = tmp_path / "x.tsv"
    path.write_text("participant_id\tsession\n09\tb\n")
    decided = decide(Selected(found, ()), path)
    assert decided.absent == (Exclusion("sub-09", "ses-b", "person", "x.tsv names it, but it is not here"),)
    assert (decided.connectomes, decided.left_out) == (found, ())
    path.write_text("subject\n01\n")
    with pytest.raises(DatasetError, match="no column participant_id"):
        decide(Selected(found, ()), path)
    path.write_text("participant_id\treason\nn/a\tx\n")
    with pytest.raises(DatasetError, match="no participant_id in line 2"):
        decide(Selected(found, ()), path)


def test_a_named_recording_is_meant_alone_and_only_what_is_rejected_is_left_out(tmp_path):
    found = tree(tmp_path / "out", "sub-01_acq-a", "sub-01_acq-b", "sub-02", "sub-03")
    names = [one.recording for one in found]
    path = tmp_path / "exclude.tsv"
    rows = [("01", names[0], "reject", "ghosts"), ("02", names[2], "doubt", "n/a"), ("03", names[3], "accept", "n/a")]
    lines = ["\t".join(row) for row in (("participant_id", "recording", "decision", "reason"), *rows)]
    path.write_text("\n".join([*lines, "01\tsub-01_acq-c\treject\tx"]) + "\n")
    decided = decide(Selected(found, ()), path)
    assert [(one.connectome, one.reason) for one in decided.left_out] == [(found[0], "exclude.tsv: ghosts")]
    assert decided.connectomes == found[1:]
    assert [row.reason for row in decided.absent] == ["sub-01_acq-c: exclude.tsv names it, but it is not here"]
    assert (decided.accepted, decided.doubtful) == ({found[3].path}, {found[2].path})


def test_a_word_that_is_no_decision_is_named(tmp_path):
    path = tmp_path / "exclude.tsv"
    path.write_text("participant_id\tdecision\n01\treject\n02\tmaybe\n")
    with pytest.raises(DatasetError, match=r"'maybe' in row 2\. Write accept, doubt or reject"):
        decide(Selected((), ()), path)


def test_the_file_of_the_output_folder_counts_where_no_other_is_named(tmp_path):
    assert decisions_of(tmp_path) is None
    (tmp_path / "exclude.tsv").write_text("participant_id\n")
    assert decisions_of(tmp_path) == tmp_path / "exclude.tsv"
