"""Tables of people become one row per person; codes are missing values; an unusable column is one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcpower_bids.cohort.people import Phenotypes, load_phenotypes, remove_codes
from fcpower_bids.cohort.phenotype_columns import resolve_columns
from fcpower_bids.errors import DatasetError
from fcpower_bids.settings import Group, Settings


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def load(root: Path, people=("sub-01", "sub-02"), sessions=("n/a",), **choices):
    return load_phenotypes(Settings(root, root / "out", "group").changed(**choices), dict.fromkeys(people, sessions))


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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SUB_ID\tage\n01\t3\n", r"Rename 'SUB_ID' to participant_id"),
        ("participant_id\tage\tage\n01\t3\t4\n", r"column 'age' twice"),
        ("participant_id\tage\n01\t3\nsub-01\t4\n", r"more than one row for sub-01"),
    ],
)
def test_unusable_tables_are_named_with_the_remedy(tmp_path, text, words):
    path = put(tmp_path / "x.tsv", text)
    with pytest.raises(DatasetError, match=words) as caught:
        load(tmp_path, phenotypes=(path,))
    assert "x.tsv" in str(caught.value)


def test_a_column_called_session_is_a_value_where_nobody_has_two_rows(tmp_path):
    path = put(tmp_path / "x.tsv", "participant_id\tsession\n01\t12\n02\t3\n")
    assert load(tmp_path, phenotypes=(path,)).frame["session"].tolist() == [12.0, 3.0]
    put(path, "participant_id\tsession\tx\n01\tb\t12\n01\ta\t3\n")
    assert load(tmp_path, sessions=("ses-a",), phenotypes=(path,)).frame["x"].tolist() == [3.0]


def test_equal_columns_merge_and_unequal_ones_are_kept_for_the_one_who_uses_them(tmp_path):
    put(tmp_path / "participants.tsv", "participant_id\tage\tsex\nsub-01\t20\tM\nsub-02\tn/a\tF\n")
    put(tmp_path / "phenotype" / "x.tsv", "participant_id\tage\tsex\nsub-01\t20.0\tM\nsub-02\t31\tM\n")
    found = load(tmp_path)
    assert found.frame["age"].tolist() == [20.0, 31.0]
    assert set(found.conflicts) == {"sex"}
    assert re.search(r"participants\.tsv and .*x\.tsv: sub-02 has F in one and M in the other", found.conflicts["sex"])


def test_a_table_of_a_spreadsheet_gives_the_numbers_of_the_plain_one(tmp_path):
    put(tmp_path / "participants.tsv", "participant_id\tage\nsub-01\t20.5\nsub-02\t30\n")
    german = tmp_path / "german.csv"
    german.write_bytes("participant_id;alter\r\n01;20,5\r\n02;30\r\n".encode("utf-16"))
    found = load(tmp_path, phenotypes=(german,)).frame
    assert found["age"].tolist() == found["alter"].tolist() == [20.5, 30.0]


def test_a_level_written_in_two_ways_is_named(tmp_path):
    put(tmp_path / "participants.tsv", "participant_id\tsex\n1\tF\n2\tf\n3\tM\n4\tm\n")
    choices = Settings(tmp_path, tmp_path / "out", "group").changed(covariates=("sex",))
    found = load_phenotypes(choices, {})
    with pytest.raises(DatasetError, match=r"'sex' writes one level in several ways \(F, M, f, m\)"):
        resolve_columns(found, found.frame, choices.group)


def test_a_code_of_a_column_that_no_table_has_is_refused(tmp_path):
    put(tmp_path / "participants.tsv", "participant_id\tage\nsub-01\t0\nsub-02\t30\n")
    assert load(tmp_path, missing_values=("age=0", "-5")).frame["age"].isna().tolist() == [True, False]
    with pytest.raises(DatasetError, match=r"missing_values Age=0: no .* column 'Age'. Did you mean 'age'\?"):
        load(tmp_path, missing_values=("Age=0",))


def clean(values, hints=None):
    frame = pd.DataFrame({"x": values}, index=[f"sub-{i}" for i in range(len(values))])
    cleaned, codes = remove_codes(frame, {"x": hints} if hints else {})
    return cleaned["x"], dict(codes)


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ([20.0, 45.0, -9999.0, 30.0], [2]),
        ([20.0, 45.0, 999.0, -99.0], [2, 3]),
        ([0.0, 1.0, 1.0, 99.0, -9.0], [3, 4]),
        ([100.0, 85.0, np.inf], [2]),
        ([88.0, 99.0, 77.0, 100.0], []),
        ([300.0, 999.0, 1200.0], []),
        ([-9.0, -8.0, 3.0, 10.0], []),
        ([-120.0, -99.0, -80.0], []),
    ],
)
def test_codes_are_told_from_values(values, missing):
    if values[0] == -9.0:
        values = [*values, -3.0]
    cleaned, codes = clean(values)
    assert np.flatnonzero(cleaned.isna()).tolist() == missing
    assert set(codes) == {f"sub-{i}" for i in missing}


@pytest.mark.parametrize(
    "hint", [{"MissingValues": [-1]}, {"Levels": {"-1": {"Description": "Not available"}, "1": "low"}}]
)
def test_what_the_sidecar_declares_is_believed(hint):
    cleaned, _ = clean([1.0, -1.0, 2.0], hint)
    assert np.flatnonzero(cleaned.isna()).tolist() == [1]
    assert not clean([1.0, -1.0, 2.0], {"Levels": {"-1": "below", "1": "above"}})[1]


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.lists(st.floats(-50, 60, width=32), min_size=3, max_size=20), st.integers(0, 19))
def test_a_planted_code_is_the_only_thing_removed(values, place):
    values = [value if value not in (-7, -8, -9) else 0.0 for value in values]
    planted = [*values, 9999.0]
    cleaned, codes = clean(planted)
    assert cleaned.isna().tolist() == [False] * len(values) + [True]
    assert len(codes) == 1
    assert not clean(values)[1]


FRAME = pd.DataFrame(
    {
        "age": [20.0, 30.0, 40.0, 50.0],
        "score": [1.0, np.nan, 3.0, 4.0],
        "sex": ["M", "F", "M", np.nan],
        "hand": ["left", "right", "both", "left"],
        "site": ["x", "x", "y", "y"],
        "family_id": ["1", "1", "2", "3"],
        "years": ["9", "12", "?", "16"],
        "constant": [7.0] * 4,
        "empty": [np.nan] * 4,
        "huge": [1.0, 2.0, 1e160, 3.0],
        "tiny": [1e-310, 2e-310, 3e-310, 4e-310],
        "rounded": [1e9, 1e9 + 1.2e-7, 1e9, 1e9 + 2.4e-7],
        "rare": [0.0, 1.0, 0.0, 0.0],
    },
    index=pd.Index(["sub-1", "sub-2", "sub-3", "sub-4"], name="participant_id"),
)


def resolve(conflicts=None, **choices):
    settings = Settings(Path("bids"), Path("out"), "group").changed(**choices)
    return resolve_columns(Phenotypes(FRAME, tuple(FRAME.columns), conflicts or {}), FRAME, settings.group)


def test_targets_default_to_the_numeric_columns_that_vary_and_have_no_other_role():
    found = resolve(covariates=("age",), family_column="family_id")
    assert found.targets == ("score",)
    assert "constant, empty, huge, tiny, rounded, rare" in " ".join(found.notes)
    assert resolve(conflicts={"score": "differs"}).targets == ("age",)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"targets": ("agee",)}, r"No phenotype table has a column 'agee'. Did you mean 'age'\?"),
        ({"covariates": ("zzz",)}, r"column 'zzz'. There are: age, score"),
        ({"site_column": "Site"}, r"column 'Site'. Did you mean 'site'"),
        ({"targets": ("g=age,age",)}, r"composite 'g' needs two"),
        ({"targets": ("constant",)}, r"target 'constant' is constant \(7.0\)"),
        ({"targets": ("hand",)}, r"target 'hand' is not numeric: sub-1 has 'left'. Only numbers or text of two"),
        ({"targets": ("years",)}, r"target 'years' is not numeric: sub-3 has '\?'. .* missing_values 'years=\?'"),
        ({"targets": ("huge",)}, r"'huge' .* sub-3 has 1e\+160, .* missing_values huge=1e\+160"),
        ({"targets": ("g=age,tiny",)}, r"'tiny' cannot be computed with: .* 4e-310"),
        ({"targets": ("rounded",)}, r"'rounded' cannot be computed with: .* 1e\+09"),
        ({"targets": ("rare",)}, r"'rare' has two values, and sub-2 alone has one of them \(1.0\)"),
        ({"targets": ("age",), "covariates": ("age",)}, r"'age' is both target and covariate"),
    ],
)
def test_a_column_that_cannot_be_used_is_one_sentence(choices, words):
    with pytest.raises(DatasetError, match=words) as caught:
        resolve(**choices)
    assert caught.value.exit_code == 3
    assert len(str(caught.value).splitlines()) == 1


def test_a_table_of_strangers_is_blamed_for_their_names_and_not_for_the_column():
    frame = pd.concat([FRAME[["age"]], pd.DataFrame({"iq": [100.0, 120.0]}, index=["sub-X1", "sub-X2"])])
    with pytest.raises(DatasetError, match=r"'iq' is known for 2 people without scans \(such as sub-X1\), .*sub-1\)"):
        resolve_columns(Phenotypes(frame), frame.loc[FRAME.index], Group(targets=("iq",)))
