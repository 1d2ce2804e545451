"""BrainLM against a slow reference, its published layout, and its image."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file, save_file

from fcpower_bids.encoders.published.masked import (
    BrainLMEncoder,
    BrainLMSize,
)
from fcpower_bids.errors import UsageError
from tests.encoders.published.references import (
    doubles,
    noise,
    random_state,
    slow_block,
    slow_norm,
    with_bias,
)

SIZE = BrainLMSize(d=8, layers=2, heads=2, ff=12, patch=16, side=432)
NAMES = [f"parcel{label:03d}" for label in range(1, 425)]
LAYERS = {
    "norm1": "layernorm_before",
    "attn.proj": "attention.output.dense",
    "norm2": "layernorm_after",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}
HEADS = [f"attention.attention.{name}" for name in ("query", "key", "value")]


def published_shapes():
    shapes = {"vit.embeddings.cls_token": (1, 1, 8), "vit.embeddings.position_embeddings": (1, 730, 8)}
    layers = {"vit.embeddings.patch_embeddings.projection": (8, 3, 16, 16), "vit.layernorm": (8,)}
    linear = dict.fromkeys([*HEADS, "attention.output.dense"], (8, 8))
    linear |= {"intermediate.dense": (12, 8), "output.dense": (8, 12)}
    linear |= {"layernorm_before": (8,), "layernorm_after": (8,)}
    for i in range(2):
        layers |= {f"vit.encoder.layer.{i}.{name}": shape for name, shape in linear.items()}
    return shapes | with_bias(layers)


# Coordinates are like the real ones: even numbers of millimetres, so that most values of y are shared.
COORDINATES = np.column_stack([np.arange(1, 425), np.random.default_rng(0).integers(-40, 40, (424, 3)) * 2])
MEDIAN, IQR = 0.1 * np.random.default_rng(1).standard_normal(424), np.random.default_rng(2).uniform(1, 2, 424)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vitmae_111M")
    decoder = {"decoder.decoder_embed.weight": (4, 8), "decoder.mask_token": (1, 1, 4)}
    state = random_state(published_shapes() | decoder)
    save_file(state, folder / "model.safetensors")
    config = {"model_type": "vit_mae", "hidden_size": 8, "num_attention_heads": 2, "patch_size": 16}
    (folder / "config.json").write_text(json.dumps(config))
    np.savetxt(folder / "A424_Coordinates.dat", COORDINATES, fmt="%d", delimiter="\t")
    table = pd.DataFrame({"name": range(1, 425), "median": MEDIAN, "iqr": IQR})
    table.to_csv(folder / "cohort_statistics.tsv", sep="\t", index=False)
    return folder


def load(files, **options):
    return BrainLMEncoder.load(files, size=SIZE, **options)


def slow_image(series):
    """The padded image of one window, pixel by pixel."""
    rows = sorted(range(424), key=lambda parcel: COORDINATES[parcel, 2])  # sorted() is stable
    image = np.full((432, 432), -1.0)
    for row, parcel in enumerate(rows):
        column = series[:, parcel] - series[:, parcel].mean()
        for time in range(200):
            value = (column[time] - MEDIAN[parcel]) / IQR[parcel] / 5.6430855
            image[4 + row, 116 + time] = value
    return image


def slow_embedding(state, image):
    w = doubles(state, "vit.")
    kernel = w["embeddings.patch_embeddings.projection.weight"].sum(axis=1)  # three equal channels
    tokens = [w["embeddings.cls_token"][0, 0]]
    for i in range(27):
        for j in range(27):
            patch = image[16 * i : 16 * i + 16, 16 * j : 16 * j + 16]
            tokens.append((kernel * patch).sum(axis=(1, 2)) + w["embeddings.patch_embeddings.projection.bias"])
    x = np.array(tokens) + w["embeddings.position_embeddings"][0]
    for i in range(2):
        layer, block = f"encoder.layer.{i}.", {}
        for kind in ("weight", "bias"):
            block |= {f"{ours}.{kind}": w[f"{layer}{theirs}.{kind}"] for ours, theirs in LAYERS.items()}
            block[f"attn.qkv.{kind}"] = np.concatenate([w[f"{layer}{name}.{kind}"] for name in HEADS])
        x = slow_block(x, block, "", 2, 1e-12)
    return slow_norm(x[:1], w["layernorm.weight"], w["layernorm.bias"], 1e-12)[0]


def test_embedding_equals_the_slow_reference_whatever_the_order_of_columns(files):
    series = noise(200, 424)
    expected = slow_embedding(load_file(files / "model.safetensors"), slow_image(series))
    encoder = load(files, parcel_names=NAMES)
    np.testing.assert_allclose(encoder.embed([series], NAMES, 0.72), [expected], atol=1e-5)
    np.testing.assert_allclose(encoder.embed([series[:, ::-1]], NAMES[::-1], 0.8), [expected], atol=1e-5)


def test_without_the_statistics_of_a_cohort_nothing_is_embedded(files, tmp_path):
    (files / "cohort_statistics.tsv").rename(tmp_path / "cohort_statistics.tsv")
    with pytest.raises(UsageError, match=r"needs cohort_statistics\.tsv"):
        load(files)
    (tmp_path / "cohort_statistics.tsv").replace(files / "cohort_statistics.tsv")
