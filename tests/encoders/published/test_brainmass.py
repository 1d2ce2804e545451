"""BrainMass against a slow reference, its published layout, and its matrix."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fcpower_bids.encoders.checkpoints import CheckpointError
from fcpower_bids.encoders.fbert import count_parameters
from fcpower_bids.encoders.published.brainmass import BrainMass, BrainMassSize, load_brainmass, shrunk_correlation
from fcpower_bids.encoders.published.parcel_orders import parcel_order
from fcpower_bids.errors import RecordingError
from tests.encoders.published.references import accepted, doubles, noise, random_state, slow_attention, slow_norm

SIZE = BrainMassSize(layers=2, heads=10, ff=24)
NAMES = parcel_order("Schaefer100").names


def published_shapes(ff=2048, layers=16):
    shapes = {"dim_reduction.0.weight": (8, 100), "dim_reduction.0.bias": (8,)}
    for i in range(layers):
        layer = f"attention_list.{i}."
        shapes |= {f"{layer}self_attn.in_proj_weight": (300, 100), f"{layer}self_attn.in_proj_bias": (300,)}
        shapes |= {f"{layer}self_attn.out_proj.weight": (100, 100), f"{layer}self_attn.out_proj.bias": (100,)}
        shapes |= {f"{layer}linear1.weight": (ff, 100), f"{layer}linear1.bias": (ff,)}
        shapes |= {f"{layer}linear2.weight": (100, ff), f"{layer}linear2.bias": (100,)}
        for norm in ("norm1", "norm2"):
            shapes |= {f"{layer}{norm}.weight": (100,), f"{layer}{norm}.bias": (100,)}
    return shapes


@pytest.fixture(scope="module")
def state():
    head = {"g.net.0.weight": (4, 800), "g.net.1.running_mean": (4,), "g.net.3.bias": (2,)}
    return random_state(published_shapes(24, 2) | head)


@pytest.fixture(scope="module")
def path(tmp_path_factory, state):
    path = tmp_path_factory.mktemp("brainmass") / "best_model.pth"
    torch.save({"online_network_state_dict": state, "target_network_state_dict": state}, path)
    return path


def slow_embedding(state, x):
    w = doubles(state)
    for i in range(2):
        p = f"attention_list.{i}."
        qkv = x @ w[f"{p}self_attn.in_proj_weight"].T + w[f"{p}self_attn.in_proj_bias"]
        y = slow_attention(qkv[:, :100], qkv[:, 100:200], qkv[:, 200:], 10)
        y = y @ w[f"{p}self_attn.out_proj.weight"].T + w[f"{p}self_attn.out_proj.bias"]
        x = slow_norm(x + y, w[f"{p}norm1.weight"], w[f"{p}norm1.bias"], 1e-5)
        y = np.maximum(x @ w[f"{p}linear1.weight"].T + w[f"{p}linear1.bias"], 0)
        y = y @ w[f"{p}linear2.weight"].T + w[f"{p}linear2.bias"]
        x = slow_norm(x + y, w[f"{p}norm2.weight"], w[f"{p}norm2.bias"], 1e-5)
    y = x @ w["dim_reduction.0.weight"].T + w["dim_reduction.0.bias"]
    return np.where(y > 0, y, 0.01 * y).reshape(-1)


def test_matrix_is_that_of_the_authors_library():
    from nilearn.connectome import ConnectivityMeasure

    series = noise(150, 100)
    expected = ConnectivityMeasure(kind="correlation").fit_transform([series])[0]
    matrix = shrunk_correlation(series)
    np.testing.assert_allclose(matrix, expected, atol=1e-12)
    plain = np.corrcoef(series.T)
    off = ~np.eye(100, dtype=bool)
    ratio = matrix[off] / plain[off]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-10)  # shrinkage: all correlations by the same factor
    assert 0 < ratio[0] < 1


def test_undefined_correlations_are_zero():
    series = noise(150, 100)
    series[:, 7] = 0
    matrix = shrunk_correlation(series)
    assert np.isfinite(matrix).all()
    assert (matrix[7, np.arange(100) != 7] == 0).all()
    assert (np.diag(matrix) == 1).all()


@pytest.mark.parametrize("protocol", ["own", "paper"])
def test_embedding_equals_the_slow_reference_whatever_the_order_of_columns(path, state, protocol):
    series = noise(150, 100)
    expected = slow_embedding(state, shrunk_correlation(series))
    encoder = load_brainmass(path, **accepted(protocol=protocol), size=SIZE, parcel_names=NAMES)
    shuffle = np.random.default_rng(2).permutation(100)
    embedded = encoder.embed([series[:, shuffle]], [NAMES[i] for i in shuffle], 0.8)
    np.testing.assert_allclose(embedded, [expected], atol=1e-5)


def test_full_size_has_the_published_names_and_count():
    with torch.device("meta"):
        model = BrainMass(BrainMassSize())
        head = [torch.nn.Linear(800, 1600), torch.nn.BatchNorm1d(1600), torch.nn.Linear(1600, 1024)]
    assert {key: tuple(value.shape) for key, value in model.state_dict().items()} == published_shapes()
    assert count_parameters(model) == 7_241_576
    assert count_parameters(model) + sum(map(count_parameters, head)) == 10_165_800  # published with its head


def test_what_does_not_fit_is_refused_in_one_sentence(path, state, tmp_path):
    encoder = load_brainmass(path, **accepted(), size=SIZE)
    series = noise(150, 100)
    series[:, 3] = np.nan
    with pytest.raises(RecordingError, match="1 parcels that brainmass needs are without data"):
        encoder.embed([series], NAMES, 2.0)
    filled = load_brainmass(path, **accepted(), size=SIZE, allow_missing_parcels=True)
    assert np.isfinite(filled.embed([series], NAMES, 2.0)).all()
    series[5, 9] = np.inf
    with pytest.raises(RecordingError, match="partly missing or infinite"):
        filled.embed([series], NAMES, 2.0)
    torch.save(
        {"online_network_state_dict": state | {"dim_reduction.0.bias": torch.full((8,), np.nan)}}, tmp_path / "w"
    )
    with pytest.raises(CheckpointError, match=r"not finite: dim_reduction.0.bias"):
        load_brainmass(tmp_path / "w", **accepted(), size=SIZE)
