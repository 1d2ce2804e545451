"""The pipeline folder for Nipoppy: valid to Nipoppy itself, and what it starts and tracks is what we read and write."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from fcpower_bids.cli.options import option_fields
from scripts.reference.nipoppy import main


@pytest.fixture(params=[(), ("--without-container",)], ids=["container", "installed"])
def folder(request, tmp_path):
    assert main([str(tmp_path / "nipoppy"), *request.param]) == 0
    return tmp_path / "nipoppy"


def test_what_it_starts_and_tracks_is_what_we_read_and_write(folder, exact_run):
    invocation, tracker = (json.loads((folder / f"{name}.json").read_text()) for name in ("invocation", "tracker"))
    known = {field.name for field in option_fields()}
    assert set(invocation) - known == {"bids_dir", "output_dir", "level"}
    recording = next(exact_run.output.glob("sub-*/ses-*/func/*_qc.tsv"))
    person, session = recording.relative_to(exact_run.output).parts[:2]
    for path in tracker["PATHS"]:
        own = path.replace("[[NIPOPPY_BIDS_PARTICIPANT_ID]]", person).replace("[[NIPOPPY_BIDS_SESSION_ID]]", session)
        assert list(exact_run.output.glob(own)) == [recording]


@pytest.mark.skipif(shutil.which("nipoppy") is None, reason="nipoppy is not installed (pip install nipoppy)")
def test_nipoppy_finds_it_valid_and_a_faulty_one_not(folder):
    command = ["nipoppy", "pipeline", "validate", str(folder)]
    assert subprocess.run(command, capture_output=True).returncode == 0
    (folder / "tracker.json").write_text("{}")
    assert subprocess.run(command, capture_output=True).returncode != 0
