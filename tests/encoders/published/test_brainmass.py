"""What published encoders share, and BrainMass against a slow reference, its published layout, and its matrix."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fcpower_bids.encoders import ENCODERS, FURTHER, PUBLISHED, load_encoder
from fcpower_bids.encoders.checkpoints import CheckpointError, EncoderUnavailable
from fcpower_bids.encoders.fbert import count_parameters
from fcpower_bids.encoders.published.adapters import parcel_order, read_state, resample
from fcpower_bids.encoders.published.masked import BrainMass, BrainMassEncoder, BrainMassSize, shrunk_correlation
from fcpower_bids.errors import RecordingError, UsageError
from tests.encoders.published.references import (
    assert_embeds,
    doubles,
    noise,
    random_state,
    slow_attention,
    slow_norm,
    with_bias,
)

SIZE = BrainMassSize(layers=2, heads=10, ff=24)
NAMES = parcel_order("Schaefer100").names


def published_shapes(ff=2048, layers=16):
    shapes = with_bias({"dim_reduction.0": (8, 100)})
    for i in range(layers):
        block = {"self_attn.out_proj": (100, 100), "linear1": (ff, 100), "linear2": (100, ff)}
        block = with_bias(block | {"norm1": (100,), "norm2": (100,)})
        block |= {"self_attn.in_proj_weight": (300, 100), "self_attn.in_proj_bias": (300,)}
        shapes |= {f"attention_list.{i}.{name}": shape for name, shape in block.items()}
    return shapes


@pytest.fixture(scope="module")
def state():
    head = {"g.net.0.weight": (4, 800), "g.net.1.running_mean": (4,), "g.net.3.bias": (2,)}
    return random_state(published_shapes(24, 2) | head)


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
def test_embedding_equals_the_slow_reference_whatever_the_order_of_columns(tmp_path, state, protocol):
    path = tmp_path / "best_model.pth"
    torch.save({"online_network_state_dict": state, "target_network_state_dict": state}, path)
    series = noise(150, 100)
    expected = slow_embedding(state, shrunk_correlation(series))
    encoder = BrainMassEncoder.load(path, protocol=protocol, size=SIZE, parcel_names=NAMES)
    assert_embeds(encoder, series, NAMES, 0.8, expected)


def test_full_size_has_the_published_names_and_count():
    with torch.device("meta"):
        model = BrainMass(BrainMassSize())
        head = [torch.nn.Linear(800, 1600), torch.nn.BatchNorm1d(1600), torch.nn.Linear(1600, 1024)]
    assert {key: tuple(value.shape) for key, value in model.state_dict().items()} == published_shapes()
    assert count_parameters(model) == 7_241_576
    assert count_parameters(model) + sum(map(count_parameters, head)) == 10_165_800  # published with its head


def test_every_encoder_is_registered_and_asks_for_weights_and_what_belongs_to_them(tmp_path):
    assert set(PUBLISHED) < set(ENCODERS)
    (tmp_path / "weights.pth").write_bytes(b"")
    for name in ("fbert", "fbert-1m", *PUBLISHED):
        with pytest.raises(EncoderUnavailable, match=f"No weights were given for the encoder {name}") as caught:
            load_encoder(name, None, parcel_names=NAMES)
        assert caught.value.exit_code == 0
    for name in PUBLISHED:
        with pytest.raises(CheckpointError, match="There is no weights file"):
            load_encoder(name, tmp_path / "absent.pth")
        with pytest.raises(CheckpointError, match=r"holds neither model.safetensors nor pytorch_model.bin"):
            load_encoder(name, tmp_path)
        if name in FURTHER:
            with pytest.raises(UsageError, match=f"needs {FURTHER[name][0]} beside weights.pth"):
                load_encoder(name, tmp_path / "weights.pth")
    with pytest.raises(UsageError, match="no encoder protocol called 'mine'"):
        load_encoder("brainmass", None, protocol="mine")


class Malicious:
    def __reduce__(self):
        return print, ("this code must not run",)


def test_a_pickle_with_code_is_not_run(tmp_path, capsys):
    torch.save({"target_encoder": {"a": torch.zeros(1)}, "args": Malicious()}, tmp_path / "bad.pt")
    with pytest.raises(CheckpointError, match="holds more than tensors and is not loaded"):
        read_state(tmp_path / "bad.pt", nested="target_encoder")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Malicious(), protocol=2))
    with pytest.raises(CheckpointError):
        read_state(tmp_path / "plain.pt")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("atlas", ["Schaefer100", "Schaefer400", "Schaefer400x17", "Schaefer450", "Schaefer450x17"])
def test_every_spelling_is_found_in_any_order_by_name(atlas):
    order = parcel_order(atlas)
    for spelling in order.spellings:
        assert len(set(spelling)) == len(order)
        shuffle = np.random.default_rng(0).permutation(len(order))
        columns = order.match([spelling[i] for i in shuffle])
        np.testing.assert_array_equal(shuffle[columns], np.arange(len(order)))


@pytest.mark.shared
def test_orders_are_those_of_the_atlases(shared):
    folder = shared / "atlases" / "tpl-MNI152NLin6Asym"
    for atlas, name in (
        ("Schaefer2018_seg-7n_scale-400", "Schaefer400"),
        ("Schaefer2018_seg-7n_scale-100", "Schaefer100"),
        ("Schaefer2018TianS3_seg-7n_scale-450", "Schaefer450"),
    ):
        table = (folder / f"tpl-MNI152NLin6Asym_atlas-{atlas}_res-02_dseg.tsv").read_text().splitlines()[1:]
        assert tuple(row.split("\t")[1] for row in table) == parcel_order(name).names


def test_both_releases_are_the_same_parcels_in_the_blocks_of_their_networks():
    seven, seventeen = parcel_order("Schaefer400"), parcel_order("Schaefer400x17")
    columns = seven.match(seventeen.names)  # position among the 17-network names of each 7-network parcel
    assert sorted(columns) == list(range(400))
    for order, n_networks in ((seven, 7), (seventeen, 17)):
        for spelling in order.spellings[:1]:
            blocks = list(dict.fromkeys("_".join(name.split("_")[1:3]) for name in spelling))
            assert len(blocks) == 2 * n_networks  # each network once per hemisphere: no block is torn
            assert [name.split("_")[1] for name in spelling] == ["LH"] * 200 + ["RH"] * 200


def test_names_of_another_resolution_are_not_taken_for_those_of_this_one():
    """Every name of Schaefer 100 but for a few is also a name in Schaefer 400, of another parcel."""
    small, large = parcel_order("Schaefer100"), parcel_order("Schaefer400")
    assert len(set(small.names) & set(large.names)) > 50
    with pytest.raises(RecordingError, match="use --atlas Schaefer100"):
        small.match(large.names)
    with pytest.raises(RecordingError, match="use --atlas Schaefer100"):
        small.match([*small.names, "7Networks_LH_Vis_30"])
    assert len(small.match([*small.names, "HIP-head-m-rh"])) == 100


@pytest.mark.parametrize("form", ["parcel{:03d}", "parcel{:04d}", "{}"])
def test_parcels_without_names_are_those_of_the_one_atlas_that_has_so_many(form):
    names = [form.format(label) for label in range(500, 0, -1)]
    np.testing.assert_array_equal(parcel_order("A424").match(names[-424:]), np.arange(424)[::-1])
    for wrong in (names, names[-425:], names[-423:]):
        with pytest.raises(RecordingError, match="use --atlas A424"):
            parcel_order("A424").match(wrong)


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.integers(10, 60), st.floats(0.3, 1.9))
def test_resampling_keeps_straight_lines_and_never_goes_beyond_the_recording(n, time):
    line = np.arange(n)[:, None] * time * [[2.0, -1.0]] + 5
    out = resample(line, time, 2.0)
    expected = np.arange(len(out))[:, None] * 2.0 * [[2.0, -1.0]] + 5
    np.testing.assert_allclose(out, expected, atol=1e-9)
    assert (len(out) - 1) * 2.0 <= (n - 1) * time + 1e-6 < len(out) * 2.0 + 1e-6
