"""The registry of encoders and its loaders."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from fcpower_bids.encoders import ENCODERS, embedding, load_encoder
from fcpower_bids.encoders.checkpoints import CheckpointError, EncoderUnavailable, ModelCard, save_checkpoint
from fcpower_bids.encoders.fbert import SIZES, FBert, FBertConfig
from fcpower_bids.errors import FcPowerError, UsageError
from tests.encoders.conftest import NAMES


@pytest.mark.parametrize("module", ["fcpower_bids.encoders", "fcpower_bids.encoders.checkpoints"])
def test_names_and_errors_are_known_without_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_give_labels_that_differ():
    labels = ["".join(letter for letter in name if letter.isalnum()) for name in ENCODERS]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("name", ["fbert-1m", "fbert-8m", "fbert"])
def test_without_weights_the_encoder_is_unavailable(name):
    with pytest.raises(EncoderUnavailable, match=f"No weights were given for the encoder {name}") as caught:
        load_encoder(name, None, parcel_names=NAMES)
    assert isinstance(caught.value, FcPowerError)
    assert caught.value.exit_code == 0


def test_a_name_with_a_size_takes_that_size_only(checkpoint, tmp_path):
    with pytest.raises(CheckpointError, match="width 16 with 2 layers and 4 heads, not fbert-1m"):
        load_encoder("fbert-1m", checkpoint)
    config = FBertConfig(12, **SIZES["fbert-1m"])
    save_checkpoint(tmp_path / "right", FBert(config), config, ModelCard(NAMES))
    assert load_encoder("fbert-1m", tmp_path / "right").provenance()["n_dimensions"] == 128
    path = tmp_path / "right" / "config.json"  # downloaded, of a model whose card alone states the size
    stated = {key: value for key, value in json.loads(path.read_text()).items() if key not in ("heads", "ff", "proof")}
    path.write_text(json.dumps(stated))
    assert load_encoder("fbert-1m", tmp_path / "right").model.config == config
    with pytest.raises(CheckpointError, match="does not state heads, ff"):
        load_encoder("fbert", tmp_path / "right")


@pytest.mark.parametrize(("name", "heads"), [("fbert-1m", 4), ("fbert-8m", 8)])
def test_heads_are_those_of_the_released_models(tmp_path, name, heads):
    """The same tensors load under any number of heads and embed otherwise."""
    assert SIZES[name]["heads"] == heads
    config = FBertConfig(12, **{**SIZES[name], "heads": 12 - heads})
    save_checkpoint(tmp_path / "other", FBert(config), config, ModelCard(NAMES))
    with pytest.raises(CheckpointError, match=f"{12 - heads} heads, not {name} .*heads {heads}"):
        load_encoder(name, tmp_path / "other")
    assert load_encoder("fbert", tmp_path / "other").model.config.heads == 12 - heads


def test_released_weights_come_with_their_licence(checkpoint, monkeypatch, caplog):
    monkeypatch.setattr(embedding, "locate", lambda weights, revision: checkpoint)
    encoder = load_encoder("fbert", "Marraffini-Giovanni/fbert-1m")
    assert encoder.provenance()["licence"] == "CC BY-NC 4.0"
    assert "no commercial use" in caplog.text
    caplog.clear()
    load_encoder("fbert", checkpoint)
    assert not caplog.text


def test_parcels_are_compared_at_loading(checkpoint):
    with pytest.raises(CheckpointError, match="P11"):
        load_encoder("fbert", checkpoint, parcel_names=NAMES[:-1])
    load_encoder("fbert", checkpoint, parcel_names=NAMES[::-1])


def test_random_init_is_a_seeded_control(recordings):
    first, again, other = (load_encoder("random-init", None, seed=seed, parcel_names=NAMES) for seed in (1, 1, 2))
    long = [np.random.default_rng(0).standard_normal((90, 12))]
    np.testing.assert_array_equal(first.embed(long, NAMES, 2.0), again.embed(long, NAMES, 2.0))
    assert np.abs(first.embed(long, NAMES, 2.0) - other.embed(long, NAMES, 2.0)).max() > 1e-3
    facts = first.provenance()
    assert facts["seed"] == 1
    assert facts["sha256"] is None
    assert "control" in facts["purpose"]


def test_random_init_takes_the_shape_of_a_checkpoint_but_not_its_weights(checkpoint, recordings):
    control = load_encoder("random-init", checkpoint, seed=0)
    trained = load_encoder("fbert", checkpoint)
    assert control.model.config == trained.model.config
    assert np.abs(control.embed(recordings, NAMES, 2.0) - trained.embed(recordings, NAMES, 2.0)).max() > 1e-3


def test_random_init_needs_parcels():
    with pytest.raises(UsageError, match="names of the parcels"):
        load_encoder("random-init", None)


@pytest.mark.parametrize("name", ["fbert", "brainmass"])
def test_a_choice_that_there_is_not_is_refused(name):
    with pytest.raises(TypeError, match="has no choice 'alow_missing_parcels'"):
        load_encoder(name, None, alow_missing_parcels=True)
