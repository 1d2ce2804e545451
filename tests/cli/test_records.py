"""Files of choices and records of runs, given to the real command."""

from __future__ import annotations

import shutil

import pytest

from fcpower_bids.outputs.tables import read_toml
from tests.cases.cohorts import PEOPLE, group, read, write_series, write_table
from tests.cases.people import files, run


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


@pytest.fixture
def outputs(exact_demo, exact_run, tmp_path):
    """Outputs that were cleaned not at all, and the words that make their pages again."""
    out = shutil.copytree(exact_run.output, tmp_path / "out", ignore=shutil.ignore_patterns("work"))
    return out, (exact_demo[0], out, "participant", "--reports-only", "-c", tmp_path / "c.toml")


def test_pages_alone_are_of_the_choices_that_the_record_has_whatever_file_is_given(outputs, tmp_path):
    out, words = outputs
    before = (out / "logs" / "CITATION.md").read_text()
    for text in ("nprocs = 1\n", (out / "logs" / "settings.toml").read_text()):
        (tmp_path / "c.toml").write_text(text)
        (out / "sub-01.html").unlink()
        found = run(*words)
        assert found.code == 0, found.err
        assert (out / "sub-01.html").is_file()
        assert (out / "logs" / "CITATION.md").read_text() == before


@pytest.mark.parametrize("line", ["low_pass = 0.1", "filter_order = 3", 'transforms = ["power"]\nnprocs = 1'])
def test_pages_alone_are_refused_where_a_file_chooses_otherwise(outputs, tmp_path, line):
    """Also what was not chosen when the outputs were made, which their record does not have."""
    out, words = outputs
    (tmp_path / "c.toml").write_text(line)
    before = files(out)
    found = run(*words)
    assert found.code == 2
    name = line.partition(" ")[0].replace("_", "-")
    assert f"--{name} is not what the outputs were made with" in found.err
    assert len(found.err.splitlines()) == 1
    assert files(out) == before
    other = run(*words[:-2], "--head-radius", "40")
    assert other.code == 2
    assert "--head-radius is not what the outputs were made with" in other.err
