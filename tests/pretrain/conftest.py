"""One thread, and a small corpus of people with their own covariance."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from fcpower_bids.pretrain import judgement
from tests.encoders.conftest import one_thread
from tests.pretrain.outputs import PACKED, plant_outputs, run_pretrain, write_public

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # losses and weights are compared to the last bits: no GPU takes part
NAMES = [f"P{i}" for i in range(10)]
__all__ = ["one_thread"]


@pytest.fixture(autouse=True, scope="module")
def short_judgement(request):
    """Two models of random weights and two windows a recording, but where the verdict is what is looked at."""
    with pytest.MonkeyPatch.context() as patch:
        if not hasattr(request.module, "JUDGED"):
            patch.setattr(judgement, "RANDOM_SEEDS", (1000, 1001))
            patch.setattr(judgement, "VIEWS", 2)
        yield


@pytest.fixture(scope="module")
def meeting_place():
    """A port for processes that meet, which no other connection is given by chance while they start."""
    with pytest.MonkeyPatch.context() as patch:
        for port in itertools.count(20_000 + os.getpid() % 10_000):
            with socket.socket() as tried, suppress(OSError):
                tried.bind(("127.0.0.1", port))
                break
        patch.setenv("MASTER_PORT", str(port))
        yield


def made_recordings(people: int = 16, sessions: int = 2, seed: int = 0) -> list[tuple[dict, np.ndarray]]:
    rng = np.random.default_rng(seed)
    out = []
    for person in range(people):
        mixing = rng.standard_normal((10, 10)) + 2 * np.eye(10)
        for session in range(sessions):
            length = 50 + 7 * (person % 3) + session
            facts = {
                "id": f"toy/sub-{person:02d}_ses-{session}",
                "dataset": "toy",
                "subject": f"{person:02d}",
                "session": str(session),
                "repetition_time": 2.0 + 0.5 * (person % 2),
                "parcel_names": NAMES,
                "licence": "CC0-1.0",
            }
            out.append((facts, rng.standard_normal((length, 10)) @ mixing))
    return out


def as_sources(recordings):
    return [(facts, lambda series=series: series) for facts, series in recordings]


@pytest.fixture(scope="session")
def written_once(tmp_path_factory):
    """Outputs of the participant level, their tables, and their corpus in both layouts."""
    folder = tmp_path_factory.mktemp("written")
    tables = plant_outputs(folder, made_recordings())
    run_pretrain(folder, quick=PACKED)
    write_public(folder / "out" / "corpus", folder / "public")
    return folder, tables


@pytest.fixture
def written(tmp_path, written_once) -> Path:
    """A copy of them, to be changed."""
    return shutil.copytree(written_once[0], tmp_path, dirs_exist_ok=True)


@pytest.fixture
def tables(written, written_once) -> dict[str, Path]:
    """Tables of series of that copy by the name of their recording."""
    folder, tables = written_once
    return {name: written / path.relative_to(folder) for name, path in tables.items()}


@pytest.fixture
def unpacked(tables, tmp_path) -> dict[str, Path]:
    """The same before anything is packed."""
    for corpus in (tmp_path / "out" / "corpus", tmp_path / "public"):
        shutil.rmtree(corpus)
    return tables
