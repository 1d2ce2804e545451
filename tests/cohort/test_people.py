"""Phenotype tables are read and merged into one row per person, and what is wrong with them is one sentence."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fcpower_bids.cohort.people import load_phenotypes, read_rows
from fcpower_bids.cohort.phenotype_columns import resolve_columns
from fcpower_bids.errors import DatasetError
from fcpower_bids.settings import Settings


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def load(root: Path, people=("sub-01", "sub-02"), sessions=("n/a",), **choices):
    return load_phenotypes(replace(Settings(root, root / "out", "group"), **choices), dict.fromkeys(people, sessions))


def test_all_tables_are_merged_by_person(tmp_path):
    put(tmp_path / "participants.tsv", "participant_id\tage\tsex\tfamily_id\nsub-01\t20\tM\t007\nsub-02\t30\tF\t008\n")
    put(tmp_path / "phenotype" / "iq.tsv", "participant_id\tiq\n02\t110\n03\tn/a\n")
    extra = put(tmp_path / "extra.csv", "\ufeffparticipant_id,mood\nsub-01, 5\nsub-03,\n")
    found = load(tmp_path, phenotypes=(extra,))
    assert list(found.frame.index) == ["sub-01", "sub-02", "sub-03"]
    assert set(found.frame.columns) == {"age", "sex", "family_id", "iq", "mood"}
    assert found.frame.loc["sub-01", "mood"] == 5.0
    assert found.frame.loc["sub-01", "family_id"] == "007"
    assert found.frame["iq"].isna().tolist() == [True, False, True]
    assert found.defaults == ("mood",)
    assert load(tmp_path).defaults == ("age", "sex", "family_id", "iq")


def test_no_table_at_all_is_an_empty_frame(tmp_path):
    found = load(tmp_path)
    assert found.frame.empty
    assert found.notes == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("who\tage\n01\t3\n", r"x.tsv has no column participant_id, only who, age. Rename the column"),
        ("participant\tage\n01\t3\n", r"Rename 'participant' to participant_id"),
        ("SUB_ID\tage\n01\t3\n", r"Rename 'SUB_ID' to participant_id"),
        ("participant_id\tage\tage\n01\t3\t4\n", r"column 'age' twice"),
        ("participant_id\tage\n01\t3\nn/a\t4\n", r"no participant_id in line 3"),
        ("participant_id\tage\n01\t3\nsub-01\t4\n", r"more than one row for sub-01"),
        ("participant_id\tsession_id\tage\n01\ta\t3\n01\tses-a\t4\n", r"two rows for one person and session"),
        ("", r"cannot be read"),
    ],
)
def test_unusable_tables_are_named_with_the_remedy(tmp_path, text, words):
    path = put(tmp_path / "x.tsv", text)
    with pytest.raises(DatasetError, match=words) as caught:
        load(tmp_path, phenotypes=(path,))
    assert "x.tsv" in str(caught.value)


@pytest.mark.parametrize("place", [lambda path: path.symlink_to(path.name), os.mkfifo, Path.mkdir])
def test_what_is_no_file_under_the_name_of_a_table_is_named(tmp_path, place):
    place(tmp_path / "participants.tsv")
    with pytest.raises(DatasetError, match=re.escape(f"{tmp_path / 'participants.tsv'} is")) as raised:
        load(tmp_path)
    assert "Put the table there, or remove it." in str(raised.value)


def test_a_column_called_session_is_a_value_where_nobody_has_two_rows(tmp_path):
    path = put(tmp_path / "x.tsv", "participant_id\tsession\n01\t12\n02\t3\n")
    assert load(tmp_path, phenotypes=(path,)).frame["session"].tolist() == [12.0, 3.0]
    put(path, "participant_id\tsession\tx\n01\tb\t12\n01\ta\t3\n")
    assert load(tmp_path, sessions=("ses-a",), phenotypes=(path,)).frame["x"].tolist() == [3.0]


def test_sessions_tables_count_as_one_table(tmp_path):
    put(tmp_path / "participants.tsv", "participant_id\tage\nsub-01\t20\nsub-02\t30\n")
    put(tmp_path / "sub-01" / "sub-01_sessions.tsv", "session_id\tmood\nses-a\t1\nses-b\t2\n")
    put(tmp_path / "sub-02" / "sub-02_sessions.tsv", "session_id\tmood\nses-a\tn/a\n")
    found = load(tmp_path, sessions=("ses-a", "ses-b"))
    assert found.frame.loc["sub-01", "mood"] == 1.0
    assert pd.isna(found.frame.loc["sub-02", "mood"])
    assert found.defaults == ("age",)


def test_equal_columns_merge_and_unequal_ones_are_kept_for_the_one_who_uses_them(tmp_path):
    put(tmp_path / "participants.tsv", "participant_id\tage\tsex\nsub-01\t20\tM\nsub-02\tn/a\tF\n")
    put(tmp_path / "phenotype" / "x.tsv", "participant_id\tage\tsex\nsub-01\t20.0\tM\nsub-02\t31\tM\n")
    found = load(tmp_path)
    assert found.frame["age"].tolist() == [20.0, 31.0]
    assert set(found.conflicts) == {"sex"}
    assert re.search(r"participants\.tsv and .*x\.tsv: sub-02 has F in one and M in the other", found.conflicts["sex"])


def test_identifiers_keep_their_zeros(tmp_path):
    path = put(tmp_path / "x.csv", "participant_id,a\n007,1\n")
    assert read_rows(path)["participant_id"].tolist() == ["sub-007"]


def test_equal_rows_count_once_and_are_told(tmp_path):
    put(tmp_path / "participants.tsv", "participant_id\tage\nsub-01\t20\nsub-01\t20\nsub-02\t30\n")
    found = load(tmp_path)
    assert found.frame["age"].to_dict() == {"sub-01": 20, "sub-02": 30}
    assert "1 rows twice" in found.notes[0]


def test_a_table_of_a_spreadsheet_gives_the_numbers_of_the_plain_one(tmp_path):
    put(tmp_path / "participants.tsv", "participant_id\tage\nsub-01\t20.5\nsub-02\t30\n")
    german = tmp_path / "german.csv"
    german.write_bytes("participant_id;alter\r\n01;20,5\r\n02;30\r\n".encode("utf-16"))
    found = load(tmp_path, phenotypes=(german,)).frame
    assert found["age"].tolist() == found["alter"].tolist() == [20.5, 30.0]


def test_a_level_written_in_two_ways_is_named(tmp_path):
    put(tmp_path / "participants.tsv", "participant_id\tsex\n1\tF\n2\tf\n3\tM\n4\tm\n")
    choices = replace(Settings(tmp_path, tmp_path / "out", "group"), covariates=("sex",))
    found = load_phenotypes(choices, {})
    with pytest.raises(DatasetError, match=r"'sex' writes one level in several ways \(F, M, f, m\)"):
        resolve_columns(found, found.frame, choices)


def test_a_code_of_a_column_that_no_table_has_is_refused(tmp_path):
    put(tmp_path / "participants.tsv", "participant_id\tage\nsub-01\t0\nsub-02\t30\n")
    assert load(tmp_path, missing_values=("age=0", "-5")).frame["age"].isna().tolist() == [True, False]
    with pytest.raises(DatasetError, match=r"missing_values Age=0: no .* column 'Age'. Did you mean 'age'\?"):
        load(tmp_path, missing_values=("Age=0",))
