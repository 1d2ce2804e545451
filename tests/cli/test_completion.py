"""The shell asks what can follow on the command line, as argcomplete's registration makes it ask."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fcpower_bids.analyses import ALL, ANALYSES
from fcpower_bids.cli.options import known_names, with_names
from fcpower_bids.cli.parser import build_parser
from fcpower_bids.cli.run import commands
from fcpower_bids.settings import LEVELS


def offered(line: str, folder: Path) -> set[str]:
    """What the program offers after this beginning of a command line."""
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\v",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(folder / "offered"),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    program = "from fcpower_bids.cli.run import entry_point; entry_point()"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, **asked}, cwd=folder, check=True)
    return {word.strip() for word in (folder / "offered").read_text().split("\v")}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fcpower_bids in out participant --atl", {"--atlas", "--atlases", "--atlas-dir"}),
        ("fcpower_bids in out participant --fd", {"--fd-thresh"}),
        ("fcpower_bids in out participant --combine-runs ", {"none", "concat", "average"}),
        *([("fcpower_bids in out p", {"participant", "pack", "pretrain"})] if "pack" in LEVELS else ()),
        ("fcpower_bids in out participant --atlas bui", {"builtin"}),
        ("fcpower_bids in out participant --atlas builtin Schaefer30", {"Schaefer300", "Schaefer300x17"}),
        ("fcpower_bids in out participant --strategy 3", {"36P"}),
        ("fcpower_bids in out participant --strategy mi", {"mine.yml"}),
        ("fcpower_bids in out participant --encoder fbert-", {"fbert-1m", "fbert-8m"}),
        ("fcpower_bids in out group --analyses ", {ALL, *ANALYSES}),
        ("fcpower_bids prefetch --wei", {"--weights"}),
        *([("fcpower_bids predict --part", {"--participant-label"})] if "predict" in commands() else ()),
        ("fcpower_bids in out participant --transforms pow", {"power"}),
    ],
)
def test_what_is_offered(line, expected, tmp_path):
    (tmp_path / "mine.yml").touch()
    assert offered(line, tmp_path) == expected


def test_nothing_is_imported_for_it_unless_the_shell_asks():
    probe = "import sys; from fcpower_bids.cli.run import entry_point; sys.argv[1:] = ['--version']\n"
    probe += "try: entry_point()\nexcept SystemExit: print('argcomplete' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "False"


@pytest.mark.parametrize("name", sorted(known_names()))
def test_help_gives_the_names(name):
    action = {action.dest: action for action in with_names(build_parser())._actions}[name]
    assert set(action.completer("")) == set(known_names()[name])
    if name != "atlas":
        assert all(known in (action.help or "") for known in known_names()[name])
