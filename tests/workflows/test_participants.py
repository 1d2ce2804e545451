"""The participant level: its plan, and what becomes of one recording in a node, in a run, and in the next."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.errors import RecordingError, UsageError
from fcpower_bids.imaging.atlas import builtin_atlas
from fcpower_bids.outputs.status import read_status, write_status_table
from fcpower_bids.outputs.tables import read_table
from fcpower_bids.records import Recording
from fcpower_bids.settings import Settings
from fcpower_bids.workflows.plan import describe_plan, plan_run
from fcpower_bids.workflows.recording import process_recording
from tests.command import main, parse_settings
from tests.docs.pages import DOCS, code_blocks, read
from tests.planting.faults import Tree
from tests.running import PLAIN, run_app

NAME = "sub-01_task-rest"


def process(folder: Path):
    bold = folder / "bold.nii.gz"
    bold.touch()
    recording = Recording(bold, (("sub", "01"), ("task", "rest")), 2.0)
    settings = Settings(folder, folder / "out", "participant")
    return process_recording(recording, (), settings, {}, folder / "work")


def fail_with(monkeypatch, error: Exception) -> None:
    def fail(self, folder):
        raise error

    monkeypatch.setattr("fcpower_bids.interfaces.nodes.Parcellate.work", fail)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RecordingError("bold.nii.gz is truncated: copy it again."), "bold.nii.gz is truncated: copy it again."),
        (MemoryError(), "There was not enough memory. Give more, or --nprocs 1."),
    ],
)
def test_an_error_of_a_node_becomes_the_status_as_it_was_raised(tmp_path, monkeypatch, error, reason):
    fail_with(monkeypatch, error)
    assert process(tmp_path) == (NAME, "failed at parcellate")
    status = read_status(tmp_path / "out", NAME)
    assert (status.state, status.stage, status.reason) == ("failed", "parcellate", reason)


ONE = ("--participant-label", "01", "--session-label", "a")
ATLAS = ("--atlas", "builtin")


def only(folder, pattern):
    (found,) = folder.rglob(pattern)
    return found


def test_the_nodes_of_the_documentation_run_alone_in_a_workflow_of_anybody(exact_demo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = [block for block in code_blocks(read(DOCS / "python.md"), "py") if "workflow.run()" in block]
    scan = "sub-01_ses-a_task-rest_run-1"
    given = {
        "bold": str(only(exact_demo[0], f"{scan}_*_desc-preproc_bold.nii.gz")),
        "mask": str(only(exact_demo[0], f"{scan}_*_desc-brain_mask.nii.gz")),
        "confounds": str(only(exact_demo[0], f"{scan}_desc-confounds_timeseries.tsv")),
        "labels": str(builtin_atlas("MNI152NLin2009cAsym", tmp_path).image),
        "folder": str(tmp_path),
    }
    exec(example, given)
    folder = tmp_path / "mine"
    fc = np.load(only(folder / "connectivity", "fc_*.npz"))["matrix"]
    series = np.load(only(folder / "bandpass", "series_*.npz"))["series"]
    np.testing.assert_allclose(fc, np.corrcoef(series.T), atol=1e-12)
    power = np.load(only(folder / "power", "power_*.npz"))["matrix"]
    np.testing.assert_allclose(power, spectral_power(fc, 0.35), atol=1e-12)


WORDS = ("--atlas", "builtin", *PLAIN, "--transforms", "power", "fisher_z", "--quiet")


@pytest.fixture
def output(exact_run, tmp_path):
    return shutil.copytree(exact_run.output, tmp_path / "out", ignore=shutil.ignore_patterns("work"))


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def cut_at_a_line(path):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))


DAMAGES = {"sub-01_ses-a": Path.unlink, "sub-01_ses-b": cut, "sub-02_ses-a": cut_at_a_line}


def test_a_connectome_that_is_gone_or_cut_is_not_done(exact_demo, output):
    tables = {name: next(output.rglob(f"{name}*_stat-pearsoncorrelation_relmat.tsv")) for name in DAMAGES}
    whole = {name: table.read_bytes() for name, table in tables.items()}
    for name, damage in DAMAGES.items():
        damage(tables[name])
    main([*map(str, [exact_demo[0], output, "group", "--analyses", "check", "--min-time", "1", "--quiet"])])
    excluded = read_table(output / "group" / "excluded.tsv")["reason"]
    for name, damage in DAMAGES.items():
        said = f"{tables[name].name} is {'gone' if damage is Path.unlink else 'cut short'}: run"
        assert excluded.str.contains(said, regex=False).any(), excluded
    found = run_app(exact_demo[0], output, *WORDS)
    assert found.code == 0, found.err
    assert {name: table.read_bytes() for name, table in tables.items()} == whole
    assert set(write_status_table(output)["state"]) == {"done"}


def test_an_encoder_that_cannot_be_loaded_is_refused_before_the_first_recording(exact_demo, tmp_path):
    words = (*WORDS, "--encoder", "fbert", "--encoder-weights", "/nowhere")
    assert run_app(exact_demo[0], tmp_path / "out", *words).code == 2
    assert not (tmp_path / "out" / "sub-01").exists()


def plan_of(tree, *options):
    settings = parse_settings([*tree.arguments, *options])
    made = plan_run(settings, tree.base / "atlases")
    return made, describe_plan(made, settings)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_a_disk_that_is_too_small_is_known_before_the_start(tree, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10_000, 9_000, 1_000))
    with pytest.raises(UsageError, match=r"will need at least .* GB, but only 0\.0 GB are free"):
        plan_of(tree)
