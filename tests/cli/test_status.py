"""``fcpower_bids status``: the table of all, from the statuses of all jobs."""

from __future__ import annotations

import json
import os
import shutil

import pandas as pd
import pytest

from fcpower_bids.claims import Claims
from fcpower_bids.cli.run import main
from fcpower_bids.outputs.status import Status, write_status
from tests.running import run_app

ATLAS = ("--atlas", "builtin")


def table_of(output):
    return pd.read_csv(output / "logs" / "status.tsv", sep="\t", keep_default_na=False).set_index("recording")


def written(output):
    """What the status files say, read without our code."""
    files = (json.loads(path.read_text()) for path in (output / "logs" / "status").glob("*.json"))
    return {one["recording"]: (one["state"], one["reason"] or "n/a") for one in files}


def test_a_run_of_all_writes_the_table_that_the_command_writes(exact_run, tmp_path, capsys):
    output = shutil.copytree(exact_run.output, tmp_path / "out")
    before = (output / "logs" / "status.tsv").read_bytes()
    (output / "index.html").unlink()
    for options, index in (["--no-index"], False), ([], True):
        (output / "logs" / "status.tsv").unlink()
        assert main(["status", str(output), *options]) == 0
        assert (output / "logs" / "status.tsv").read_bytes() == before
        assert (output / "index.html").is_file() == index
    rows = table_of(output)
    assert dict(zip(rows.index, zip(rows["state"], rows["reason"], strict=True), strict=True)) == written(output)
    assert f"{len(rows)} done" in capsys.readouterr().out


def test_failed_running_and_abandoned_are_told_apart(exact_run, tmp_path, capsys):
    output = shutil.copytree(exact_run.output, tmp_path / "out")
    write_status(output, Status("sub-07_task-rest", "failed", "clean", "The table has no column x."))
    write_status(output, Status("sub-08_task-rest", "running", "clean"))
    write_status(output, Status("sub-09_task-rest", "running", "clean"))
    own = Claims(output / "logs" / "claims")
    own.acquire(["sub-08_task-rest"])
    assert main(["status", str(output)]) == 4
    own.close()
    said = capsys.readouterr().out
    assert "failed: sub-07_task-rest at clean: The table has no column x." in said
    assert "running: sub-08_task-rest at clean: At work: " in said
    assert "running: sub-09_task-rest at clean: The run that worked on it has ended" in said
    assert table_of(output)["state"]["sub-07_task-rest"] == "failed"


def test_a_folder_without_outputs_is_refused(tmp_path, capsys):
    assert main(["status", str(tmp_path)]) == 3
    assert f"{tmp_path} holds no outputs" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("others", "has_table"), [(3, True), (200, False)])
def test_a_job_for_one_participant_leaves_the_statuses_of_many_alone(exact_demo, tmp_path, others, has_table):
    output = tmp_path / "out"
    for number in range(others):
        write_status(output, Status(f"sub-x{number}_task-rest", "done"))
    (output / "logs" / "status.tsv").write_text("recording\tstate\nof-yesterday\tdone\n")
    found = run_app(exact_demo[0], output, *ATLAS, "--participant-label", "01", "--session-id", "a")
    assert found.code == 0, found.err
    assert (output / "logs" / "status.tsv").exists() == has_table
    assert f"fcpower_bids status {output}" in found.err or has_table
    page = (output / "sub-01.html").read_text()
    assert ("logs/status.tsv" in page) == has_table
    if has_table:
        assert len(table_of(output)) == others + 1


def test_outputs_that_are_closed_to_the_user_are_named(exact_run, tmp_path, capsys):
    output = shutil.copytree(exact_run.output, tmp_path / "out")
    (output / "logs").chmod(0o500)
    user = os.geteuid()
    if not user:
        os.seteuid(65534)
    try:
        code = main(["status", str(output)])
    finally:
        os.seteuid(user)
        (output / "logs").chmod(0o700)
    told = capsys.readouterr().err
    assert code == 2
    assert "is closed to you. Open it, or choose another folder." in told
    assert "Traceback" not in told


def test_an_unknown_option_leads_to_the_help_of_its_own_command(capsys):
    assert main(["status", "somewhere", "--nonsense"]) == 2
    assert "--nonsense. See fcpower_bids status --help." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "remedy"),
    [
        (["1"], "Did you mean 01? There are 01, 02."),
        (["99"], "correct --participant-label. There are 01, 02."),
        (["sub-01,sub-02"], "labels are divided by blanks, so write --participant-label 01 02."),
    ],
)
def test_a_label_that_is_not_there_is_told_with_the_remedy_even_when_quiet(exact_demo, tmp_path, labels, remedy):
    for others, code in (([], 3), (["02"], 4)):
        words = (*ATLAS, "--quiet", "--session-id", "a", "--participant-label", *labels, *others)
        found = run_app(exact_demo[0], tmp_path / str(code), *words)
        assert found.code == code
        assert remedy in found.err


def test_what_a_job_was_asked_for_and_never_began_is_missed(exact_run, tmp_path, capsys):
    output = shutil.copytree(exact_run.output, tmp_path / "out")
    lost = sorted((output / "logs" / "status").glob("*.json"))[-1]
    lost.unlink()  # as after a job that was killed before its turn came
    (output / "logs" / "asked" / "array.txt").write_text(
        "sub-01\nsub-02\nsub-77\n"
    )  # sub-77 had a job that never began
    assert main(["status", str(output)]) == 4
    said = capsys.readouterr().out
    assert f"failed: {lost.stem}: It was asked for" in said
    assert "failed: sub-77: It was asked for" in said
    assert "2 failed" in said
    assert table_of(output)["state"]["sub-77"] == "failed"
