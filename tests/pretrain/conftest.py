"""One thread, and a small corpus of people with their own covariance."""

from __future__ import annotations

import itertools
import os
import socket
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from fcpower_bids.pretrain.packing import pack_corpus

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # losses and weights are compared to the last bits: no GPU takes part
NAMES = [f"P{i}" for i in range(10)]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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


@pytest.fixture
def recordings():
    return made_recordings()


@pytest.fixture
def pack(tmp_path: Path, recordings) -> Path:
    pack_corpus(as_sources(recordings), tmp_path / "pack", atlas="toy")
    return tmp_path / "pack"
