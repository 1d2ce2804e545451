"""Brain-Semantoks against a slow reference, its published layout, its networks, windows and masks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fcpower_bids.encoders.published.adapters import BUCKNER, parcel_order
from fcpower_bids.encoders.published.brain_semantoks import SemantoksEncoder, SemantoksSize
from fcpower_bids.errors import RecordingError
from tests.encoders.published.references import (
    assert_embeds,
    doubles,
    noise,
    random_state,
    slow_block,
    slow_gelu,
    slow_norm,
    slow_sincos,
    vit_shapes,
    with_bias,
)

SIZE = SemantoksSize(d=8, layers=2, heads=2, ff=12)
NETWORKS = [61, 77, 46, 47, 26, 52, 91, 50, 7]
CORTEX, TIAN = parcel_order("Schaefer400").names, parcel_order("TianS3").names
NAMES = (*CORTEX, *TIAN, *BUCKNER)


def tokenizer_shapes(prefix, parcels, d):
    heads = math.ceil(d / 2 / parcels)
    layers = {"branches.0": (d // 2, parcels, 3), "branches.1.projection": (d // 2, heads * parcels), "norm": (d,)}
    long = {f"kernel_list.{i}": (heads, parcels, 4) for i in range(3)}
    long |= {"D": (heads, parcels), "multiplier": (1, parcels, 1)}
    long |= {"kernel_norm": (heads, parcels, 1), "kernel_norm_initialized": ()}
    shapes = with_bias(layers) | {f"branches.1.slconv.{name}": shape for name, shape in long.items()}
    return {f"{prefix}{name}": shape for name, shape in shapes.items()}


def published_shapes(d=8, ff=12, layers=2):
    inter = "inter_network_transformer."
    shapes = {
        f"{inter}mask_embedding": (1, d),
        f"{inter}cls_token": (1, 1, d),
        f"{inter}temporal_pos_embedding": (5, d),
        f"{inter}network_learnable_pos_embedding.weight": (9, d),
        **with_bias({"norm": (d,)}),
    }
    for atlas in ("schaefer400", "tian3", "buckner7"):
        for i, parcels in enumerate(NETWORKS):
            shapes |= tokenizer_shapes(f"network_tokenizers.{atlas}.{i}.", parcels, d)
    for i in range(layers):
        block = f"{inter}transformer_blocks.{i}."
        shapes |= vit_shapes(d, ff, block, ("0", "3"), bias=False)
        shapes |= {f"{block}ls1.gamma": (d,), f"{block}ls2.gamma": (d,)}
    return shapes


@pytest.fixture(scope="module")
def state():
    state = random_state(published_shapes() | with_bias({"inter_network_transformer.norm": (8,)}))
    for key in state:
        if key.endswith("kernel_norm_initialized"):
            state[key] = torch.tensor(True)
        if key.endswith("kernel_norm"):
            state[key] = 1 + state[key].abs()
        if key.endswith("multiplier"):
            state[key] = torch.full_like(state[key], 2.0)
    code = np.array([slow_sincos(time, 8) for time in range(5)], np.float32)
    state["inter_network_transformer.temporal_pos_embedding"] = torch.from_numpy(code)
    return state


@pytest.fixture(scope="module")
def path(tmp_path_factory, state):
    path = tmp_path_factory.mktemp("semantoks") / "brainsemantoks_ckpt_epoch_100.pth"
    inside = {f"module.teacher_encoder.{key}": value for key, value in state.items()}
    inside |= {f"module.student_encoder.{key}": torch.zeros_like(value) for key, value in state.items()}
    inside["module.dino_head.mlp.0.weight"] = torch.zeros(3, 3)
    torch.save({"model_state_dict": inside, "epoch": 100}, path)
    return path


def load(path, protocol="own", **options):
    return SemantoksEncoder.load(path, protocol=protocol, size=SIZE, **options)


def slow_token(w, prefix, x):
    """One patch (parcels, 20) to its token, sample by sample."""
    parcels, length = x.shape
    kernel, bias = w[f"{prefix}branches.0.weight"], w[f"{prefix}branches.0.bias"]
    half = len(bias)
    padded = np.pad(x, ((0, 0), (1, 1)))
    short = np.array([[(kernel[o] * padded[:, t : t + 3]).sum() + bias[o] for t in range(length)] for o in range(half)])
    sl = f"{prefix}branches.1.slconv."
    heads = len(w[f"{sl}D"])
    features = np.empty((parcels * heads, length))
    for parcel in range(parcels):
        for head in range(heads):
            pieces = [w[f"{sl}kernel_list.{i}"][head, parcel] for i in range(3)]
            whole = np.concatenate([4 * pieces[0], 2 * pieces[1], np.repeat(pieces[2], 2)])
            whole = whole / w[f"{sl}kernel_norm"][head, parcel, 0]
            for t in range(length):
                total = sum(whole[j] * x[parcel, t + 8 - j] for j in range(16) if 0 <= t + 8 - j < length)
                features[parcel * heads + head, t] = total + w[f"{sl}D"][head, parcel] * x[parcel, t]
    long = w[f"{prefix}branches.1.projection.weight"] @ features
    long = long + w[f"{prefix}branches.1.projection.bias"][:, None]
    token = slow_gelu(np.concatenate([short, long])).mean(axis=1)
    return slow_norm(token[None], w[f"{prefix}norm.weight"], w[f"{prefix}norm.bias"], 1e-5)[0]


def slow_embedding(state, window, masked=()):
    """window (457, 100), parcels by network."""
    w = doubles(state)
    inter = "inter_network_transformer."
    tokens = [w[f"{inter}cls_token"][0, 0]]
    starts = np.cumsum([0, *NETWORKS])
    for network in range(9):
        x = window[starts[network] : starts[network + 1]]
        for time in range(5):
            if network in masked:
                token = w[f"{inter}mask_embedding"][0]
            else:
                token = slow_token(w, f"network_tokenizers.schaefer400.{network}.", x[:, 20 * time : 20 * time + 20])
            network_code = w[f"{inter}network_learnable_pos_embedding.weight"][network]
            tokens.append(token + network_code + slow_sincos(time, 8))
    x = np.array(tokens)
    for i in range(2):
        x = slow_block(x, w, f"{inter}transformer_blocks.{i}.", 2, 1e-5, mlp=("0", "3"))
    x = slow_norm(x, w["norm.weight"], w["norm.bias"], 1e-5)
    return np.concatenate([x[1:].mean(axis=0), x[0]])


def by_network(series):
    """Z-scored (T, 457) in the order of NAMES to parcels by network (457, T), from the names alone."""
    networks = ("Vis", "SomMot", "DorsAttn", "SalVentAttn", "Limbic", "Cont", "Default")
    order = [i for network in networks for i, name in enumerate(CORTEX) if name.split("_")[2] == network]
    order += range(400, 457)
    scored = (series - series.mean(axis=0)) / series.std(axis=0)
    return scored.T[order]


def test_embedding_equals_the_slow_reference_whatever_the_order_of_columns(path, state):
    series = noise(100, 457)
    expected = slow_embedding(state, by_network(series))
    encoder = load(path, parcel_names=NAMES)
    assert_embeds(encoder, series, NAMES, 2.0, expected)
    again = encoder.embed([series], (*parcel_order("Schaefer400").spellings[1], *TIAN, *BUCKNER), 2.0)
    np.testing.assert_array_equal(again, encoder.embed([series], NAMES, 2.0))


@pytest.mark.parametrize(("names", "masked"), [(NAMES[:450], (8,)), (NAMES[:400], (7, 8))])
def test_atlases_that_are_not_there_are_masked_tokens(path, state, names, masked):
    series = noise(100, 457)
    expected = slow_embedding(state, by_network(series), masked)
    np.testing.assert_allclose(load(path).embed([series[:, : len(names)]], names, 2.0), [expected], atol=1e-5)


def test_windows_are_evenly_spaced_and_z_scored_over_the_recording(path):
    series = noise(300, 457)
    scored = by_network(series)
    for protocol, n in (("own", 8), ("paper", 16)):
        encoder = load(path, protocol)
        windows = encoder.prepare(encoder.select(series, encoder.columns(NAMES)), 2.0)
        starts = [int(200 * i / (n - 1)) for i in range(n)]
        assert windows.shape == (n, 457, 100)
        expected = np.stack([scored[:, start : start + 100] for start in starts])
        np.testing.assert_allclose(windows, expected, atol=1e-5)
    half = encoder.prepare(np.repeat(series, 2, axis=0), 1.0)
    np.testing.assert_allclose(half[0, 3], (series[:100, 3] - series[:, 3].mean()) / series[:, 3].std(), atol=1e-4)
    with pytest.raises(RecordingError, match=r"99 volumes 2 s apart and brain-semantoks needs 100"):
        encoder.prepare(series[:99], 2.0)
    with pytest.raises(RecordingError, match=r"2 s apart .* 2.5 s apart; leave it out"):  # under both protocols
        encoder.prepare(series, 2.5)
    assert encoder.provenance()["read"] == "16 windows of 100 volumes 2 s apart (paper protocol)"
