"""Embedding recordings: batches, reads, parcels by name, and inputs that must be refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from bids.layout.models import Config

from fcpower_bids.encoders import embed_recording, load_encoder
from fcpower_bids.errors import RecordingError
from tests.encoders.conftest import NAMES


@pytest.fixture
def encoder(checkpoint):
    return load_encoder("fbert", checkpoint)


@pytest.mark.parametrize("read", ["sequence", "windows"])
def test_one_by_one_equals_batched(encoder, recordings, read):
    before = [one.copy() for one in recordings]
    together = encoder.embed(recordings, NAMES, 2.0, read)
    assert all(np.array_equal(one, old) for one, old in zip(recordings, before, strict=True)), "input is left alone"
    apart = np.concatenate([encoder.embed([one], NAMES, 2.0, read) for one in recordings])
    assert together.shape == (4, 16)
    np.testing.assert_allclose(together, apart, rtol=0, atol=2e-6)


def test_sequence_is_the_forward_of_the_z_scored_recording(encoder, recordings):
    x = recordings[0]
    z = (x - x.mean(0)) / x.std(0, ddof=1)
    with torch.no_grad():
        expected = encoder.model(torch.from_numpy(z[None].astype(np.float32))).numpy()
    np.testing.assert_allclose(encoder.embed([x], NAMES, 2.0), expected, rtol=0, atol=2e-6)


def test_windows_are_consecutive_where_the_length_allows(encoder, recordings):
    """The paper's 144 seconds each: 72, 36 or 48 volumes; what is left at the end is no window."""
    x = np.random.default_rng(3).standard_normal((150, 12))
    z = ((x - x.mean(0)) / x.std(0, ddof=1)).astype(np.float32)
    for seconds, length in ((2.0, 72), (4.0, 36), (3.0, 48), (np.nan, 30)):
        windows = z[: 150 // length * length].reshape(-1, length, 12)
        with torch.no_grad():
            expected = encoder.model(torch.from_numpy(windows)).mean(0).numpy()
        np.testing.assert_allclose(encoder.embed([x], NAMES, seconds, "windows")[0], expected, rtol=0, atol=2e-6)


def test_parcels_are_matched_by_name(encoder, recordings):
    expected = encoder.embed(recordings[:1], NAMES, 2.0)
    order = np.random.default_rng(2).permutation(12)
    extra = np.full((40, 1), np.nan)
    shuffled = np.hstack([extra, recordings[0][:, order]])
    names = ["unknown", *(NAMES[i] for i in order)]
    np.testing.assert_array_equal(encoder.embed([shuffled], names, 2.0), expected)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(encoder.embed([recordings[0][:, order]], NAMES, 2.0), expected, atol=1e-6)


def test_missing_parcels_are_refused(encoder, recordings):
    names, series = NAMES[:-2], recordings[0][:, :-2]
    with pytest.raises(RecordingError, match=r"2 parcels \(P10, P11\) of the 12 parcels.*toy"):
        encoder.embed([series], names, 2.0)
    assert encoder.provenance()["missing_parcels"] == "refused"
    with pytest.raises(RecordingError, match="12 parcels"):
        encoder.embed([series], [f"other{i}" for i in range(10)], 2.0)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x: x.__setitem__((slice(None), 7), 3.0), r"P7.*without data or constant"),
        (lambda x: x.__setitem__((slice(None), 7), np.nan), r"P7.*without data or constant"),
        (lambda x: x.__setitem__((slice(None), 7), [3.0] * 39 + [np.nextafter(3.0, 4)]), r"P7\).*constant to rounding"),
        (lambda x: x.__setitem__((5, 2), np.inf), r"P2.*partly missing or infinite"),
    ],
)
def test_bad_parcels_are_named(encoder, recordings, spoil, message):
    spoil(recordings[0])
    with pytest.raises(RecordingError, match=message):
        encoder.embed(recordings, NAMES, 2.0)


@pytest.mark.parametrize("read", ["sequence", "windows"])
@pytest.mark.parametrize("length", [2, 19])
def test_shorter_than_the_training_window_is_embedded_with_a_caution(encoder, recordings, read, length, caplog):
    x = recordings[0][:length]
    z = ((x - x.mean(0)) / x.std(0, ddof=1)).astype(np.float32)
    with torch.no_grad():
        expected = encoder.model(torch.from_numpy(z[None])).numpy()
    np.testing.assert_allclose(encoder.embed([x], NAMES, 2.0, read), expected, rtol=0, atol=2e-6)
    assert f"{length} volumes are fewer than the 20 of the windows" in caplog.text
    _, facts = embed_recording(encoder, x, tuple(NAMES), 2.0, read, ("bids", "sub-01"))
    assert f"{length} volumes are fewer" in facts["Caution"]
    assert "Caution" not in embed_recording(encoder, recordings[0], tuple(NAMES), 2.0, read, ("bids", "sub-01"))[1]
    with pytest.raises(RecordingError, match="has 1 volumes"):
        encoder.embed([x[:1]], NAMES, 2.0, read)


def test_repetition_time_outside_the_training_range_warns(encoder, recordings, caplog):
    encoder.embed(recordings, NAMES, [0.7, 2.0, 3.0, 2.5])
    assert not caplog.records
    encoder.embed(recordings, NAMES, [0.5, 2.0, 3.0, 2.5])
    assert "0.5 s is outside 0.7-3 s" in caplog.text


def test_no_key_of_the_provenance_is_an_entity_of_file_names(encoder):
    entities = {name for kind in ("bids", "derivatives") for name in Config.load(kind).entities}
    assert "atlas" in entities
    assert not entities & set(encoder.provenance()), "pybids refuses a layout in which name and sidecar disagree"
