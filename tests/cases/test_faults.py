"""Faults of files and of the machine, through the command: what it says, the exit code, what is on the disk after."""

from __future__ import annotations

import shutil

import pytest

from fcpower_bids.cli.run import main
from tests.running import PLAIN, contents, run_app

QUICK = ("--atlas", "builtin", *PLAIN, "--nprocs", "1")


@pytest.mark.parametrize("name", ["sub-02", "sub-02/ses-a", "sub-01/ses-b/func", "sub-02/figures", "logs"])
def test_a_link_that_leads_out_of_the_output_folder_is_refused_before_the_first_write(exact_demo, tmp_path, name):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept.txt").write_text("kept")
    link = tmp_path / "out" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    run = run_app(exact_demo[0], tmp_path / "out", *QUICK)
    assert run.code == 3
    assert name in run.err
    assert contents(elsewhere) == {"kept.txt": b"kept"}
    assert contents(tmp_path / "out", "work") == {}


def test_a_link_that_stays_inside_is_followed(exact_demo, tmp_path):
    (tmp_path / "out" / "others" / "sub-02").mkdir(parents=True)
    (tmp_path / "out" / "sub-02").symlink_to("others/sub-02")
    assert run_app(exact_demo[0], tmp_path / "out", *QUICK, "--participant-label", "02").code == 0


def test_the_group_level_does_not_write_through_a_link_either(exact_run, exact_demo, tmp_path, capsys):
    shutil.copytree(exact_run.output, tmp_path / "out", symlinks=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "group").symlink_to(tmp_path / "elsewhere")
    assert main([str(exact_demo[0]), str(tmp_path / "out"), "group", "--nprocs", "1"]) == 3
    assert "'group' is named as a file" in capsys.readouterr().err
    assert not list((tmp_path / "elsewhere").iterdir())
