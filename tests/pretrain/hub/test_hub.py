"""The card of a model says what its corpus was and where that came from."""

from __future__ import annotations

import json

import huggingface_hub
import pytest

from fcpower_bids.encoders import CORPUS_ID
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
