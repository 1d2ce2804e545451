"""One thread, and a small F-BERT with parcels named P0, P1, ..."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fcpower_bids.encoders.checkpoints import ModelCard, save_checkpoint
from fcpower_bids.encoders.fbert import FBert, FBertConfig

NAMES = tuple(f"P{i}" for i in range(12))


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def config() -> FBertConfig:
    return FBertConfig(n_parcels=12, d=16, layers=2, heads=4, ff=24)


@pytest.fixture
def checkpoint(tmp_path: Path, config: FBertConfig) -> Path:
    card = ModelCard(NAMES, atlas="toy", tr_range=(0.7, 3.0), window=20, read_window=30, licence="CC0-1.0")
    save_checkpoint(tmp_path / "checkpoint", FBert(config, seed=3), config, card)
    return tmp_path / "checkpoint"


@pytest.fixture
def recordings() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((length, 12)) * 3 + 100 for length in (40, 25, 40, 60)]
