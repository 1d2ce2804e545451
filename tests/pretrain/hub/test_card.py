"""The card of a model says what its corpus was, as the files of its recordings say it, and where a corpus came from."""

from __future__ import annotations

import json

import huggingface_hub
import pytest
from huggingface_hub import errors

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
        facts = {"NuisanceStrategy": "36P" if number < 3 else "24P", "SoftwareFilters": {"Butterworth": band}}
        sidecar.write_text(json.dumps({**json.loads(sidecar.read_text()), **facts}))
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
    assert facts["corpus_space"] == "MNI (32 recordings)"
    assert facts["corpus_cleaning"] == "24P, 0.01 to 0.08 Hz (29 recordings), 36P, 0.01 to 0.1 Hz (3 recordings)"
    assert facts["corpus_citation"] == "10.5281-zenodo.12: Cite Author | 2026"
    card = (tmp_path / "out" / "encoder" / "model" / "README.md").read_text()
    assert "| corpus_citation | 10.5281-zenodo.12: Cite Author \\| 2026 |" in card
    assert f"| corpus_cleaning | {facts['corpus_cleaning']} |" in card


def test_a_pack_learns_what_sidecars_say_later_and_stays_the_same_corpus(tmp_path, tables):
    sidecars = {path.with_suffix(".json"): path.with_suffix(".json").read_text() for path in tables}
    for path, text in sidecars.items():
        time = json.loads(text)["RepetitionTime"]
        path.write_text(json.dumps({"RepetitionTime": time, "SoftwareFilters": "none"}))
    assert run_pretrain(tmp_path, *SHORT) == 0
    before = config(tmp_path)
    assert before["corpus_cleaning"] == before["corpus_licences"] == "n/a (32 recordings)"
    assert (before["band"], before["corpus_citation"]) == (None, "bids: bids")
    for path, text in sidecars.items():
        path.write_text(text.replace("36P", "24P").replace("0.1}", "0.08}"))
    assert run_pretrain(tmp_path, *SHORT, "--corpus", tmp_path / "out" / "corpus", out="out") == 0
    after = config(tmp_path)
    assert (after["band"], after["corpus_cleaning"]) == ([0.01, 0.08], "24P, 0.01 to 0.08 Hz (32 recordings)")
    assert after["corpus_sha256"] == before["corpus_sha256"]


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (OSError("no network"), f"The hub could not be reached for {CORPUS_ID} (OSError); download it on a connected"),
        (errors.RepositoryNotFoundError.__new__(errors.RepositoryNotFoundError), f"There is no dataset {CORPUS_ID} on"),
    ],
    ids=["no network", "no corpus"],
)
def test_a_hub_out_of_reach_and_a_corpus_that_is_not_there_differ(
    tmp_path, tables, monkeypatch, capsys, problem, sentence
):
    def fail(*args, **kwargs):
        raise problem

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    assert run_pretrain(tmp_path, "--corpus", CORPUS_ID) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_a_corpus_from_the_hub_is_recorded_by_its_commit(tmp_path, tables, monkeypatch):
    cached = tmp_path / "datasets--owner--name" / "snapshots" / "0123abcd"
    assert run_pretrain(tmp_path, quick=PACKED) == 0
    write_public(tmp_path / "out" / "corpus", cached)
    asked = {}
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **how: asked.update(how) or str(cached))
    named = ("--corpus", CORPUS_ID, "--roi-labels", cached / "parcels.txt")
    assert run_pretrain(tmp_path, *SHORT, *named, out="new") == 0
    assert asked["repo_type"] == "dataset"
    assert "windows.npy" in asked["allow_patterns"]
    assert config(tmp_path, "new")["corpus_revision"] == "0123abcd"
    assert run_pretrain(tmp_path, *SHORT) == 0
    assert config(tmp_path)["corpus_revision"] == "n/a"
