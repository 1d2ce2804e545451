"""Tables of people are joined with the people and the sessions of the scans that are used."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from tests.cases.cohorts import PEOPLE, group, observed, read, write_series, write_table

PREDICT = ("--analyses", "prediction", "--representations", "fc")
AGES = np.round(np.random.default_rng(1).uniform(20, 60, len(PEOPLE)), 1)


@pytest.fixture(scope="module")
def one_session(tmp_path_factory):
    return write_series(tmp_path_factory.mktemp("one"))


@pytest.fixture
def people(one_session, tmp_path):
    """Thirty people with one scan each, without sessions."""
    return shutil.copytree(one_session, tmp_path / "people")


def of_sessions(folder, form, sessions, ages, people=PEOPLE):
    """Write the ages of people at sessions (person, session) in one of the forms of BIDS."""
    if form == "phenotype":
        rows = [(one, session, age) for one, each in zip(people, ages, strict=True)
                for session, age in zip(sessions, each, strict=True)]  # fmt: skip
        write_table(folder / "bids" / "phenotype" / "ages.tsv", **dict(
            zip(("participant_id", "session_id", "age"), zip(*rows, strict=True), strict=True)))  # fmt: skip
        return
    for one, each in zip(people, ages, strict=True):
        write_table(folder / "bids" / one / f"{one}_sessions.tsv", session_id=sessions, age=each)


@pytest.mark.parametrize(
    ("form", "scanned", "chosen", "in_table"),
    [
        ("phenotype", ("2", "10"), (), ("ses-10", "ses-2")),
        ("sessions", ("2", "10"), (), ("ses-10", "ses-2")),
        ("phenotype", ("2", "10"), ("10",), ("ses-2", "ses-10")),
        ("sessions", ("02", "10"), (), ("2", "10")),
        ("phenotype", ("post",), (), ("ses-post", "ses-pre")),
        ("sessions", ("Post",), (), ("pre", "post")),
    ],
)
def test_01_a_value_is_that_of_the_session_of_the_scan(tmp_path, form, scanned, chosen, in_table):
    write_series(tmp_path, sessions=scanned)
    used = (chosen or scanned)[0]
    later = [0.0 if one.removeprefix("ses-").lstrip("0").lower() == used.lstrip("0").lower() else 3 for one in in_table]
    of_sessions(tmp_path, form, in_table, AGES[:, None] + np.array(later))
    options = ("--session-label", *chosen) if chosen else ()
    assert group(tmp_path, *PREDICT, "--targets", "age", *options) == 0
    assert observed(tmp_path, "age") == pytest.approx(dict(zip(PEOPLE, AGES, strict=True)))


@pytest.mark.parametrize("form", ["phenotype", "sessions"])
def test_01_a_person_without_a_row_of_the_session_misses_the_value(tmp_path, form):
    write_series(tmp_path, sessions=("2",))
    of_sessions(tmp_path, form, ("ses-1", "ses-2"), np.column_stack([AGES[:20] + 50, AGES[:20]]), PEOPLE[:20])
    if form == "phenotype":
        path = tmp_path / "bids" / "phenotype" / "ages.tsv"
        path.write_text(path.read_text() + "".join(f"{one}\tses-1\t99\n" for one in PEOPLE[20:]))
    else:
        of_sessions(tmp_path, form, ("ses-1",), AGES[20:, None] + 50, PEOPLE[20:])
    assert group(tmp_path, *PREDICT, "--targets", "age") == 0
    assert observed(tmp_path, "age") == pytest.approx(dict(zip(PEOPLE[:20], AGES[:20], strict=True)))
    reasons = read(tmp_path, "excluded").groupby("participant_id")["reason"].agg(" ".join)
    assert set(reasons.index) == set(PEOPLE[20:])
    assert (reasons.str.contains("ses-1") & reasons.str.contains("ses-2")).all()


@pytest.mark.parametrize(
    ("form", "scanned", "in_table"),
    [
        ("phenotype", ("01",), ("baseline", "followup")),
        ("sessions", ("a",), ("ses-1", "ses-2")),
        ("phenotype", ("2", "10"), ("ses-x",)),
    ],
)
def test_01_sessions_that_do_not_meet_are_both_listed(tmp_path, capsys, form, scanned, in_table):
    write_series(tmp_path, sessions=scanned)
    of_sessions(tmp_path, form, in_table, np.column_stack([AGES] * len(in_table)))
    assert group(tmp_path, *PREDICT, "--targets", "age") == 3
    said = capsys.readouterr().err
    assert ("ages.tsv" if form == "phenotype" else "_sessions.tsv") in said
    assert all(f"ses-{label}" in said for label in (*scanned, *(one.removeprefix("ses-") for one in in_table)))


def test_01_several_rows_of_a_person_need_the_session_of_the_scan(people, capsys):
    of_sessions(people, "phenotype", ("ses-a", "ses-b"), np.column_stack([AGES, AGES + 3]))
    assert group(people, *PREDICT, "--targets", "age") == 3
    assert "ages.tsv" in (said := capsys.readouterr().err)
    assert "ses-a, ses-b" in said
