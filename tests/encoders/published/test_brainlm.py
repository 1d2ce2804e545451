"""BrainLM against a slow reference, its published layout, and its image."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import save_file

from fcpower_bids.encoders.published.masked import (
    BrainLMSize,
    CohortStatistics,
    image_rows,
    load_brainlm,
)
from fcpower_bids.errors import UsageError
from tests.encoders.published.references import (
    doubles,
    noise,
    random_state,
    slow_attention,
    slow_gelu,
    slow_norm,
)

SIZE = BrainLMSize(d=8, layers=2, heads=2, ff=12, patch=16, side=432)
NAMES = [f"parcel{label:03d}" for label in range(1, 425)]


def published_shapes(d=768, ff=3072, layers=12, patch=16, tokens=730):
    shapes = {
        "vit.embeddings.cls_token": (1, 1, d),
        "vit.embeddings.position_embeddings": (1, tokens, d),
        "vit.embeddings.patch_embeddings.projection.weight": (d, 3, patch, patch),
        "vit.embeddings.patch_embeddings.projection.bias": (d,),
        "vit.layernorm.weight": (d,),
        "vit.layernorm.bias": (d,),
    }
    for i in range(layers):
        layer = f"vit.encoder.layer.{i}."
        linear = {f"attention.attention.{name}": (d, d) for name in ("query", "key", "value")}
        linear |= {"attention.output.dense": (d, d), "intermediate.dense": (ff, d), "output.dense": (d, ff)}
        for name, shape in linear.items():
            shapes |= {f"{layer}{name}.weight": shape, f"{layer}{name}.bias": shape[:1]}
        for name in ("layernorm_before", "layernorm_after"):
            shapes |= {f"{layer}{name}.weight": (d,), f"{layer}{name}.bias": (d,)}
    return shapes


@pytest.fixture(scope="module")
def coordinates():
    """Like the real table: even numbers of millimetres, so that most values of y are shared."""
    return np.column_stack([np.arange(1, 425), np.random.default_rng(0).integers(-40, 40, (424, 3)) * 2])


@pytest.fixture(scope="module")
def statistics():
    rng = np.random.default_rng(1)
    return CohortStatistics(rng.standard_normal(424) * 0.1, rng.uniform(1, 2, 424))


@pytest.fixture(scope="module")
def files(tmp_path_factory, coordinates, statistics):
    folder = tmp_path_factory.mktemp("vitmae_111M")
    decoder = {"decoder.decoder_embed.weight": (4, 8), "decoder.mask_token": (1, 1, 4)}
    state = random_state(published_shapes(8, 12, 2) | decoder)
    save_file(state, folder / "model.safetensors")
    config = {"model_type": "vit_mae", "hidden_size": 8, "num_attention_heads": 2, "patch_size": 16}
    (folder / "config.json").write_text(json.dumps(config))
    np.savetxt(folder / "A424_Coordinates.dat", coordinates, fmt="%d", delimiter="\t")
    table = pd.DataFrame({"name": range(1, 425), "median": statistics.median, "iqr": statistics.iqr})
    table.to_csv(folder / "cohort_statistics.tsv", sep="\t", index=False)
    return folder


def load(files, **options):
    return load_brainlm(files, size=SIZE, **options)


def slow_image(series, coordinates, statistics):
    """The padded image of one window, pixel by pixel."""
    rows = sorted(range(424), key=lambda parcel: coordinates[parcel, 2])  # sorted() is stable
    image = np.full((432, 432), -1.0)
    for row, parcel in enumerate(rows):
        column = series[:, parcel] - series[:, parcel].mean()
        for time in range(200):
            value = (column[time] - statistics.median[parcel]) / statistics.iqr[parcel] / 5.6430855
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

        def linear(y, name, layer=f"encoder.layer.{i}."):
            return y @ w[f"{layer}{name}.weight"].T + w[f"{layer}{name}.bias"]

        def norm(y, name, layer=f"encoder.layer.{i}."):
            return slow_norm(y, w[f"{layer}{name}.weight"], w[f"{layer}{name}.bias"], 1e-12)

        y = norm(x, "layernorm_before")
        q, k, v = (linear(y, f"attention.attention.{name}") for name in ("query", "key", "value"))
        x = x + linear(slow_attention(q, k, v, 2), "attention.output.dense")
        x = x + linear(slow_gelu(linear(norm(x, "layernorm_after"), "intermediate.dense")), "output.dense")
    return slow_norm(x[:1], w["layernorm.weight"], w["layernorm.bias"], 1e-12)[0]


@pytest.fixture(scope="module")
def state(files):
    from safetensors.torch import load_file

    return load_file(files / "model.safetensors")


def test_embedding_equals_the_slow_reference_whatever_the_order_of_columns(files, state, coordinates, statistics):
    series = noise(200, 424)
    expected = slow_embedding(state, slow_image(series, coordinates, statistics))
    encoder = load(files, parcel_names=NAMES)
    np.testing.assert_allclose(encoder.embed([series], NAMES, 0.72), [expected], atol=1e-5)
    np.testing.assert_allclose(encoder.embed([series[:, ::-1]], NAMES[::-1], 0.8), [expected], atol=1e-5)


def test_rows_are_sorted_by_y_and_ties_keep_their_order(files, coordinates):
    rows = image_rows(files / "A424_Coordinates.dat")
    y = coordinates[rows, 2]
    assert (np.diff(y) >= 0).all()
    assert (np.diff(rows)[np.diff(y) == 0] > 0).all()
    assert (np.diff(y) == 0).sum() > 300


def test_without_the_statistics_of_a_cohort_nothing_is_embedded(files, tmp_path):
    (files / "cohort_statistics.tsv").rename(tmp_path / "cohort_statistics.tsv")
    with pytest.raises(UsageError, match=r"needs cohort_statistics\.tsv"):
        load(files)
    (tmp_path / "cohort_statistics.tsv").replace(files / "cohort_statistics.tsv")
