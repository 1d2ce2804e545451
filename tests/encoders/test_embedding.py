"""Embedding recordings: batches, reads, parcels by name, and inputs that must be refused."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from bids.layout.models import Config

from fcpower_bids.encoders import embed_recording, load_encoder
from fcpower_bids.encoders.embedding import TOKENS_PER_BATCH
from fcpower_bids.errors import RecordingError, UsageError
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


def test_batches_are_of_equal_length_and_bounded(encoder, recordings, monkeypatch):
    shapes = []
    forward = type(encoder.model).forward
    monkeypatch.setattr(
        type(encoder.model), "forward", lambda self, x: shapes.append(tuple(x.shape)) or forward(self, x)
    )
    long = np.random.default_rng(0).standard_normal((TOKENS_PER_BATCH // 2 + 1, 12))
    encoder.embed([*recordings, long, long], NAMES, 2.0)
    assert sorted(shapes) == sorted([(1, 25, 12), (2, 40, 12), (1, 60, 12), (1, *long.shape), (1, *long.shape)])


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


def test_a_recording_shorter_than_a_read_window_is_one_sequence(encoder, recordings):
    short = [recordings[1]]
    np.testing.assert_array_equal(encoder.embed(short, NAMES, 2.0, "windows"), encoder.embed(short, NAMES, 2.0))


def test_parcels_are_matched_by_name(encoder, recordings):
    expected = encoder.embed(recordings[:1], NAMES, 2.0)
    order = np.random.default_rng(2).permutation(12)
    extra = np.full((40, 1), np.nan)
    shuffled = np.hstack([extra, recordings[0][:, order]])
    names = ["unknown", *(NAMES[i] for i in order)]
    np.testing.assert_array_equal(encoder.embed([shuffled], names, 2.0), expected)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(encoder.embed([recordings[0][:, order]], NAMES, 2.0), expected, atol=1e-6)


def test_missing_parcels_are_refused_or_filled_with_their_mean(checkpoint, encoder, recordings):
    names, series = NAMES[:-2], recordings[0][:, :-2]
    with pytest.raises(RecordingError, match=r"2 parcels \(P10, P11\) of the 12 parcels.*toy"):
        encoder.embed([series], names, 2.0)
    filling = load_encoder("fbert", checkpoint, allow_missing_parcels=True)
    z = np.zeros((1, 40, 12), np.float32)
    z[0, :, :-2] = (series - series.mean(0)) / series.std(0, ddof=1)
    with torch.no_grad():
        expected = filling.model(torch.from_numpy(z)).numpy()
    np.testing.assert_allclose(filling.embed([series], names, 2.0), expected, rtol=0, atol=2e-6)
    uncovered = recordings[0].copy()
    uncovered[:, -2:] = np.nan
    np.testing.assert_allclose(filling.embed([uncovered], NAMES, 2.0), expected, rtol=0, atol=2e-6)
    assert filling.provenance()["missing_parcels"] == "filled with their mean"
    with pytest.raises(RecordingError, match="12 parcels"):
        filling.embed([series], [f"other{i}" for i in range(10)], 2.0)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x: x.__setitem__((slice(None), 4), np.nan), r"P4.*without data or constant"),
        (lambda x: x.__setitem__((slice(None), 7), 3.0), r"P7.*without data or constant"),
        (lambda x: x.__setitem__((slice(None), 7), [3.0] * 39 + [np.nextafter(3.0, 4)]), r"P7\).*constant to rounding"),
        (lambda x: x.__setitem__((5, 2), np.nan), r"P2.*partly missing or infinite"),
        (lambda x: x.__setitem__((5, 2), np.inf), r"P2.*partly missing or infinite"),
    ],
)
def test_bad_parcels_are_named(encoder, recordings, spoil, message):
    spoil(recordings[0])
    with pytest.raises(RecordingError, match=message):
        encoder.embed(recordings, NAMES, 2.0)


def test_a_partly_missing_parcel_is_refused_even_when_filling(checkpoint, recordings):
    recordings[0][3, 3] = np.nan
    with pytest.raises(RecordingError, match="P3"):
        load_encoder("fbert", checkpoint, allow_missing_parcels=True).embed(recordings, NAMES, 2.0)


@pytest.mark.parametrize("read", ["sequence", "windows"])
@pytest.mark.parametrize("length", [2, 7, 19])
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


def test_wrong_shapes_names_and_reads(encoder, recordings):
    with pytest.raises(RecordingError, match="shape"):
        encoder.embed([recordings[0].T], NAMES, 2.0)
    with pytest.raises(RecordingError, match="same name"):
        encoder.embed(recordings, [*NAMES[:-1], "P0"], 2.0)
    with pytest.raises(UsageError, match="sequence, windows"):
        encoder.embed(recordings, NAMES, 2.0, "random")


def test_repetition_time_outside_the_training_range_warns(encoder, recordings, caplog):
    with caplog.at_level(logging.WARNING):
        encoder.embed(recordings, NAMES, [0.7, 2.0, 3.0, 2.5])
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        encoder.embed(recordings, NAMES, [0.5, 2.0, 3.0, 2.5])
    assert "0.5 s is outside 0.7-3 s" in caplog.text


def test_provenance_identifies_the_numbers(encoder, config):
    facts = encoder.provenance("windows")
    assert facts["n_parameters"] == sum(p.numel() for p in encoder.model.parameters())
    assert {
        "name": "fbert",
        "read": "windows",
        "read_window_seconds": 144.0,
        "window": 20,
        "licence": "CC0-1.0",
    }.items() <= facts.items()
    assert encoder.provenance()["read_window_seconds"] is None


def test_no_key_of_the_provenance_is_an_entity_of_file_names(encoder):
    entities = {name for kind in ("bids", "derivatives") for name in Config.load(kind).entities}
    assert "atlas" in entities
    assert not entities & set(encoder.provenance()), "pybids refuses a layout in which name and sidecar disagree"


@pytest.mark.parametrize("time", [0.0, -2.0, float("inf")])
def test_an_impossible_repetition_time_is_refused(checkpoint, recordings, time):
    with pytest.raises(RecordingError, match=r"repetition time of .* is impossible"):
        load_encoder("fbert", checkpoint).embed(recordings[:2], NAMES, [2.0, time])
