"""Fixtures for the whole suite: one BLAS thread, and the reference data kept beside the checkout."""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

from pathlib import Path

import pytest

REFERENCE_DATA = Path(os.environ.get("FCPOWER_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with real parcellations, recordings and reference numbers; skips where a clone has none."""
    if not (REFERENCE_DATA / "golden").is_dir():
        pytest.skip(f"the reference data folder {REFERENCE_DATA} is not there (set FCPOWER_SHARED to point to one)")
    return REFERENCE_DATA
