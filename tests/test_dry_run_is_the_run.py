"""What ``--dry-run`` says is what a run does: same exit code, same recordings, same states, same reasons.

``FCPOWER_FAULTS=all`` (``make faults``) tries every fault; without it a sample is tried.
"""

from __future__ import annotations

import contextlib
import io
import os
import re

import pytest

from fcpower_bids.workflows import participant
from tests.command import main
from tests.planting.faults import FAULTS, Tree
from tests.running import Finished

EVERY = 1 if os.environ.get("FCPOWER_FAULTS") == "all" else 3
SEEN_TO_DIFFER = ("--dummy-scans 3", "output inside the folder of a person")
LINE = re.compile(r"(failed|skipped|excluded): (\S+) at (\S+): (.*)")


def here(function, calls, *_how):
    """Do in this process what workers do."""
    return (function(*arguments) for arguments in calls)


@pytest.fixture
def without_workers(monkeypatch):
    """No processes and no pages: what is compared does not depend on them."""
    monkeypatch.setattr(participant, "_report", lambda *_, **__: None)
    monkeypatch.setattr(participant, "run_calls", here)


def start(tree, *options) -> Finished:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*tree.arguments, *options])
    return Finished(code, err.getvalue(), out.getvalue(), tree.out)


def told(dry: Finished) -> dict[str, tuple[str, str]]:
    """State and reason of every recording, as the dry run prints them."""
    found = {name: (state, reason) for state, name, _, reason in map(re.Match.groups, LINE.finditer(dry.out))}
    for line in dry.out.partition("\n\n")[0].splitlines()[1:]:
        cells = line.split()
        if not line.rpartition("  ")[2].strip().startswith("none ("):
            found[cells[0]] = ("done", "")
    return found


def written(run: Finished) -> dict[str, tuple[str, str]]:
    table = run.status()
    return {str(name): (row.state, row.reason.removeprefix("n/a")) for name, row in table.iterrows()}


@pytest.mark.parametrize(
    "name", [*SEEN_TO_DIFFER, *(name for name in list(FAULTS)[::EVERY] if name not in SEEN_TO_DIFFER)]
)
def test_a_dry_run_is_the_run(name, tmp_path, monkeypatch, without_workers):
    monkeypatch.chdir(tmp_path)
    tree = Tree(tmp_path)
    FAULTS[name](tree)
    before = sorted(tmp_path.rglob("*"))
    dry = start(tree, "--dry-run", "--verbose")
    assert sorted(tmp_path.rglob("*")) == before, "a dry run writes nothing"
    run = start(tree)
    assert "Traceback" not in dry.err + run.err
    late = set[str]()  # recordings that their series excludes, which a dry run does not read
    if dry.out:
        said, found = told(dry), written(run)
        late = {name for name in said if said[name][0] == "done" and found[name][0] == "excluded"}
    assert dry.code == run.code or (late and (dry.code, run.code) == (0, 5)), (dry.out, dry.err, run.err)
    if dry.out:
        assert {name: said[name] for name in said if name not in late} == {
            name: found[name] for name in found if name not in late
        }
        assert f"Exit code {dry.code}:" in dry.out
    else:
        assert dry.err == run.err
        assert not (tree.out / "logs" / "status").exists()
