"""A model outside of this program, loaded without it; its card says what its corpus was and where that came from."""

from __future__ import annotations

import json
import subprocess
import sys

import huggingface_hub
import numpy as np
import pytest
import torch

from fcpower_bids.encoders import CORPUS_ID, load_encoder
from fcpower_bids.encoders.checkpoints import ModelCard, save_checkpoint
from fcpower_bids.encoders.fbert import FBert, FBertConfig
from tests.encoders.conftest import NAMES
from tests.pretrain.conftest import made_recordings
from tests.pretrain.outputs import PACKED, plant_outputs, run_pretrain, write_public

SHORT = ("--steps", "1", "--held-out", "0")
ASKED = {"License": "CC0", "DatasetDOI": "doi:10.5281/zenodo.12", "HowToAcknowledge": "Cite\n\tAuthor |  2026"}


@pytest.fixture
def tables(tmp_path):
    """Thirty-two recordings, the first three of them cleaned otherwise."""
    tables = plant_outputs(tmp_path, made_recordings())
    for number, path in enumerate(tables.values()):
        sidecar = path.with_suffix(".json")
        band = {"HighPassHz": 0.01, "LowPassHz": 0.1 if number < 3 else 0.08}
        sidecar.write_text(json.dumps({**json.loads(sidecar.read_text()), "SoftwareFilters": {"Butterworth": band}}))
    return list(tables.values())


def config(folder, out: str = "out") -> dict:
    return json.loads((folder / out / "encoder" / "model" / "config.json").read_text())


def test_the_card_says_how_the_corpus_was_made_and_how_to_cite_it(tmp_path, tables):
    about = tmp_path / "bids" / "dataset_description.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), **ASKED}))
    assert run_pretrain(tmp_path, quick=PACKED) == 0
    assert run_pretrain(tmp_path, *SHORT) == 0
    facts = config(tmp_path)
    assert facts["band"] is None, "it is not one"
    assert facts["corpus_licences"] == "CC0 (32 recordings)"
    assert facts["corpus_citation"] == "10.5281-zenodo.12: Cite Author | 2026"
    card = (tmp_path / "out" / "encoder" / "model" / "README.md").read_text()
    assert "| corpus_citation | 10.5281-zenodo.12: Cite Author \\| 2026 |" in card


def test_a_corpus_from_the_hub_is_recorded_by_its_commit(tmp_path, tables, monkeypatch):
    cached = tmp_path / "datasets--owner--name" / "snapshots" / "0123abcd"
    assert run_pretrain(tmp_path, quick=PACKED) == 0
    write_public(tmp_path / "out" / "corpus", cached)
    asked = {}
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **how: asked.update(how) or str(cached))
    assert run_pretrain(tmp_path, *SHORT, "--corpus", CORPUS_ID, out="new") == 0
    assert asked["repo_type"] == "dataset"
    assert "windows.npy" in asked["allow_patterns"]
    assert config(tmp_path, "new")["corpus_revision"] == "0123abcd"
    assert run_pretrain(tmp_path, *SHORT) == 0
    assert config(tmp_path)["corpus_revision"] == "n/a"


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
