"""BrainHarmonix-F against a slow reference, its published layout, its patches and its masked tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.checkpoints import CheckpointError
from fcpower_bids.encoders.fbert import count_parameters
from fcpower_bids.encoders.published.parcel_orders import parcel_order
from fcpower_bids.encoders.published.patches import BrainHarmonix, HarmonixSize, load_brain_harmonix
from fcpower_bids.errors import RecordingError, UsageError
from tests.encoders.published.references import (
    accepted,
    doubles,
    noise,
    random_state,
    slow_block,
    slow_norm,
    slow_sincos,
    vit_shapes,
)

SIZE = HarmonixSize(d=8, layers=1, heads=2, ff=12)
NAMES = parcel_order("Schaefer400x17").names


def published_shapes(d=768, ff=3072, layers=12):
    shapes = {
        "patch_embed.proj.weight": (d, 1, 1, 48),
        "patch_embed.proj.bias": (d,),
        "pos_embed.geo_harm_proj.weight": (d // 2, 200),
        "pos_embed.geo_harm_proj.bias": (d // 2,),
        "pos_embed.grad_proj.weight": (d // 2, 30),
        "pos_embed.grad_proj.bias": (d // 2,),
        "norm.weight": (d,),
        "norm.bias": (d,),
    }
    for i in range(layers):
        shapes |= vit_shapes(d, ff, f"blocks.{i}.", ("fc1", "fc2"))
    return shapes


@pytest.fixture(scope="module")
def state():
    # Time codes of another length than ours, as in the released file, and the projection of the decoder.
    spare = {
        "pos_embed.emb_h_encoder": (4000, 4),
        "pos_embed.emb_h_decoder": (4000, 2),
        "pos_embed.decoder_pos_embed_proj.weight": (2, 4),
        "pos_embed.decoder_pos_embed_proj.bias": (2,),
    }
    return random_state(published_shapes(8, 12, 1) | spare)


@pytest.fixture(scope="module")
def files(tmp_path_factory, state):
    folder = tmp_path_factory.mktemp("harmonix-f")
    student = {f"encoder.{key}": torch.zeros(3) for key in state}
    torch.save({f"encoder_ema.{key}": value for key, value in state.items()} | student, folder / "model.pth")
    rng = np.random.default_rng(1)
    np.savetxt(folder / "gradient_mapping_400.csv", rng.standard_normal((400, 30)), delimiter=",")
    modes = rng.standard_normal((400, 200))
    lines = ["," + ",".join(map(str, range(200)))]
    lines += [f"{i}," + ",".join(map(repr, row.tolist())) for i, row in enumerate(modes)]
    (folder / "schaefer400_roi_eigenmodes.csv").write_text("\n".join(lines) + "\n")
    return folder


def load(files, protocol="own", **options):
    published = accepted(files, protocol=protocol)
    return load_brain_harmonix(files / "model.pth", **published, size=SIZE, **options)


def slow_embedding(state, files, series, patch, n_valid, times):
    """All patches, those without data masked as keys and left out of the mean: as the authors compute it."""
    w = doubles(state)
    gradients = np.loadtxt(files / "gradient_mapping_400.csv", delimiter=",")
    modes = np.genfromtxt(files / "schaefer400_roi_eigenmodes.csv", delimiter=",", skip_header=1)[:, 1:]
    space = gradients @ w["pos_embed.grad_proj.weight"].T + w["pos_embed.grad_proj.bias"]
    space = 0.5 * (space + modes @ w["pos_embed.geo_harm_proj.weight"].T + w["pos_embed.geo_harm_proj.bias"])
    space = (space - space.min()) / (space.max() - space.min()) * 2 - 1
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
    tokens, kept = np.empty((400 * times, 8)), np.zeros(400 * times, bool)
    for parcel in range(400):
        for time in range(times):
            values = padded[time * patch : (time + 1) * patch, parcel]
            position = np.concatenate([slow_sincos(time, 4), space[parcel]])
            tokens[parcel * times + time] = kernel @ values + w["patch_embed.proj.bias"] + position
            kept[parcel * times + time] = time < n_valid
    tokens = slow_block(tokens, w, "blocks.0.", 2, 1e-6, kept=kept)
    return slow_norm(tokens[kept], w["norm.weight"], w["norm.bias"], 1e-6).mean(axis=0)


@pytest.mark.parametrize(("time", "patch", "times"), [(0.735, 48, 4), (2.0, 18, 6)])
def test_embedding_equals_the_slow_masked_reference_whatever_the_order_of_columns(files, state, time, patch, times):
    series = noise(2 * patch + patch // 2, 400)  # two patches and a half: the third is padded with 0, the rest masked
    expected = slow_embedding(state, files, series, patch, 3, times)
    encoder = load(files, parcel_names=NAMES)
    shuffle = np.random.default_rng(2).permutation(400)
    embedded = encoder.embed([series[:, shuffle]], [NAMES[i] for i in shuffle], time)
    np.testing.assert_allclose(embedded, [expected], atol=1e-5)


def test_patches_of_both_protocols(files):
    own, paper = load(files), load(files, "paper")
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


def test_full_size_has_the_published_names_and_count():
    with torch.device("meta"):
        model = BrainHarmonix(HarmonixSize(), torch.zeros(400, 30), torch.zeros(400, 200))
    assert {key: tuple(value.shape) for key, value in model.state_dict().items()} == published_shapes()
    tables_and_decoder = 7200 * (384 + 192) + 384 * 192 + 192
    assert count_parameters(model) == 85_182_720
    assert count_parameters(model) + tables_and_decoder == 89_403_840  # published with its fixed tables


def test_what_does_not_fit_is_refused_in_one_sentence(files, state, tmp_path):
    aux = (files / "gradient_mapping_400.csv",)
    with pytest.raises(UsageError, match=r"their geometric eigenmodes \(schaefer400_roi_eigenmodes.csv\)"):
        load_encoder("brain-harmonix-f", files / "model.pth", aux=aux, accept_licence=True)
    torch.save({f"encoder.{key}": value for key, value in state.items()}, tmp_path / "student.pth")
    with pytest.raises(CheckpointError, match=r"no tensors under 'encoder_ema.'"):
        load_brain_harmonix(tmp_path / "student.pth", **accepted(files), size=SIZE)
    extra = {f"encoder_ema.{key}": value for key, value in state.items()} | {"encoder_ema.head.bias": torch.zeros(2)}
    torch.save(extra, tmp_path / "extra.pth")
    with pytest.raises(CheckpointError, match=r"unexpected: head.bias"):
        load_brain_harmonix(tmp_path / "extra.pth", **accepted(files), size=SIZE)
