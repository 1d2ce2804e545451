"""Checkpoints: both key families, strictness, damage, atomic writing."""

from __future__ import annotations

import json
import shutil

import huggingface_hub
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.checkpoints import (
    CheckpointError,
    ModelCard,
    read_config,
    save_checkpoint,
)
from fcpower_bids.encoders.embedding import rename_keys
from fcpower_bids.encoders.fbert import FBert
from fcpower_bids.store import digest_of
from tests.encoders.conftest import NAMES


def as_hf_bert(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same weights under the names of a Hugging Face BertModel."""
    names = {
        "self_attn.out_proj": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "linear1": "intermediate.dense",
        "linear2": "output.dense",
        "norm2": "output.LayerNorm",
    }
    out: dict[str, torch.Tensor] = {}
    for key, value in state.items():
        if "in_proj" in key:
            head, kind = key.split("self_attn.in_proj_")
            for part, tensor in zip(("query", "key", "value"), value.chunk(3), strict=True):
                out[f"bert.{head.replace('layers', 'layer')}attention.self.{part}.{kind}"] = tensor.contiguous()
        elif key.startswith("encoder.layers"):
            for ours, theirs in names.items():
                key = key.replace(f".{ours}.", f".{theirs}.")
            out["bert." + key.replace("layers", "layer")] = value
        else:
            out[key] = value
    return out


def as_torch_encoder(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same weights as a training script around ``nn.TransformerEncoder`` saves them."""
    out = {}
    for key, value in state.items():
        key = key.replace("input_projection", "input_proj").replace("encoder.layers", "transformer.layers")
        out[f"module.{key}"] = value.reshape(1, 1, -1) if key == "cls_token" else value
    return out


@pytest.mark.parametrize("family", [as_hf_bert, as_torch_encoder])
def test_either_key_family_loads(checkpoint, recordings, family):
    expected = load_encoder("fbert", checkpoint).embed(recordings, NAMES, 2.0)
    path = checkpoint / "model.safetensors"
    foreign = family(load_file(path))
    assert not foreign.keys() & (
        load_file(path).keys() - {"cls_token", "input_projection.weight", "input_projection.bias"}
    )
    save_file(foreign, path)
    torch.testing.assert_close(
        load_encoder("fbert", checkpoint).embed(recordings, NAMES, 2.0), expected, rtol=0, atol=0
    )


def test_hf_configuration_names_are_understood(checkpoint):
    path = checkpoint / "config.json"
    raw = json.loads(path.read_text())
    del raw["proof"]  # which is of the names that it was written with
    renamed = {
        "d": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "ff": "intermediate_size",
    }
    path.write_text(json.dumps({renamed.get(key, key): value for key, value in raw.items()} | {"vocab_size": 3}))
    config, card = read_config(checkpoint)
    assert (config.d, config.layers, config.heads, config.ff) == (16, 2, 4, 24)
    assert card.roi_labels == NAMES
    assert card.tr_range == (0.7, 3.0)


def test_round_trip_and_digest(checkpoint, config):
    saved = load_file(checkpoint / "model.safetensors")
    for key, value in FBert(config, seed=3).state_dict().items():
        assert torch.equal(saved[key], value)
    sha = load_encoder("fbert", checkpoint).provenance()["sha256"]
    assert sha == digest_of(checkpoint / "model.safetensors")
    assert len(sha) == 64


def test_missing_and_unexpected_keys_are_all_named(checkpoint):
    path = checkpoint / "model.safetensors"
    state = load_file(path)
    state["encoder.layers.1.linear1.extra"] = state.pop("encoder.layers.1.linear1.weight")
    state["pooler.dense.weight"] = torch.zeros(2)
    state["encoder.layers.0.norm1.bias"] = torch.zeros(5)
    state["encoder.layers.0.norm2.bias"] = torch.full((16,), float("nan"))
    save_file(state, path)
    with pytest.raises(CheckpointError) as caught:
        load_encoder("fbert", checkpoint)
    message = str(caught.value)
    assert "missing: encoder.layers.1.linear1.weight" in message
    assert "unexpected: encoder.layers.1.linear1.extra, pooler.dense.weight" in message
    assert "of another shape: encoder.layers.0.norm1.bias" in message
    assert "not finite: encoder.layers.0.norm2.bias" in message


def test_incomplete_query_key_value_is_missing_not_guessed(checkpoint):
    state = as_hf_bert(load_file(checkpoint / "model.safetensors"))
    del state["bert.encoder.layer.0.attention.self.key.weight"]
    assert "encoder.layers.0.self_attn.in_proj_weight" not in rename_keys(state)


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"\xff" * 64 + b[64:]])
def test_damaged_weights_are_named(checkpoint, damage):
    path = checkpoint / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged.*again"):
        load_encoder("fbert", checkpoint)


def test_missing_files_and_wrong_places(checkpoint, tmp_path):
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="does not exist"):
        load_encoder("fbert", checkpoint)
    with pytest.raises(CheckpointError, match="no checkpoint folder"):
        load_encoder("fbert", tmp_path / "nowhere" / "at" / "all")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"config\.json does not exist"):
        load_encoder("fbert", tmp_path / "empty")


def test_hub_id_and_revision_are_passed_on(monkeypatch, checkpoint, recordings):
    asked = {}

    def download(repository, repo_type, revision=None, allow_patterns=None):
        asked.update(repository=repository, revision=revision, patterns=allow_patterns)
        return str(checkpoint)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    encoder = load_encoder("fbert", "owner/name", revision="v1")
    assert asked == {
        "repository": "owner/name",
        "revision": "v1",
        "patterns": ["config.json", "model.safetensors", "README.md"],
    }
    assert encoder.provenance()["revision"] == "v1"
    commit = checkpoint.parent / "models--owner--name" / "snapshots" / ("0123456789" * 4)
    shutil.copytree(checkpoint, commit)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(commit))
    assert load_encoder("fbert", "owner/name", revision="main").provenance()["revision"] == commit.name


@pytest.mark.parametrize("field", ["heads", "activation", "norm_first", "roi_labels"])
def test_unstated_choices_are_never_guessed(checkpoint, field):
    path = checkpoint / "config.json"
    raw = json.loads(path.read_text())
    del raw[field]
    path.write_text(json.dumps(raw))
    with pytest.raises(CheckpointError, match=f"does not state {field}"):
        load_encoder("fbert", checkpoint)


def test_a_file_states_what_the_configuration_does_not(checkpoint, tmp_path, recordings):
    """As little as the card of a released model states, under its names."""
    expected = load_encoder("fbert", checkpoint).embed(recordings, NAMES, 2.0)
    raw = json.loads((checkpoint / "config.json").read_text())
    stated = {"n_regions": 12, "hidden_size": 16, "layers": 2, "heads": 4, "ff": 24}
    (checkpoint / "config.json").write_text(json.dumps(stated))
    with pytest.raises(CheckpointError, match=r"does not state activation.*roi_labels.*encoder_aux"):
        load_encoder("fbert", checkpoint)
    fields = ("activation", "norm_first", "final_norm", "norm_eps", "pe", "cls_position", "dropout", "roi_labels")
    file = tmp_path / "rest.json"
    file.write_text(json.dumps({field: raw[field] for field in fields} | {"window": 20}))
    encoder = load_encoder("fbert", checkpoint, aux=(str(file),))
    np.testing.assert_array_equal(encoder.embed(recordings, NAMES, 2.0), expected)
    assert encoder.provenance()["config_sha256"] == [digest_of(file)]
    file.write_text(json.dumps({"num_attention_heads": 2}))
    with pytest.raises(CheckpointError, match="state heads differently; leave out what the model states itself"):
        load_encoder("fbert", checkpoint, aux=(file,))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"roi_labels": ["A"] * 12}, "list each parcel once"),
        ({"roi_labels": ["A", "B"]}, "list each parcel once"),
        ({"activation": "tanh"}, "impossible model"),
        ({"d": 15}, "impossible model"),
    ],
)
def test_impossible_configurations_name_the_file(checkpoint, change, message):
    path = checkpoint / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=message):
        load_encoder("fbert", checkpoint)


@pytest.mark.parametrize("text", ["{", "[1, 2]", "\x00"])
def test_configuration_that_is_not_a_json_object(checkpoint, text):
    (checkpoint / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match="is not a JSON object"):
        load_encoder("fbert", checkpoint)


def test_a_full_disk_leaves_the_old_checkpoint(checkpoint, config, monkeypatch):
    import safetensors.torch

    before = {file.name: file.read_bytes() for file in checkpoint.iterdir()}

    def full(tensors, path):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(checkpoint, FBert(config, seed=9), config, ModelCard(NAMES))
    assert {file.name: file.read_bytes() for file in checkpoint.iterdir()} == before
    assert [folder.name for folder in checkpoint.parent.iterdir()] == ["checkpoint"]


def test_replacing_a_checkpoint_leaves_no_trace(checkpoint, config):
    save_checkpoint(checkpoint, FBert(config, seed=9), config, ModelCard(NAMES))
    assert [folder.name for folder in checkpoint.parent.iterdir()] == ["checkpoint"]
    assert torch.equal(load_file(checkpoint / "model.safetensors")["cls_token"], FBert(config, seed=9).cls_token)
