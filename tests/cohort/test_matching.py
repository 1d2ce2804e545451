"""Who of the tables is who of the scans, through the command: lost zeros, the ids of ABIDE, and who has the target."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.cohort.people import match_ids
from fcpower_bids.elsewhere import imports, layouts
from tests.command import main

WORDS = ["group", "--check", "--quiet", "--targets", "score", "--min-time", "1"]


@pytest.fixture
def listed(tmp_path):
    """Twelve people with two-digit labels, as series in a list, and a dataset whose table has them."""
    rng = np.random.default_rng(0)
    labels = [f"{number:02d}" for number in range(1, 13)]
    (tmp_path / "bids").mkdir()
    rows = []
    for label in labels:
        np.save(tmp_path / f"sub-{label}.npy", rng.standard_normal((60, 8)))
        rows.append((f"sub-{label}", f"sub-{label}.npy", "series", 2.0))
    frame = pd.DataFrame(rows, columns=["participant_id", "path", "kind", "repetition_time"])
    frame.to_csv(tmp_path / "list.tsv", sep="\t", index=False)
    people = pd.DataFrame({"participant_id": [f"sub-{label}" for label in labels], "sex": list("MF") * 6})
    people.to_csv(tmp_path / "bids" / "participants.tsv", sep="\t", index=False)
    return tmp_path


def group(listed, *options):
    source = ["-d", f"list={listed / 'list.tsv'}"]
    return main([str(listed / "bids"), str(listed / "out"), *WORDS, *source, *map(str, options)])


def write_scores(listed, ids):
    path = listed / "scores.csv"
    pd.DataFrame({"participant_id": ids, "score": np.arange(len(ids)) * 1.5}).to_csv(path, index=False)
    return path


def test_labels_that_lost_their_zeros_in_one_of_two_tables_are_matched(listed):
    assert group(listed, "--phenotypes", write_scores(listed, range(1, 13))) == 0
    told = pd.read_csv(listed / "out" / "group" / "check.tsv", sep="\t").set_index("check")
    assert "12 people with scans, 12 in the phenotype tables, 12 in both." not in set(told["finding"])
    assert told.loc["participant_id", "n"] == 9


def test_people_without_the_target_are_counted(listed, capsys):
    scores = write_scores(listed, [f"sub-{number:02d}" for number in range(1, 9)])
    arguments = [word for word in WORDS if word != "--quiet"]
    source = ["-d", f"list={listed / 'list.tsv'}"]
    assert main([str(listed / "bids"), str(listed / "out"), *arguments, *source, "--phenotypes", str(scores)]) == 0
    assert "12 in both, 8 of them with score" in capsys.readouterr().err
    told = pd.read_csv(listed / "out" / "group" / "check.tsv", sep="\t").set_index("check")
    assert "Prediction sees 8 people" in told.loc["scans and phenotypes"].to_string()


def test_tables_are_looked_at_before_the_series(listed, monkeypatch, capsys):
    monkeypatch.setattr(imports, "read_array", lambda *_: pytest.fail("a series was read"))
    assert group(listed, "--targets", "scoer", "--phenotypes", write_scores(listed, range(1, 13))) == 3
    assert "scoer" in capsys.readouterr().err
    assert layouts.read_array is not imports.read_array


def test_a_row_whose_path_is_of_somebody_else_is_refused(listed, capsys):
    table = (listed / "list.tsv").read_text().replace("sub-03\tsub-03.npy", "sub-03\tsub-04.npy")
    (listed / "list.tsv").write_text(table)
    assert group(listed, "--targets", "sex") == 3
    assert "line 4: the path sub-04.npy is of sub-04, and participant_id says 03" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("there", "people", "expected"),
    [
        (["sub-Pitt_0050003"], ["sub-Pitt0050003"], {"sub-Pitt_0050003": "sub-Pitt0050003"}),
        (["sub-50003"], ["sub-Pitt0050003"], {}),
        (["sub-siteB0001"], ["sub-siteA0001"], {}),
        (["sub-7"], ["sub-A007"], {}),
        (["sub-1", "sub-01"], ["sub-01"], {}),
        (["sub-1"], ["sub-01", "sub-001"], {}),
    ],
)
def test_an_id_is_changed_where_one_alone_can_be_meant(there, people, expected):
    assert match_ids(there, people) == expected


def copied(listed):
    """Person 02 is a copy of person 01."""
    (listed / "sub-02.npy").write_bytes((listed / "sub-01.npy").read_bytes())


def people_of(listed):
    return set(pd.read_csv(listed / "out" / "group" / "scans.tsv", sep="\t")["participant_id"])


def test_a_copy_under_two_ids_keeps_both_out_until_one_is_accepted(listed):
    copied(listed)
    scores = write_scores(listed, range(1, 13))
    assert group(listed, "--phenotypes", scores) == 0
    assert not people_of(listed) & {"sub-01", "sub-02"}
    told = pd.read_csv(listed / "out" / "group" / "check.tsv", sep="\t").set_index("check")
    assert told.loc["copied scans", "level"] == "alarm"
    for decision, person, stays in (("accept", "sub-02", "sub-02"), ("reject", "sub-02", "sub-01")):
        (listed / "out" / "exclude.tsv").write_text(f"participant_id\tdecision\n{person}\t{decision}\n")
        assert group(listed, "--phenotypes", scores) == 0
        assert people_of(listed) & {"sub-01", "sub-02"} == {stays}


def test_a_length_that_is_not_known_is_not_told_as_a_number(listed):
    table = pd.read_csv(listed / "list.tsv", sep="\t").drop(columns="repetition_time")
    table.to_csv(listed / "list.tsv", sep="\t", index=False)
    assert group(listed, "--phenotypes", write_scores(listed, range(1, 13))) == 0
    page = (listed / "out" / "group.html").read_text()
    assert "cleaned minutes" not in page
    assert " nan " not in page


def test_a_refused_run_leaves_the_record_of_the_one_before(listed):
    scores = write_scores(listed, [f"sub-{number:02d}" for number in range(1, 13)])
    asked = [*(word for word in WORDS if word != "--check"), "--analyses", "prediction", "--permutations", "0"]
    asked += ["-d", f"list={listed / 'list.tsv'}", "--phenotypes", str(scores), "--folds", "3", "--inner-folds", "2"]
    assert main([str(listed / "bids"), str(listed / "out"), *asked]) == 0
    record = listed / "out" / "logs" / "settings_group.toml"
    before = record.read_bytes()
    assert main([str(listed / "bids"), str(listed / "out"), *asked, "--folds", "50", "--replace"]) == 3
    assert record.read_bytes() == before


@pytest.mark.parametrize("command", ["group", "group alone", "pretrain"])
def test_a_label_without_its_zero_is_answered_with_the_one_that_is_meant(listed, capsys, command):
    assert group(listed, "--phenotypes", write_scores(listed, range(1, 13))) == 0
    out, label = str(listed / "out"), ["--participant-label", "1"]
    words = {
        "group": [str(listed / "bids"), out, "group", "--check", *label, "02", "--min-time", "1"],
        "group alone": [str(listed / "bids"), out, *WORDS, "--replace", *label],
        "pretrain": [str(listed / "bids"), out, "pretrain", "--steps", "0", *label, "--dataset-name", "own"],
    }[command]
    assert main(words) == (0 if command == "group" else 3)
    assert "Did you mean 01?" in capsys.readouterr().err
