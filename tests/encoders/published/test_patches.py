"""Brain-JEPA and BrainHarmonix-F against slow references: layout, windows, patches and masked tokens."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from fcpower_bids.encoders.published.adapters import parcel_order
from fcpower_bids.encoders.published.patches import BrainJEPAEncoder, BrainJEPASize, HarmonixEncoder, HarmonixSize
from fcpower_bids.errors import RecordingError
from tests.encoders.published.references import (
    assert_embeds,
    doubles,
    noise,
    random_state,
    slow_block,
    slow_norm,
    slow_sincos,
    vit_shapes,
    with_bias,
)

SIZE = BrainJEPASize(d=8, layers=1, heads=2, ff=12)
NAMES = parcel_order("Schaefer450x17").names


def published_shapes(patch, projections):
    layers = {"patch_embed.proj": (8, 1, 1, patch), "norm": (8,)} | projections
    return with_bias(layers) | vit_shapes(8, 12, "blocks.0.", ("fc1", "fc2"))


def slow_patches(w, kernel, space, x, times, n_valid):
    """x (parcels, volumes), standardised; patches without data are no keys and no part of the mean."""
    patch, space = kernel.shape[1], (space - space.min()) / (space.max() - space.min()) * 2 - 1
    tokens, kept = np.empty((len(x) * times, 8)), np.zeros(len(x) * times, bool)
    for parcel in range(len(x)):
        for time in range(times):
            position = np.concatenate([slow_sincos(time, 4), space[parcel]])
            values = kernel @ x[parcel, time * patch : (time + 1) * patch] + w["patch_embed.proj.bias"]
            tokens[parcel * times + time] = values + position
            kept[parcel * times + time] = time < n_valid
    tokens = slow_block(tokens, w, "blocks.0.", 2, 1e-6, kept=kept)
    return slow_norm(tokens[kept], w["norm.weight"], w["norm.bias"], 1e-6).mean(axis=0)


@pytest.fixture(scope="module")
def state():
    state = random_state(published_shapes(16, {"pos_embed_proj.predictor_pos_embed_proj": (4, 30)}))
    code = [slow_sincos(time, 4) for _ in range(450) for time in range(10)]
    state["pos_embed_proj.emb_h"] = torch.tensor(np.array(code), dtype=torch.float32)
    return state


@pytest.fixture(scope="module")
def files(tmp_path_factory, state):
    folder = tmp_path_factory.mktemp("jepa")
    inside = {"target_encoder": {f"module.{key}": value for key, value in state.items()}, "epoch": 300, "lr": 1e-3}
    torch.save(inside, folder / "jepa.pth.tar")
    np.savetxt(folder / "gradient_mapping_450.csv", np.random.default_rng(1).standard_normal((450, 30)), delimiter=",")
    return folder


def load(files, protocol="own", **options):
    return BrainJEPAEncoder.load(files / "jepa.pth.tar", protocol=protocol, size=SIZE, **options)


def test_embedding_equals_the_slow_reference_whatever_the_order_of_columns(files, state):
    series, w = noise(160, 450), doubles(state)
    gradients = np.loadtxt(files / "gradient_mapping_450.csv", delimiter=",")
    space = gradients @ w["pos_embed_proj.predictor_pos_embed_proj.weight"].T
    space = space + w["pos_embed_proj.predictor_pos_embed_proj.bias"]
    x = ((series - series.mean()) / series.std(ddof=1)).T
    expected = slow_patches(w, w["patch_embed.proj.weight"][:, 0, 0], space, x, 10, 10)
    assert_embeds(load(files, parcel_names=NAMES), series, NAMES, 2.0, expected)


def test_windows_and_resampling_of_both_protocols(files):
    own, paper = load(files), load(files, "paper")
    series = noise(400, 450)
    assert own.prepare(series, 2.0).shape == (3, 450, 10, 16)
    assert own.prepare(series, 2.205).shape == (3, 450, 10, 16)  # a third of the UK Biobank's rate is taken as it is
    assert own.prepare(series, 1.0).shape == (2, 450, 10, 16)
    assert paper.prepare(series, 0.72).shape == (3, 450, 10, 16)
    with pytest.raises(RecordingError, match=r"2 s apart .* 3 s apart; set encoder_protocol to paper"):
        own.prepare(series, 3.0)
    with pytest.raises(RecordingError, match=r"has 100 volumes .* needs 160"):
        own.prepare(series[:100], 2.0)
    with pytest.raises(RecordingError, match="repetition time of -1 s"):
        paper.prepare(series, -1.0)
    x = own.prepare(series, 2.0)
    np.testing.assert_allclose(x[0, 5].flatten(), (series[:160, 5] - series.mean()) / series.std(ddof=1), atol=1e-5)
    np.testing.assert_allclose(x[2, 5].flatten(), (series[240:, 5] - series.mean()) / series.std(ddof=1), atol=1e-5)


HARMONIX_SIZE = HarmonixSize(d=8, layers=1, heads=2, ff=12)
HARMONIX_NAMES = parcel_order("Schaefer400x17").names


@pytest.fixture(scope="module")
def harmonix(tmp_path_factory):
    """The released files; their time codes have another length than ours, and the decoder a projection."""
    projections = {"geo_harm_proj": (4, 200), "grad_proj": (4, 30), "decoder_pos_embed_proj": (2, 4)}
    projections = {f"pos_embed.{name}": shape for name, shape in projections.items()}
    spare = {"pos_embed.emb_h_encoder": (4000, 4), "pos_embed.emb_h_decoder": (4000, 2)}
    state, folder = random_state(published_shapes(48, projections) | spare), tmp_path_factory.mktemp("harmonix-f")
    student = {f"encoder.{key}": torch.zeros(3) for key in state}
    torch.save({f"encoder_ema.{key}": value for key, value in state.items()} | student, folder / "model.pth")
    rng = np.random.default_rng(1)
    np.savetxt(folder / "gradient_mapping_400.csv", rng.standard_normal((400, 30)), delimiter=",")
    pd.DataFrame(rng.standard_normal((400, 200))).to_csv(folder / "schaefer400_roi_eigenmodes.csv")
    return folder, state


def load_harmonix(folder, protocol="own", **options):
    return HarmonixEncoder.load(folder / "model.pth", protocol=protocol, size=HARMONIX_SIZE, **options)


def slow_harmonix(folder, state, series, patch, n_valid, times):
    """All patches, those without data masked as keys and left out of the mean: as the authors compute it."""
    w = doubles(state)
    gradients = np.loadtxt(folder / "gradient_mapping_400.csv", delimiter=",")
    modes = np.genfromtxt(folder / "schaefer400_roi_eigenmodes.csv", delimiter=",", skip_header=1)[:, 1:]
    space = gradients @ w["pos_embed.grad_proj.weight"].T + w["pos_embed.grad_proj.bias"]
    space = 0.5 * (space + modes @ w["pos_embed.geo_harm_proj.weight"].T + w["pos_embed.geo_harm_proj.bias"])
    kernel = w["patch_embed.proj.weight"][:, 0, 0]
    if patch != 48:
        rows = []
        for i in range(48):
            unit = torch.zeros(1, 1, 1, 48)
            unit[..., i] = 1
            resized = torch.nn.functional.interpolate(unit, (1, patch), mode="bicubic", antialias=True)
            rows.append(resized.flatten().double().numpy())
        kernel = np.array([np.linalg.pinv(np.array(rows)) @ row for row in kernel])
    padded = np.zeros((times * patch, 400))
    padded[: len(series)] = (series - series.mean(axis=0)) / series.std(axis=0)
    return slow_patches(w, kernel, space, padded.T, times, n_valid)


@pytest.mark.parametrize(("time", "patch", "times"), [(0.735, 48, 4), (2.0, 18, 6)])
def test_embedding_equals_the_slow_masked_reference_whatever_the_order_of_columns(harmonix, time, patch, times):
    series = noise(2 * patch + patch // 2, 400)  # two patches and a half: the third is padded with 0, the rest masked
    expected = slow_harmonix(*harmonix, series, patch, 3, times)
    encoder = load_harmonix(harmonix[0], parcel_names=HARMONIX_NAMES)
    assert_embeds(encoder, series, HARMONIX_NAMES, time, expected)


def test_patches_of_both_protocols(harmonix):
    own, paper = (load_harmonix(harmonix[0], protocol) for protocol in ("own", "paper"))
    assert own.prepare(noise(900, 400), 0.735).shape == (2, 400, 18, 48)
    assert own.prepare(noise(864, 400), 0.735).shape == (1, 400, 18, 48)
    assert own.prepare(noise(180, 400), 2.0).shape == (1, 400, 10, 18)
    assert paper.prepare(noise(1200, 400), 0.72).shape == (3, 400, 11, 49)
    assert own.provenance()["read"] == "windows of up to 18 patches of 35.28 s (own protocol)"
    assert paper.provenance()["read"] == "windows of up to 11 patches of 35.28 s (paper protocol)"
    patches = own.prepare(noise(30, 400), 2.0)
    assert (patches[0, :, 1, 12:] == 0).all()
    with pytest.raises(RecordingError, match=r"repetition times from 0.3 to 3.6 s, not 5 s"):
        own.prepare(noise(100, 400), 5.0)
    with pytest.raises(RecordingError, match=r"17 volumes and a patch of brain-harmonix-f 18"):
        own.prepare(noise(17, 400), 2.0)
