"""F-BERT, its checkpoints, the encoders by name, and how recordings are embedded; what does not fit is refused."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import huggingface_hub
import numpy as np
import pytest
import safetensors.torch
import torch
from bids.layout.models import Config
from safetensors.torch import load_file, save_file
from torch import nn

from fcpower_bids.encoders import embed_recording, embedding, load_encoder
from fcpower_bids.encoders.checkpoints import CheckpointError, ModelCard, save_checkpoint
from fcpower_bids.encoders.fbert import SIZES, FBert, FBertConfig, count_parameters, position_code
from fcpower_bids.errors import RecordingError
from fcpower_bids.store import digest_of
from tests.encoders.conftest import NAMES

VARIANTS = [
    {},
    {"norm_first": True, "final_norm": True},
    {"activation": "relu", "cls_position": False},
    {"pe": "none", "final_norm": True, "norm_eps": 1e-12},
    {"pe": "sinusoidal_halves", "norm_first": True},
]


def series(batch: int = 3, length: int = 33, parcels: int = 12) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).standard_normal((batch, length, parcels)))


@pytest.mark.parametrize(("name", "expected"), [("fbert-1m", 850_944), ("fbert-8m", 8_069_632)])
def test_parameter_counts_are_those_of_the_paper(name, expected):
    assert count_parameters(FBert(FBertConfig(450, **SIZES[name]))) == expected


@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_torch_transformer_encoder_with_the_same_weights(config, variant):
    """Of large random weights and biases, so that no term is too small to be missed."""
    config = replace(config, **variant)
    model, generator = FBert(config, 0).double().eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    layer = nn.TransformerEncoderLayer(
        config.d, config.heads, config.ff, config.dropout, config.activation, config.norm_eps, True, config.norm_first
    )
    norm = nn.LayerNorm(config.d, config.norm_eps) if config.final_norm else None
    referee = nn.TransformerEncoder(layer, config.layers, norm, enable_nested_tensor=False).double().eval()
    referee.load_state_dict(model.encoder.state_dict())
    x = series()
    torch.testing.assert_close(model(x), referee(model.tokens(x))[:, 0], rtol=0, atol=1e-12)


def test_position_code_closed_form():
    code = position_code(50, 8)
    p, i = 37, 2
    assert code[p, 2 * i].item() == pytest.approx(np.sin(p / 10000 ** (2 * i / 8)), abs=1e-14)
    assert code[p, 2 * i + 1].item() == pytest.approx(np.cos(p / 10000 ** (2 * i / 8)), abs=1e-14)
    halves = position_code(50, 8, "sinusoidal_halves")
    torch.testing.assert_close(torch.cat((code[:, ::2], code[:, 1::2]), dim=1), halves, rtol=0, atol=0)


def as_hf_bert(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same weights under the names of a Hugging Face BertModel."""
    names = {
        "self_attn.out_proj": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "linear1": "intermediate.dense",
        "linear2": "output.dense",
        "norm2": "output.LayerNorm",
    }
    out: dict[str, torch.Tensor] = {}
    for key, value in state.items():
        if "in_proj" in key:
            head, kind = key.split("self_attn.in_proj_")
            for part, tensor in zip(("query", "key", "value"), value.chunk(3), strict=True):
                out[f"bert.{head.replace('layers', 'layer')}attention.self.{part}.{kind}"] = tensor.contiguous()
        elif key.startswith("encoder.layers"):
            for ours, theirs in names.items():
                key = key.replace(f".{ours}.", f".{theirs}.")
            out["bert." + key.replace("layers", "layer")] = value
        else:
            out[key] = value
    return out


def as_torch_encoder(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same weights as a training script around ``nn.TransformerEncoder`` saves them."""
    out = {}
    for key, value in state.items():
        key = key.replace("input_projection", "input_proj").replace("encoder.layers", "transformer.layers")
        out[f"module.{key}"] = value.reshape(1, 1, -1) if key == "cls_token" else value
    return out


@pytest.mark.parametrize("family", [as_hf_bert, as_torch_encoder])
def test_either_key_family_loads(checkpoint, recordings, family):
    expected = load_encoder("fbert", checkpoint).embed(recordings, NAMES, 2.0)
    path = checkpoint / "model.safetensors"
    foreign = family(load_file(path))
    kept = {"cls_token", "input_projection.weight", "input_projection.bias"}
    assert not foreign.keys() & (load_file(path).keys() - kept)
    save_file(foreign, path)
    np.testing.assert_array_equal(load_encoder("fbert", checkpoint).embed(recordings, NAMES, 2.0), expected)


def misname(content: bytes) -> bytes:
    """Keys missing, unexpected, of another shape and not finite."""
    state = safetensors.torch.load(content)
    state["encoder.layers.1.linear1.extra"] = state.pop("encoder.layers.1.linear1.weight")
    state["pooler.dense.weight"] = torch.zeros(2)
    state["encoder.layers.0.norm1.bias"] = torch.zeros(5)
    state["encoder.layers.0.norm2.bias"] = torch.full((16,), float("nan"))
    return safetensors.torch.save(state)


@pytest.mark.parametrize(
    ("damage", "messages"),
    [
        (lambda b: b[: len(b) // 2], [r"model\.safetensors is damaged.*again"]),
        (lambda b: b"\xff" * 64 + b[64:], [r"model\.safetensors is damaged.*again"]),
        (lambda b: b[:-4] + bytes([b[-4] ^ 1]) + b[-3:], ["tensors are not those that were written"]),
        (
            misname,
            [
                "missing: encoder.layers.1.linear1.weight",
                "unexpected: encoder.layers.1.linear1.extra, pooler.dense.weight",
                "of another shape: encoder.layers.0.norm1.bias",
                "not finite: encoder.layers.0.norm2.bias",
            ],
        ),
    ],
)
def test_damaged_and_foreign_weights_are_named(checkpoint, damage, messages):
    """The third is the least bit of one number: it stays finite and near."""
    path = checkpoint / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError) as caught:
        load_encoder("fbert", checkpoint)
    assert all(re.search(message, str(caught.value)) for message in messages)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d": "8"}, "describes an impossible model: .*d must be a whole number"),
        ({"d": 10**9}, "describes an impossible model: .*parameters"),
        ({"licence": "CC-BY-4.0"}, r"not as it was written.*remove its entry 'proof'"),
        ({"licence": "CC-BY-4.0", "proof": None}, "has no proof of its weights"),
    ],
)
def test_a_changed_configuration_is_refused_and_may_be_meant(checkpoint, change, message):
    path = checkpoint / "config.json"
    facts = json.loads(path.read_text()) | change
    path.write_text(json.dumps({key: value for key, value in facts.items() if value is not None or key != "proof"}))
    with pytest.raises(CheckpointError, match=message):
        load_encoder("fbert", checkpoint)
    if "proof" in change:
        (checkpoint / "facts.json").write_text("{}")  # which states nothing
        with pytest.raises(CheckpointError, match=message):
            load_encoder("fbert", checkpoint)
        (checkpoint / "facts.json").write_text(json.dumps({"heads": facts["heads"]}))
        assert load_encoder("fbert", checkpoint).provenance()["licence"] == "CC-BY-4.0"


def test_hub_id_and_revision_are_passed_on(monkeypatch, checkpoint, recordings):
    asked = {}

    def download(repository, repo_type, revision=None, allow_patterns=None):
        asked.update(repository=repository, revision=revision, patterns=allow_patterns)
        return str(checkpoint)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    encoder = load_encoder("fbert", "owner/name", revision="v1")
    assert asked == {
        "repository": "owner/name",
        "revision": "v1",
        "patterns": ["config.json", "model.safetensors", "README.md"],
    }
    assert encoder.provenance()["revision"] == "v1"
    commit = checkpoint.parent / "models--owner--name" / "snapshots" / ("0123456789" * 4)
    shutil.copytree(checkpoint, commit)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(commit))
    assert load_encoder("fbert", "owner/name", revision="main").provenance()["revision"] == commit.name


def test_a_file_states_what_the_configuration_does_not(checkpoint, recordings):
    """As little as the card of a released model states, under its names."""
    expected = load_encoder("fbert", checkpoint).embed(recordings, NAMES, 2.0)
    raw = json.loads((checkpoint / "config.json").read_text())
    stated = {"n_regions": 12, "hidden_size": 16, "layers": 2, "heads": 4, "ff": 24}
    (checkpoint / "config.json").write_text(json.dumps(stated))
    with pytest.raises(CheckpointError, match=r"does not state activation.*roi_labels.*facts.json"):
        load_encoder("fbert", checkpoint)
    fields = ("activation", "norm_first", "final_norm", "norm_eps", "pe", "cls_position", "dropout", "roi_labels")
    file = checkpoint / "facts.json"
    file.write_text(json.dumps({field: raw[field] for field in fields} | {"window": 20}))
    encoder = load_encoder("fbert", checkpoint)
    np.testing.assert_array_equal(encoder.embed(recordings, NAMES, 2.0), expected)
    assert encoder.provenance()["config_sha256"] == [digest_of(file)]
    file.write_text(json.dumps({"num_attention_heads": 2}))
    with pytest.raises(CheckpointError, match="state heads differently; leave out what the model states itself"):
        load_encoder("fbert", checkpoint)


def test_a_name_with_a_size_takes_that_size_only(checkpoint, tmp_path):
    with pytest.raises(CheckpointError, match="width 16 with 2 layers and 4 heads, not fbert-1m"):
        load_encoder("fbert-1m", checkpoint)
    config = FBertConfig(12, **SIZES["fbert-1m"])
    save_checkpoint(tmp_path / "right", FBert(config), config, ModelCard(NAMES))
    assert load_encoder("fbert-1m", tmp_path / "right").provenance()["n_dimensions"] == 128
    path = tmp_path / "right" / "config.json"  # downloaded, of a model whose card alone states the size
    stated = {key: value for key, value in json.loads(path.read_text()).items() if key not in ("heads", "ff", "proof")}
    path.write_text(json.dumps(stated))
    with pytest.raises(
        CheckpointError, match=r"has no proof of its weights .* file facts.json beside it, or give the hub"
    ):
        load_encoder("fbert-1m", tmp_path / "right")
    (tmp_path / "right" / "facts.json").write_text(json.dumps({"heads": 4, "ff": SIZES["fbert-1m"]["ff"]}))
    assert load_encoder("fbert-1m", tmp_path / "right").model.config == config
    (tmp_path / "right" / "facts.json").unlink()
    with pytest.raises(CheckpointError, match="does not state heads, ff"):
        load_encoder("fbert", tmp_path / "right")


def test_released_weights_come_with_their_licence(checkpoint, monkeypatch, caplog):
    monkeypatch.setattr(embedding, "locate", lambda weights, revision: checkpoint)
    encoder = load_encoder("fbert", "Marraffini-Giovanni/fbert-1m")
    assert encoder.provenance()["licence"] == "CC BY-NC 4.0"
    assert "no commercial use" in caplog.text
    caplog.clear()
    load_encoder("fbert", checkpoint)
    assert not caplog.text


def test_random_init_is_a_seeded_control(recordings):
    first, again, other = (load_encoder("random-init", None, seed=seed, parcel_names=NAMES) for seed in (1, 1, 2))
    long = [np.random.default_rng(0).standard_normal((90, 12))]
    np.testing.assert_array_equal(first.embed(long, NAMES, 2.0), again.embed(long, NAMES, 2.0))
    assert np.abs(first.embed(long, NAMES, 2.0) - other.embed(long, NAMES, 2.0)).max() > 1e-3
    facts = first.provenance()
    assert facts["seed"] == 1
    assert facts["sha256"] is None
    assert "control" in facts["purpose"]


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


def forward(encoder, x, length):
    """Mean of what the model makes of consecutive windows of the z-scored recording."""
    z = ((x - x.mean(0)) / x.std(0, ddof=1)).astype(np.float32)
    windows = torch.from_numpy(z[: len(x) // length * length].reshape(-1, length, 12))
    with torch.no_grad():
        return encoder.model(windows).mean(0).numpy()


@pytest.mark.parametrize(
    ("read", "seconds", "length"),
    [
        ("sequence", 2.0, 150),
        ("windows", 2.0, 72),
        ("windows", 4.0, 36),
        ("windows", 3.0, 48),
        ("windows", np.nan, 30),
    ],
)
def test_a_recording_is_read_whole_or_in_consecutive_windows(encoder, read, seconds, length):
    """The paper's 144 seconds each: 72, 36 or 48 volumes; what is left at the end is no window."""
    x = 3 * np.random.default_rng(3).standard_normal((150, 12)) + 100
    expected = forward(encoder, x, length)
    np.testing.assert_allclose(encoder.embed([x], NAMES, seconds, read)[0], expected, rtol=0, atol=2e-6)


def test_parcels_are_matched_by_name(encoder, recordings):
    expected = encoder.embed(recordings[:1], NAMES, 2.0)
    order = np.random.default_rng(2).permutation(12)
    extra = np.full((40, 1), np.nan)
    shuffled = np.hstack([extra, recordings[0][:, order]])
    names = ["unknown", *(NAMES[i] for i in order)]
    np.testing.assert_array_equal(encoder.embed([shuffled], names, 2.0), expected)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(encoder.embed([recordings[0][:, order]], NAMES, 2.0), expected, atol=1e-6)


def test_missing_parcels_are_refused_at_loading_too(encoder, checkpoint, recordings):
    names, series = NAMES[:-2], recordings[0][:, :-2]
    with pytest.raises(RecordingError, match=r"2 parcels \(P10, P11\) of the 12 parcels.*toy"):
        encoder.embed([series], names, 2.0)
    assert encoder.provenance()["missing_parcels"] == "refused"
    with pytest.raises(RecordingError, match="12 parcels"):
        encoder.embed([series], [f"other{i}" for i in range(10)], 2.0)
    with pytest.raises(CheckpointError, match="P11"):
        load_encoder("fbert", checkpoint, parcel_names=NAMES[:-1])
    load_encoder("fbert", checkpoint, parcel_names=NAMES[::-1])


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
    embedding._warn_once.cache_clear()  # said once a run
    x = recordings[0][:length]
    np.testing.assert_allclose(encoder.embed([x], NAMES, 2.0, read)[0], forward(encoder, x, length), rtol=0, atol=2e-6)
    encoder.embed([x], NAMES, 2.0, read)
    assert caplog.text.count(f"{length} volumes are fewer than the 20 of the windows") == 1
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
