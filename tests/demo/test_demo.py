"""The demo: its truth is found again by others, and what a recording holds is what was designed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.errors import UsageError
from tests.running import contents


def test_same_seed_same_bytes_in_another_process_with_another_blas_kernel(tmp_path):
    make_dataset(tmp_path / "tiny", DemoDesign.tiny())
    oldest = {**os.environ, "OPENBLAS_CORETYPE": "Prescott"}  # runs on every x86-64, and is ignored elsewhere
    command = [sys.executable, "-m", "fcpower_bids.demo", str(tmp_path / "again")]
    options = ["--subjects", "2", "--volumes", "80", "--no-troubles"]
    done = subprocess.run([*command, *options], check=True, capture_output=True, text=True, env=oldest)
    assert contents(tmp_path / "again") == contents(tmp_path / "tiny")
    assert done.stdout.count("\n") == 1
    assert "participant --atlas builtin" in done.stdout


def test_a_folder_with_content_is_left_alone(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(UsageError, match="not an empty folder"):
        make_dataset(tmp_path, DemoDesign.tiny())
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]
