"""What every encoder keeps to, the new ones too; the weights of others have tests of their own in `published`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from fcpower_bids.encoders import ENCODERS, PUBLISHED, load_encoder
from fcpower_bids.encoders.checkpoints import ModelCard, save_checkpoint
from fcpower_bids.encoders.fbert import SIZES, FBert, FBertConfig
from fcpower_bids.errors import FcPowerError
from tests.encoders.conftest import NAMES

TR = 2.0
READS = ("sequence", "windows")


@pytest.fixture(scope="module", params=[name for name in ENCODERS if name not in PUBLISHED])
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def encoder(name, tmp_path_factory) -> Any:
    """Ready to embed; a released model is replaced by random weights of its size."""
    weights = None
    if name.startswith("fbert"):
        size = SIZES.get(name, {"d": 16, "layers": 2, "heads": 4, "ff": 24})
        config = FBertConfig(n_parcels=len(NAMES), **size) if isinstance(size, dict) else size
        card = ModelCard(NAMES, tr_range=(0.7, 3.0), window=20, read_window=30)
        weights = tmp_path_factory.mktemp(name) / "checkpoint"
        save_checkpoint(weights, FBert(config, seed=3), config, card)
    return load_encoder(name, weights, parcel_names=NAMES)


@pytest.fixture
def recordings() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((length, len(NAMES))) * 3 + 100 for length in (100, 110, 100)]


@pytest.mark.parametrize("read", READS)
def test_one_finite_vector_per_recording(encoder, recordings, read):
    vectors = encoder.embed(recordings, NAMES, TR, read)
    assert vectors.ndim == 2
    assert len(vectors) == len(recordings)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    assert (vectors.std(axis=0) > 0).any(), "recordings differ"


def test_the_same_twice_and_input_is_left_alone(encoder, recordings):
    before = [one.copy() for one in recordings]
    np.testing.assert_array_equal(encoder.embed(recordings, NAMES, TR), encoder.embed(recordings, NAMES, TR))
    for one, old in zip(recordings, before, strict=True):
        np.testing.assert_array_equal(one, old)


def test_company_does_not_matter(encoder, recordings):
    alone = np.concatenate([encoder.embed([one], NAMES, TR) for one in recordings])
    np.testing.assert_allclose(encoder.embed(recordings, NAMES, TR), alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fault", ["a parcel without signal", "too short", "too few parcels"])
def test_what_cannot_be_embedded_is_refused_in_a_sentence(encoder, recordings, fault):
    one = recordings[0].copy()
    if fault == "a parcel without signal":
        one[:, 2] = np.nan
    one = one[:2] if fault == "too short" else one[:, :3] if fault == "too few parcels" else one
    with pytest.raises((FcPowerError, ValueError)) as caught:
        encoder.embed([one], NAMES, TR)
    assert len(str(caught.value).split()) > 4


@pytest.mark.parametrize("read", READS)
def test_provenance_goes_into_a_sidecar(encoder, read):
    facts = encoder.provenance(read)
    assert facts["name"]
    assert "licence" in facts
    json.dumps(facts, allow_nan=False)


def test_names_give_labels_that_differ():
    labels = ["".join(letter for letter in name if letter.isalnum()) for name in ENCODERS]
    assert len(set(labels)) == len(labels)
