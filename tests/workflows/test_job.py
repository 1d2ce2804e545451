"""What becomes of one recording in one process: its errors as its status, its folder gone when it is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from fcpower_bids.errors import RecordingError
from fcpower_bids.outputs.status import read_status
from fcpower_bids.records import Recording
from fcpower_bids.settings import Settings
from fcpower_bids.workflows.recording import process_recording

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
        (
            OSError(28, "No space left on device"),
            "No space left on device while writing: make room, and run the same command again.",
        ),
        (MemoryError(), "There was not enough memory. Give more, or --nprocs 1."),
    ],
)
def test_an_error_of_a_node_becomes_the_status_as_it_was_raised(tmp_path, monkeypatch, error, reason):
    fail_with(monkeypatch, error)
    assert process(tmp_path) == (NAME, "failed at parcellate")
    status = read_status(tmp_path / "out", NAME)
    assert (status.state, status.stage, status.reason) == ("failed", "parcellate", reason)


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("operands of shape (3,) and (4,)"), TypeError("float")])
def test_a_mistake_of_ours_is_called_one_and_its_traceback_is_kept(tmp_path, monkeypatch, error):
    fail_with(monkeypatch, error)
    assert process(tmp_path)[1] == "failed at parcellate"
    status = read_status(tmp_path / "out", NAME)
    assert (status.state, status.stage) == ("failed", "parcellate")
    name = "logs/crashes/sub-01_task-rest_parcellate.txt"
    assert status.reason.startswith(f"Internal error, please report it with {name}")
    text = (tmp_path / "out" / name).read_text()
    assert text.startswith("Traceback")
    assert "in fail" in text
    assert str(error.args[0]) in text


def test_a_refusal_of_the_system_is_neither_blamed_on_the_data_nor_on_us(tmp_path, monkeypatch):
    fail_with(monkeypatch, OSError(5, "Input/output error", "bold.nii.gz"))
    process(tmp_path)
    reason = read_status(tmp_path / "out", NAME).reason
    assert reason.startswith("The system refused")
    assert "bold.nii.gz" in reason
