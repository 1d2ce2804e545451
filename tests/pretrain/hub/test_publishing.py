"""A model outside of this program: loaded without it, described in the words of the hub."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import huggingface_hub
import numpy as np
import torch

from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.checkpoints import ModelCard, save_checkpoint
from fcpower_bids.encoders.fbert import FBert, FBertConfig
from tests.encoders.conftest import NAMES

ALONE = """
import sys
class Missing:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in ("fcpower_bids", "lightning", "pandas"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
sys.path.insert(0, sys.argv[1])
import json, torch
from modeling_fbert import FBert
said = json.load(sys.stdin)
for folder in sys.argv[1:]:
    model = FBert.from_pretrained(folder)
    probe, embedded = model(torch.tensor(said["probe"]))[0], model.embed(said["series"], said["names"])
    print(json.dumps([probe.tolist(), embedded.tolist()]))
assert "fcpower_bids" not in sys.modules
"""


SHAPES = (
    {},
    {"norm_first": True, "final_norm": True, "activation": "relu", "pe": "sinusoidal_halves", "norm_eps": 1e-3},
    {"cls_position": False, "pe": "none"},
)


def test_models_embed_without_this_program(tmp_path, recordings):
    """The file beside the weights, in a process that cannot import fcpower_bids, against it."""
    folders = [tmp_path / f"model{number}" for number in range(len(SHAPES))]
    for folder, changes in zip(folders, SHAPES, strict=True):
        config = FBertConfig(n_parcels=12, d=16, layers=2, heads=4, ff=24, **changes)
        save_checkpoint(folder, FBert(config, seed=3), config, ModelCard(NAMES, window=20))
    shuffled = list(reversed([*NAMES, "Other"]))
    series = np.column_stack([recordings[0], recordings[0][:, 0]])[:, ::-1]
    probed = torch.randn(1, 40, 12, generator=torch.Generator().manual_seed(0))
    said = {"probe": probed.tolist(), "series": series.tolist(), "names": shuffled}
    command = [sys.executable, "-c", ALONE, *map(str, folders)]
    done = subprocess.run(command, input=json.dumps(said), capture_output=True, text=True, check=True, cwd=tmp_path)
    for folder, line in zip(folders, done.stdout.splitlines(), strict=True):
        probe, embedded = json.loads(line)
        encoder = load_encoder("fbert", folder)
        np.testing.assert_allclose(probe, encoder.model(probed)[0].detach(), rtol=0, atol=2e-5)
        expected = encoder.embed(recordings[:1], NAMES, 2.0)[0]
        np.testing.assert_allclose(embedded, expected, rtol=0, atol=2e-5)


def test_the_file_alone_fetches_a_model_from_the_hub(tmp_path, checkpoint, recordings, monkeypatch):
    asked = []

    def download(*name, **options):
        asked.append((name, options))
        return str(checkpoint)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("alone", checkpoint / "modeling_fbert.py")
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    loaded = alone.FBert.from_pretrained("owner/name", revision="v1")
    assert asked == [(("owner/name",), {"revision": "v1", "allow_patterns": ["config.json", "model.safetensors"]})]
    expected = load_encoder("fbert", checkpoint).embed(recordings[:1], NAMES, 2.0)[0]
    np.testing.assert_allclose(loaded.embed(recordings[0], NAMES), expected, rtol=0, atol=2e-5)


def test_the_card_is_a_table_whatever_is_written_into_it(tmp_path, config):
    card = ModelCard(NAMES, licence="CC BY-NC 4.0", purpose="a | b\n| c | d |")
    save_checkpoint(tmp_path / "model", FBert(config), config, card, {"n_train": 3})
    text = (tmp_path / "model" / "README.md").read_text()
    assert "| licence | CC BY-NC 4.0 |" in text
    assert "| purpose | a \\| b \\| c \\| d \\| |" in text
    assert "| n_train | 3 |" in text
