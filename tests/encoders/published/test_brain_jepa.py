"""Brain-JEPA against a slow reference, its published layout, and its input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.checkpoints import CheckpointError
from fcpower_bids.encoders.fbert import count_parameters
from fcpower_bids.encoders.published.parcel_orders import parcel_order
from fcpower_bids.encoders.published.patches import BrainJEPA, BrainJEPASize, load_brain_jepa
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

SIZE = BrainJEPASize(d=8, layers=1, heads=2, ff=12)
NAMES = parcel_order("Schaefer450x17").names


def published_shapes(d=768, ff=3072, layers=12):
    shapes = {
        "patch_embed.proj.weight": (d, 1, 1, 16),
        "patch_embed.proj.bias": (d,),
        "pos_embed_proj.emb_h": (4500, d // 2),
        "pos_embed_proj.predictor_pos_embed_proj.weight": (d // 2, 30),
        "pos_embed_proj.predictor_pos_embed_proj.bias": (d // 2,),
        "norm.weight": (d,),
        "norm.bias": (d,),
    }
    for i in range(layers):
        shapes |= vit_shapes(d, ff, f"blocks.{i}.", ("fc1", "fc2"))
    return shapes


@pytest.fixture(scope="module")
def state():
    state = random_state(published_shapes(8, 12, 1))
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
    return load_brain_jepa(files / "jepa.pth.tar", **accepted(files, protocol=protocol), size=SIZE, **options)


def slow_embedding(state, gradients, x):
    """x (450, 160), already standardised."""
    w = doubles(state)
    space = gradients @ w["pos_embed_proj.predictor_pos_embed_proj.weight"].T
    space = space + w["pos_embed_proj.predictor_pos_embed_proj.bias"]
    space = (space - space.min()) / (space.max() - space.min()) * 2 - 1
    tokens = np.empty((4500, 8))
    for parcel in range(450):
        for time in range(10):
            patch = x[parcel, 16 * time : 16 * time + 16]
            token = w["patch_embed.proj.weight"][:, 0, 0] @ patch + w["patch_embed.proj.bias"]
            tokens[parcel * 10 + time] = token + np.concatenate([slow_sincos(time, 4), space[parcel]])
    tokens = slow_block(tokens, w, "blocks.0.", 2, 1e-6)
    return slow_norm(tokens, w["norm.weight"], w["norm.bias"], 1e-6).mean(axis=0)


def test_embedding_equals_the_slow_reference_whatever_the_order_of_columns(files, state):
    series = noise(160, 450)
    gradients = np.loadtxt(files / "gradient_mapping_450.csv", delimiter=",")
    expected = slow_embedding(state, gradients, ((series - series.mean()) / series.std(ddof=1)).T)
    encoder = load(files, parcel_names=NAMES)
    shuffle = np.random.default_rng(2).permutation(450)
    embedded = encoder.embed([series[:, shuffle]], [NAMES[i] for i in shuffle], 2.0)
    np.testing.assert_allclose(embedded, [expected], atol=1e-5)


def test_the_seven_network_spelling_of_the_same_parcels_is_put_into_its_order(files):
    series = noise(160, 450, seed=3)
    encoder = load(files)
    seven = parcel_order("Schaefer450")
    there = parcel_order("Schaefer450x17").match(seven.names)
    assert not np.array_equal(there, np.arange(450))
    first = encoder.embed([series], seven.names, 2.0)
    np.testing.assert_allclose(first, encoder.embed([series[:, there]], NAMES, 2.0), atol=1e-6)
    assert np.abs(first - encoder.embed([series], NAMES, 2.0)).max() > 1e-4


def test_windows_and_resampling_of_both_protocols(files):
    own, paper = load(files), load(files, "paper")
    series = noise(400, 450)
    assert own.prepare(series, 2.0).shape == (3, 1, 450, 160)
    assert own.prepare(series, 2.205).shape == (3, 1, 450, 160)  # a third of the UK Biobank's rate is taken as it is
    assert own.prepare(series, 1.0).shape == (2, 1, 450, 160)
    assert paper.prepare(series, 0.72).shape == (3, 1, 450, 160)
    with pytest.raises(RecordingError, match=r"2 s apart .* 3 s apart; set encoder_protocol to paper"):
        own.prepare(series, 3.0)
    with pytest.raises(RecordingError, match=r"has 100 volumes .* needs 160"):
        own.prepare(series[:100], 2.0)
    with pytest.raises(RecordingError, match="repetition time of -1 s"):
        paper.prepare(series, -1.0)
    x = own.prepare(series, 2.0)
    np.testing.assert_allclose(x[0, 0, 5], (series[:160, 5] - series.mean()) / series.std(ddof=1), atol=1e-5)
    np.testing.assert_allclose(x[2, 0, 5], (series[240:, 5] - series.mean()) / series.std(ddof=1), atol=1e-5)


def test_full_size_has_the_published_names_and_count():
    with torch.device("meta"):
        model = BrainJEPA(BrainJEPASize(), torch.zeros(450, 30))
    assert {key: tuple(value.shape) for key, value in model.state_dict().items()} == published_shapes()
    assert count_parameters(model) == 86_808_960


def test_what_does_not_fit_is_refused_in_one_sentence(files, state, tmp_path):
    with pytest.raises(UsageError, match=r"functional gradients of its parcels \(gradient_mapping_450.csv\)"):
        load_encoder("brain-jepa", files / "jepa.pth.tar", accept_licence=True)
    with pytest.raises(CheckpointError, match=r"of another shape: patch_embed.proj.weight"):
        load_brain_jepa(files / "jepa.pth.tar", **accepted(files), size=BrainJEPASize(d=8, layers=1, patch=8, ff=12))
    wrong = {"blocks.0.norm3.weight" if key == "blocks.0.norm1.weight" else key: value for key, value in state.items()}
    torch.save({"target_encoder": wrong}, tmp_path / "wrong.pt")
    with pytest.raises(CheckpointError, match=r"missing: blocks.0.norm1.weight; unexpected: blocks.0.norm3.weight"):
        load_brain_jepa(tmp_path / "wrong.pt", **accepted(files), size=SIZE)
    with pytest.raises(CheckpointError, match="50 of the 450 parcels of Schaefer450x17"):
        load(files, parcel_names=parcel_order("Schaefer400").names)
    (tmp_path / "gradient_mapping_450.csv").write_text("1,2\n3,4\n")
    with pytest.raises(CheckpointError, match="is 2 by 2, not 450 by 30"):
        load_brain_jepa(files / "jepa.pth.tar", **accepted(tmp_path), size=SIZE)


def test_provenance_tells_licence_checksums_and_protocol(files):
    facts = load(files).provenance()
    assert facts["licence"].startswith("none stated")
    assert len(facts["sha256"]) == 64
    assert len(facts["aux_sha256"]["gradient_mapping_450.csv"]) == 64
    assert (facts["protocol"], facts["repetition_time"], facts["window"]) == ("own", 2.0, 160)
    assert (facts["n_parcels"], facts["read"]) == (450, "windows of 160 volumes 2 s apart (own protocol)")
    paper = load(files, "paper").provenance()
    assert (paper["repetition_time"], paper["read"]) == (None, "windows of 160 volumes (paper protocol)")
