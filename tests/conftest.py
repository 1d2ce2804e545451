"""Fixtures for the whole suite: no waiting for the disk, and reference data beside the checkout."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import pickle
import shutil
import signal
from collections.abc import Callable

# A shell in the background has it ignored, and the programs that tests start inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.fsync = lambda handle: None  # no power fails here; waiting for the disk was a twelfth of the time of all tests

from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pytest  # noqa: E402

from fcpower_bids.demo import DemoDesign, make_dataset  # noqa: E402
from tests.golden.freeze import STUDY, stages  # noqa: E402
from tests.running import PLAIN, Finished, run_app  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
REFERENCE_DATA = Path(os.environ.get("FCPOWER_SHARED", ROOT.parent / "shared"))


def pytest_collection_finish() -> None:
    """Leave the imported libraries out of every collection of garbage: a twelfth of the time of all tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with real parcellations, recordings and reference numbers; skips where a clone has none."""
    if not (REFERENCE_DATA / "golden").is_dir():
        pytest.skip(f"the reference data folder {REFERENCE_DATA} is not there (set FCPOWER_SHARED to point to one)")
    return REFERENCE_DATA


@pytest.fixture(scope="session")
def golden(shared) -> dict[str, np.ndarray]:
    """Connectomes, and what pyriemann, nilearn, scikit-learn, tensorly and scipy make of them."""
    with np.load(shared / "golden/transforms/transforms_golden.npz") as arrays:
        return dict(arrays)


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Any]) -> tuple[Path, Any]:
    """A folder and what its maker returned: made once a run of the tests, whichever worker asks first."""
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = base / f"{name}.pickle"
        if not found.exists():
            (base / name).mkdir()
            found.write_bytes(pickle.dumps(make(base / name)))
    return base / name, pickle.loads(found.read_bytes())  # noqa: S301  (written by this very run)


@pytest.fixture(scope="session")
def exact_demo(tmp_path_factory):
    """Folder and truth of a tiny demo dataset whose voxels hold the clean series."""
    design = DemoDesign.tiny(noise=0, nuisance=0)
    folder, truth = once(tmp_path_factory, "exact", lambda at: make_dataset(at / "in", design))
    return folder / "in", truth


@pytest.fixture(scope="session")
def exact_run(exact_demo, tmp_path_factory):
    """The exact demo through the application without any cleaning."""
    chosen = ("--atlas", "builtin", *PLAIN, "--transforms", "power", "fisher_z", "--nprocs", "1")
    return once(tmp_path_factory, "exact_run", lambda at: run_app(exact_demo[0], at / "out", *chosen))[1]


@pytest.fixture(scope="session")
def troubled_demo(tmp_path_factory):
    """Four participants: two runs, an incomplete field of view, many spikes, nearly nothing but spikes."""
    design = DemoDesign.tiny(subjects=4, troubles=True)
    folder, truth = once(tmp_path_factory, "troubled", lambda at: make_dataset(at / "in", design))
    return folder / "in", truth


@pytest.fixture(scope="session")
def troubled_run(troubled_demo, tmp_path_factory):
    """The troubled demo with default settings."""
    chosen = ("--atlas", "builtin", "--nprocs", "1")
    return once(tmp_path_factory, "troubled_run", lambda at: run_app(troubled_demo[0], at / "out", *chosen))[1]


def copy_outputs(run: Finished, folder: Path) -> Path:
    """Outputs to write into, without their work; the copy links to the same dataset."""
    shutil.copytree(run.output, folder, ignore=shutil.ignore_patterns("work"))
    description = folder / "dataset_description.json"
    about = json.loads(description.read_text())
    links = {name: (run.output / place).resolve() for name, place in about["DatasetLinks"].items()}
    about["DatasetLinks"] = {name: os.path.relpath(place, folder) for name, place in links.items()}
    description.write_text(json.dumps(about))
    return folder


@pytest.fixture
def outputs(exact_run, tmp_path):
    """A copy of the outputs of the exact demo."""
    return copy_outputs(exact_run, tmp_path / "out")


@pytest.fixture
def troubled(troubled_run, tmp_path):
    """A copy of the outputs of the troubled demo."""
    return copy_outputs(troubled_run, tmp_path / "out")


@pytest.fixture(scope="session")
def cohort_of_24(tmp_path_factory) -> Path:
    """24 people with two sessions: ``in`` is the dataset, ``out`` what the participant level made of it."""

    def make(folder: Path) -> None:
        make_dataset(folder / "in", STUDY)
        run_app(folder / "in", folder / "out", "--atlas", "builtin", "--quiet", "--nprocs", "2", code=0)

    return once(tmp_path_factory, "study", make)[0]


@pytest.fixture(scope="session")
def painted_people(tmp_path_factory) -> Path:
    """Two real people, painted into a template brain: ``in``; what the participant level made of it: ``out``."""
    return once(tmp_path_factory, "painted", stages)[0]


def copy_study(study: Path, folder: Path) -> Path:
    """Link the study to another folder: files are replaced and never changed."""
    (folder / "in").symlink_to(study / "in")
    shutil.copytree(study / "out", folder / "out", copy_function=os.link, ignore=shutil.ignore_patterns("work"))
    return folder
