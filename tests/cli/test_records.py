"""Files of choices and records of runs, given to the real command."""

from __future__ import annotations

import pytest

from fcpower_bids.outputs.tables import read_toml
from tests.cases.cohorts import PEOPLE, group, read, write_series, write_table
from tests.cases.people import files


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """Thirty people, and the answer to one question, that an earlier one was replaced with."""
    folder = write_series(tmp_path_factory.mktemp("answered"))
    numbers = {"age": range(30), "iq": [number * 7 % 30 for number in range(30)]}
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE, **numbers)
    assert group(folder, "--analyses", "prediction", "--targets", "age", "--replace") == 0
    return folder


def test_a_record_gives_no_leave_to_replace(answered, capsys):
    """It has what was chosen, not what was done with a single run: to replace, to try, to make the pages again."""
    record, before = answered / "out" / "logs" / "settings_group.toml", files(answered / "out" / "group")
    assert not {"replace", "dry_run", "reports_only"} & set(read_toml(record))
    assert group(answered, "-c", record, "--targets", "iq") == 2
    assert "--replace" in capsys.readouterr().err
    assert files(answered / "out" / "group") == before
    assert group(answered, "-c", record) == 0
    assert set(read(answered, "prediction_summary")["target"]) == {"age"}


@pytest.mark.parametrize(
    ("line", "asked"),
    [('preset = "paper"', True), ('preset = "Paper"', True), ('preset = "paper"\nanalyses = ["prediction"]', False)],
)
def test_the_preset_of_the_paper_is_named_by_a_file_as_by_the_command_line(answered, tmp_path, capsys, line, asked):
    (tmp_path / "c.toml").write_text(line)
    words = ("--name", "paper", "--targets", "age", "-c", tmp_path / "c.toml")
    assert group(answered, *words, "--dry-run", quick=("--min-time", 0, "--nprocs", 1)) == 0
    assert ("parcellation_sweep: would be left out" in capsys.readouterr().err) == asked


@pytest.mark.parametrize(
    "target",
    ["old=age>=1.2.3", "old=age>=.", "old=age>=", "old=age>==40", "old=age>=1,5", "old=age>=nan", "old=>=4", "=age>=4"],
)
def test_a_cut_that_is_no_number_is_refused_before_any_table_is_read(answered, capsys, target):
    assert group(answered, "--targets", target) == 2
    assert f"--targets '{target}' must be NAME=COLUMN>=NUMBER." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "number"), [("old=age>=1e1", 10), ("old = age >= 2.E+1", 20), ("old=age>=+3.5", 3.5)]
)
def test_a_cut_is_made_at_any_number(answered, target, number):
    words = ("--analyses", "prediction", "--targets", target, "--name", "cut", "--replace")
    assert group(answered, *words) == 0
    predictions = read(answered, "cut/predictions").dropna(subset="observed").set_index("participant_id")["observed"]
    assert predictions.to_dict() == {person: float(age >= number) for age, person in enumerate(PEOPLE)}
