"""The closed-form student as an encoder: its equation, its file alone, and what is refused."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.checkpoints import CheckpointError, ModelCard, plain_model, save_checkpoint
from fcpower_bids.encoders.closed_form import ClosedForm
from tests.encoders.conftest import NAMES

EDGES, LENGTH = 66, 5


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return 0.1 * rng.standard_normal(EDGES), rng.standard_normal((EDGES, LENGTH))


@pytest.fixture
def student(tmp_path, arrays):
    model = ClosedForm.of(*arrays, len(NAMES), 0.35)
    save_checkpoint(tmp_path / "student", model, model.config, ModelCard(NAMES, window=20, read_window=30))
    return tmp_path / "student"


def edges_of(series):
    values, vectors = np.linalg.eigh(np.corrcoef(series.T))
    edges = ((vectors * values.clip(0) ** 0.35) @ vectors.T)[np.triu_indices(series.shape[1], 1)]
    return (edges - edges.mean()) / np.linalg.norm(edges - edges.mean())


def test_an_embedding_is_the_edges_less_their_mean_times_the_weights(student, arrays, recordings):
    encoder, (mean, weights) = load_encoder("closed-form", student), arrays
    expected = [(edges_of(one) - mean) @ weights for one in recordings]
    np.testing.assert_allclose(encoder.embed(recordings, NAMES, 2.0), expected, atol=1e-5)
    assert encoder.provenance()["n_dimensions"] == LENGTH


def test_the_file_that_goes_with_it_computes_the_same(student, recordings):
    place = student / "modeling_closed_form.py"
    assert place.read_bytes() == plain_model(load_encoder("closed-form", student).model.config).read_bytes()
    spec = importlib.util.spec_from_file_location("alone", place)
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    mixed = [3, 1, 0, 2, *range(4, 12)]
    embedded = alone.ClosedForm.from_pretrained(student).embed(recordings[0][:, mixed], [NAMES[i] for i in mixed])
    np.testing.assert_allclose(
        embedded, load_encoder("closed-form", student).embed(recordings[:1], NAMES, 2.0)[0], atol=1e-5
    )
    text = (student / "README.md").read_text()
    assert "from modeling_closed_form import ClosedForm" in text
    assert "--encoder closed-form" in text


def test_parcels_that_are_missing_have_edges_of_zero(student, arrays, recordings):
    encoder, (mean, weights) = load_encoder("closed-form", student, allow_missing_parcels=True), arrays
    there = np.arange(12) != 4
    values, vectors = np.linalg.eigh(np.corrcoef(recordings[0][:, there].T))
    matrix = np.zeros((12, 12))
    matrix[np.ix_(there, there)] = (vectors * values**0.35) @ vectors.T
    edges = matrix[np.triu_indices(12, 1)]
    edges = (edges - edges.mean()) / np.linalg.norm(edges - edges.mean())
    names = [name for name, kept in zip(NAMES, there, strict=True) if kept]
    embedded = encoder.embed([recordings[0][:, there]], names, 2.0)
    np.testing.assert_allclose(embedded[0], (edges - mean) @ weights, atol=1e-5)


def test_a_model_of_another_kind_is_refused_by_name(student, checkpoint):
    with pytest.raises(CheckpointError, match="use the encoder name 'closed-form'"):
        load_encoder("fbert", student)
    with pytest.raises(CheckpointError, match="use the encoder name 'fbert'"):
        load_encoder("closed-form", checkpoint)
    with pytest.raises(CheckpointError, match="holds no F-BERT"):
        load_encoder("random-init", student)


def test_a_changed_byte_is_named(student):
    path = student / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="the tensors are not those that were written"):
        load_encoder("closed-form", student)
