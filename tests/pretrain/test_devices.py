"""What an accelerator changes, as far as a CPU can tell: where windows lie, arithmetic, state."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from fcpower_bids.encoders.fbert import POSITIONS, FBert, FBertConfig, position_code
from fcpower_bids.pretrain import corpus as corpora
from fcpower_bids.pretrain import packing
from fcpower_bids.pretrain.engine import best_precision
from tests.pretrain.conftest import made_recordings
from tests.pretrain.outputs import PACKED, plant_outputs, read_log, run_pretrain, write_public


def weights(folder) -> dict[str, torch.Tensor]:
    return load_file(folder / "encoder" / "model" / "model.safetensors")


def count(monkeypatch, owner, name: str) -> list[object]:
    """Calls of a function from now on."""
    calls: list[object] = []
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *a, **k: calls.append(a) or original(*a, **k))
    return calls


def test_a_pack_that_does_not_fit_is_streamed_with_the_same_numbers(tmp_path, monkeypatch):
    """Several shards, a budget that holds everything, and one that holds nothing."""
    monkeypatch.setattr(packing, "SHARD_RECORDINGS", 5)
    plant_outputs(tmp_path, made_recordings())
    assert run_pretrain(tmp_path, quick=PACKED) == 0
    held = count(monkeypatch, corpora, "read_tensor")
    for name, room in (("resident", 10**8), ("streamed", 0)):
        held.clear()
        monkeypatch.setattr(corpora, "_room", lambda device, room=room: room)
        assert run_pretrain(tmp_path, "--corpus", tmp_path / "out" / "corpus", out=name) == 0
        assert ("series" in [kind for _, kind in held]) is (room > 0)
    pd.testing.assert_frame_equal(
        read_log(tmp_path / "streamed" / "encoder"), read_log(tmp_path / "resident" / "encoder")
    )
    first, second = weights(tmp_path / "streamed"), weights(tmp_path / "resident")
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="tells what is mapped on Linux only")
@pytest.mark.parametrize(("layout", "file"), [("corpus", "series-00000.safetensors"), ("public", "windows.npy")])
def test_nothing_of_a_streamed_corpus_stays_in_memory(tmp_path, layout, file):
    """Neither a tensor of its windows nor a mapping of their files, which would grow with what was drawn."""
    plant_outputs(tmp_path, made_recordings())
    assert run_pretrain(tmp_path, quick=PACKED) == 0
    write_public(tmp_path / "out" / "corpus", tmp_path / "out" / "public")
    folder = tmp_path / "out" / layout
    corpora.prepare_corpus(folder, tmp_path / "run")
    corpus = corpora.open_corpus(folder, tmp_path / "run", [f"P{i}" for i in range(10)])
    rows = np.arange(len(corpus.table))
    assert corpus.windows(rows, np.zeros(len(rows), int), 20).shape == (32, 20, 10)
    assert str(folder / file) not in Path("/proc/self/maps").read_text()
    mapped = np.memmap(folder / file, mode="r")
    assert str(folder / file) in Path("/proc/self/maps").read_text(), f"{len(mapped)} bytes are mapped now"


def test_arithmetic_follows_the_accelerator(monkeypatch):
    for has_gpu, has_bf16, expected in ((False, True, "32-true"), (True, False, "32-true"), (True, True, "bf16-mixed")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda has=has_gpu: has)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda has=has_bf16: has)
        assert best_precision() == expected


def test_positions_move_with_the_model_and_are_in_no_checkpoint():
    torch.manual_seed(0)
    model = FBert(FBertConfig(10, d=8, layers=1, heads=2, ff=8)).eval()
    assert "positions" not in model.state_dict()
    assert model.get_buffer("positions").shape == (POSITIONS, 8)
    long = torch.randn(1, 2 * POSITIONS, 10)
    with torch.inference_mode():
        tokens = model.tokens(long)
        bare = torch.cat((model.cls_token.expand(1, 1, -1), model.input_projection(long)), dim=1)
    code = position_code(2 * POSITIONS + 1, 8).numpy()
    np.testing.assert_allclose((tokens - bare)[0].numpy(), code, rtol=0, atol=2e-6)
    exact = model.double().tokens(long[:, :50].double()) - torch.cat(
        (model.cls_token.expand(1, 1, -1), model.input_projection(long[:, :50].double())), dim=1
    )
    np.testing.assert_allclose(exact[0].detach().numpy(), code[:51], rtol=0, atol=1e-14)
