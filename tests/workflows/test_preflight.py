"""The plan of a run, and how it is told: few lines whatever the number, room and owners known before the start."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import namedtuple

import pytest

from benchmarks.overhead import plant
from fcpower_bids.errors import UsageError
from fcpower_bids.parallel import WorkerDied
from fcpower_bids.workflows import plan
from fcpower_bids.workflows.plan import describe_plan, plan_run
from tests.command import parse_settings
from tests.planting.faults import Tree
from tests.planting.trees import MNI, add_run, describe, put


def plan_of(tree, *options):
    settings = parse_settings([*tree.arguments, *options])
    made = plan_run(settings, tree.base / "atlases")
    return made, describe_plan(made, settings)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_the_table_shows_every_recording_and_what_is_missing(tree):
    tree.mask.unlink()
    tree.add("sub-03_ses-a_task-rest", "space-T1w")
    tree.add("sub-03_ses-a_task-rest", "space-MNI152NLin2009cAsym_res-2")
    (tree.root / "sub-04").mkdir()
    _, text = plan_of(tree)
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    name = f"sub-02_task-rest_{MNI}"
    assert lines[name].split() == [name, "yes", "yes", "yes", "2", "80", "2.7", "2.7", f"sub-02/func/{name}_*"]
    name = f"sub-03_ses-a_task-rest_{MNI}_res-2"
    assert lines[name].split()[-1] == f"sub-03/ses-a/func/{name}_*"
    assert lines[f"sub-01_task-rest_{MNI}"].split()[1:5] == ["yes", "NO", "yes", "yes"]
    assert "has no brain mask" in text
    assert lines["sub-04"].split()[1:] == [*"-------", "none", "(skipped)"]
    assert "Note: sub-03_ses-a_task-rest: space T1w is there" in text
    assert f"Read from {tree.root}" in text
    assert "Exit code 4: some would fail." in text
    summary = (
        "2 recordings of 2 participants (0.1 h) can be processed; 1 has problems, 1 is skipped, 0 would be excluded."
    )
    assert text.endswith(summary + "\n")


def test_a_dry_run_loads_what_it_needs(tmp_path):
    """nipype, and scipy with its filters and matrices, would be half of its time."""
    root, labels = plant(tmp_path, 1)
    words = [str(root), str(tmp_path / "out"), "participant", "--dry-run", "--nprocs", "1", "--atlas", str(labels)]
    absent = ("nipype", "networkx", "scipy.linalg", "scipy.signal", "scipy.stats", "nilearn", "torch")
    probe = f"import sys\nfrom fcpower_bids.app import main\nassert main({words!r}) == 0\n"
    probe += f"print('loaded:', *[m for m in {absent!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert "1 recording of 1 participant" in done.stdout
    assert done.stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("dies", [False, True])
def test_many_recordings_are_judged_in_processes_and_the_verdicts_stay(tree, monkeypatch, dies):
    """Also where a process is killed: what it leaves is judged here."""
    for person in "34567":
        tree.add(f"sub-0{person}_task-rest", MNI)
    next(tree.root.glob("sub-04/**/*_timeseries.tsv")).write_text("trans_x\n1\n")
    expected, _ = plan_of(tree, "--nprocs", "1")
    monkeypatch.setattr(plan, "BLOCK", 2)
    begun, run = [], plan.run_calls

    def watched(function, calls, n_processes, modules):
        begun.append(n_processes)
        for number, found in enumerate(run(function, calls, n_processes, modules)):
            if dies and number:
                raise WorkerDied("The process was killed")
            yield found

    monkeypatch.setattr(plan, "run_calls", watched)
    found, _ = plan_of(tree, "--nprocs", "2")
    assert begun == [2]
    assert (found.jobs, found.refused) == (expected.jobs, expected.refused)
    assert (len(found.jobs), len(found.refused)) == (6, 1)


def test_hundreds_of_recordings_that_are_not_fetched_are_few_lines(tmp_path):
    root = describe(tmp_path / "in")
    for person in range(100):
        for session in "abcd":
            folder = root / f"sub-{person:04d}" / f"ses-{session}" / "func"
            folder.mkdir(parents=True)
            for ending in ("bold.nii.gz", "bold.json"):
                name = f"sub-{person:04d}_ses-{session}_task-rest_{MNI}_desc-preproc_{ending}"
                (folder / name).symlink_to("../../.git/annex/objects/XX/nothing")
    settings = parse_settings([str(root), str(tmp_path / "out"), "participant", "--dry-run"])
    plan = plan_run(settings, tmp_path / "atlases")
    text = describe_plan(plan, settings)
    assert len(plan.refused) == 400
    assert len(text.splitlines()) < 20
    assert "400 recordings, the first is sub-0000_ses-a" in text
    assert "datalad get" in text
    assert plan.exit_code == 5


def test_a_sidecar_that_is_not_fetched_is_a_note_where_the_header_has_the_time(tmp_path):
    root = describe(tmp_path / "in")
    folder = add_run(root, "sub-01_task-rest")
    path = next(folder.glob("*_bold.json"))
    put(path, b"/annex/objects/MD5E-s1--0\n")
    from fcpower_bids.inputs.discover import find_recordings
    from tests.planting.trees import settings

    found = find_recordings(settings(root))
    assert found.recordings[0].repetition_time == 2.0
    assert found.problems == ()
    assert str(path) in found.notes[0]
    assert "datalad get" in found.notes[0]


def test_a_disk_that_is_too_small_is_known_before_the_start(tree, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10_000, 9_000, 1_000))
    with pytest.raises(UsageError, match=r"will need at least .* GB, but only 0\.0 GB are free"):
        plan_of(tree)
