"""A step turns every error into the status of its recording, and what passes between steps is exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fcpower_bids.errors import RecordingError
from fcpower_bids.interfaces.bundles import load_bundle, load_series, save_bundle, save_series
from fcpower_bids.interfaces.recording import RecordingStep
from fcpower_bids.outputs.status import read_status
from fcpower_bids.records import ParcelSeries, Recording
from fcpower_bids.settings import Settings
from tests.measures.test_measures import make_cleaning

NAME = "sub-01_task-rest"


class Step(RecordingStep):
    stage = "clean"
    error: Exception | None = None

    def work(self, folder: Path) -> Path:
        if self.error is not None:
            raise self.error
        return save_bundle(folder / "some.npz", {"x": np.arange(3)}, {"y": [1, None]})


def run_step(folder: Path, error: Exception | None = None):
    recording = Recording(folder / "bold.nii.gz", (("sub", "01"), ("task", "rest")), 2.0)
    settings = Settings(Path("in"), folder, "participant")
    step = Step(recording=recording, atlases=(), settings=settings, fingerprint="", output_dir=str(folder))
    step.error = error
    return step.run(cwd=str(folder))


def test_a_step_that_works_leaves_its_bundle_and_goes_on(tmp_path):
    found = run_step(tmp_path)
    arrays, facts = load_bundle(Path(found.outputs.bundle))
    np.testing.assert_array_equal(arrays["x"], [0, 1, 2])
    assert facts == {"y": [1, None]}
    status = read_status(tmp_path, NAME)
    assert (status.state, status.stage) == ("running", "clean")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RecordingError("bold.nii.gz is truncated: copy it again."), "bold.nii.gz is truncated: copy it again."),
        (
            OSError(28, "No space left on device"),
            "No space left on device while writing: make room, and run the same command again.",
        ),
        (MemoryError(), "There was not enough memory. Give more, or --low-mem."),
    ],
)
def test_every_error_becomes_the_status(tmp_path, error, reason):
    with pytest.raises(type(error)):
        run_step(tmp_path, error)
    status = read_status(tmp_path, NAME)
    assert (status.state, status.stage, status.reason) == ("failed", "clean", reason)


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("operands of shape (3,) and (4,)"), TypeError("float")])
def test_a_mistake_of_ours_is_called_one_and_its_traceback_is_kept(tmp_path, error):
    with pytest.raises(type(error)):
        run_step(tmp_path, error)
    status = read_status(tmp_path, NAME)
    assert (status.state, status.stage) == ("failed", "clean")
    assert status.reason.startswith("Internal error, please report it with logs/crashes/sub-01_task-rest_clean.txt")
    text = (tmp_path / "logs" / "crashes" / "sub-01_task-rest_clean.txt").read_text()
    assert text.startswith("Traceback")
    assert repr(error.args[0]) in text or str(error.args[0]) in text


def test_a_refusal_of_the_system_is_neither_blamed_on_the_data_nor_on_us(tmp_path):
    with pytest.raises(OSError, match="Input/output"):
        run_step(tmp_path, OSError(5, "Input/output error", "bold.nii.gz"))
    reason = read_status(tmp_path, NAME).reason
    assert reason.startswith("The system refused")
    assert "bold.nii.gz" in reason


def test_seconds_add_up_over_the_steps(tmp_path):
    run_step(tmp_path)
    first = read_status(tmp_path, NAME).seconds
    run_step(tmp_path)
    assert read_status(tmp_path, NAME).seconds >= first


def test_series_pass_unchanged(tmp_path):
    rng = np.random.default_rng(0)
    series = [
        ParcelSeries(rng.random(n), rng.random((9, n)), rng.random((7, n)), np.empty((0, 0)), (1,)) for n in (2, 3)
    ]
    cleaning = make_cleaning(excluded="Too short.", notes=("A note.",), design_names=("x", "y"))
    found, both = load_series(save_series(tmp_path / "x.npz", cleaning, series))
    assert (found.excluded, found.notes, found.design_names) == ("Too short.", ("A note.",), ("x", "y"))
    np.testing.assert_array_equal(found.kept, cleaning.kept)
    for one, other in zip(both, series, strict=True):
        assert one.flat == (1,)
        for field in ("coverage", "raw", "clean", "connectivity"):
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field))


def test_a_bundle_with_objects_is_refused(tmp_path):
    np.savez(tmp_path / "bad.npz", json=np.array("{}"), x=np.array([{"code": 1}], dtype=object))
    with pytest.raises(ValueError, match="pickle"):
        load_bundle(tmp_path / "bad.npz")
