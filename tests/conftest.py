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


LONG = (
    "doors/test_doors_in_pairs",
    "doors/test_into_pretraining",
    "docs/test_commands",
    "slices/pretraining/test_processes",
    "demo/test_recorded",
    "test_group_end_to_end",
    "docs/test_outputs",
    "docs/test_site",
    "executors/test_kept",
    "slices/pretraining/test_judgement",
    "test_stages_pipeline",
    "docs/test_recipes",
    "reports/cohort/test_sections",
    "docs/test_night",
    "test_planted_faults",
    "slices/elsewhere/test_doors",
    "workflows/test_what_runs_again",
    "slices/pretraining/test_learning",
    "slices/clinic/test_threats",
    "workflows/test_batches",
    "executors/test_executors",
    "test_pains",
    "doors/test_views_of_the_head",
    "slices/pretraining/test_probing",
    "workflows/test_group",
    "outputs/test_compact",
    "slices/pretraining/test_train",
    "slices/pretraining/test_packing",
    "slices/clinic/test_threats_with_scans",
    "test_isolation",
    "test_distribution",
    "test_seen_people",
    "test_planted_stages",
    "slices/pretraining/test_two_processes",
    "analyses/test_processes",
    "outputs/test_combine_runs",
    "workflows/test_cohorts",
    "test_sites",
    "slices/pretraining/test_devices",
    "docs/test_reading",
)
"""Files of whole runs, a second or more a test. The longest is first: one that begins last keeps a worker busy alone.

``make test`` leaves them to ``make test-long``; `.ci/run` calls both.
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the long files and begin with them (``--no-loadscope-reorder``); the order within a file stays."""
    places = {ROOT / "tests" / f"{name}.py": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    for item in items:
        if item.path in places:
            item.add_marker(pytest.mark.long)
