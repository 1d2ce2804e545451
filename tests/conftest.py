"""Fixtures for the whole suite: one BLAS thread, no waiting for the disk, and reference data beside the checkout."""

from __future__ import annotations

import os
import signal

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# A shell in the background has it ignored, and the programs that tests start inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.fsync = lambda handle: None  # no power fails here; waiting for the disk was a twelfth of the time of all tests

from pathlib import Path  # noqa: E402

import pytest  # noqa: E402

from fcpower_bids.demo import DemoDesign, make_dataset  # noqa: E402
from tests.running import PLAIN, run_app  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
REFERENCE_DATA = Path(os.environ.get("FCPOWER_SHARED", ROOT.parent / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with real parcellations, recordings and reference numbers; skips where a clone has none."""
    if not (REFERENCE_DATA / "golden").is_dir():
        pytest.skip(f"the reference data folder {REFERENCE_DATA} is not there (set FCPOWER_SHARED to point to one)")
    return REFERENCE_DATA


@pytest.fixture(scope="session")
def exact_demo(tmp_path_factory):
    """Folder and truth of a tiny demo dataset whose voxels hold the clean series."""
    folder = tmp_path_factory.mktemp("end_to_end") / "exact"
    return folder, make_dataset(folder, DemoDesign.tiny(noise=0, nuisance=0))


@pytest.fixture(scope="session")
def exact_run(exact_demo):
    """The exact demo through the application without any cleaning."""
    folder, _ = exact_demo
    return run_app(
        folder, folder.parent / "exact_out", "--atlas", "builtin", *PLAIN, "--transforms", "power", "fisher_z"
    )


@pytest.fixture(scope="session")
def troubled_demo(tmp_path_factory):
    """Four participants: two runs, an incomplete field of view, many spikes, nearly nothing but spikes."""
    folder = tmp_path_factory.mktemp("end_to_end") / "troubled"
    return folder, make_dataset(folder, DemoDesign.tiny(subjects=4, troubles=True))


@pytest.fixture(scope="session")
def troubled_run(troubled_demo):
    """The troubled demo with default settings and ``--strict``."""
    folder, _ = troubled_demo
    return run_app(folder, folder.parent / "troubled_out", "--atlas", "builtin", "--strict")
