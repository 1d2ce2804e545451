"""What published encoders share: orders of parcels, resampling, windows, files, licences."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fcpower_bids.encoders import ENCODERS, PUBLISHED, load_encoder
from fcpower_bids.encoders.checkpoints import CheckpointError, EncoderUnavailable
from fcpower_bids.encoders.published.adapters import (
    Attention,
    read_number_table,
    read_state,
    resample,
    z_scored,
)
from fcpower_bids.encoders.published.parcel_orders import ParcelOrder, match_labels, parcel_order
from fcpower_bids.errors import RecordingError, UsageError


def test_every_published_encoder_is_registered_and_asks_for_weights_and_licence(tmp_path):
    assert set(PUBLISHED) < set(ENCODERS)
    (tmp_path / "weights.pth").write_bytes(b"")
    for name in PUBLISHED:
        with pytest.raises(EncoderUnavailable, match=f"No weights were given for the encoder {name}"):
            load_encoder(name, None, accept_licence=True)
        with pytest.raises(UsageError, match=f"The weights of {name} are not free"):
            load_encoder(name, tmp_path / "weights.pth")
        with pytest.raises(CheckpointError, match="There is no weights file"):
            load_encoder(name, tmp_path / "absent.pth", accept_licence=True)
        with pytest.raises(CheckpointError, match=r"holds neither model.safetensors nor pytorch_model.bin"):
            load_encoder(name, tmp_path, accept_licence=True)
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


def test_prefixes_are_taken_off_and_other_models_left_out(tmp_path):
    inside = {"module.encoder_ema.a.weight": torch.ones(2), "encoder_ema.b": torch.ones(1), "encoder.c": torch.ones(3)}
    torch.save({"nest": inside}, tmp_path / "w.pt")
    assert set(read_state(tmp_path / "w.pt", "nest", "encoder_ema.")) == {"a.weight", "b"}
    torch.save({"nest": {"a": 3}}, tmp_path / "number.pt")
    with pytest.raises(CheckpointError, match="no tensors under 'nest'"):
        read_state(tmp_path / "number.pt", "nest")
    torch.save([torch.ones(2)], tmp_path / "list.pt")
    with pytest.raises(CheckpointError, match="no tensors under 'nest'"):
        read_state(tmp_path / "list.pt", "nest")
    with pytest.raises(CheckpointError, match="has no tensors, so it is no checkpoint"):
        read_state(tmp_path / "list.pt")


def test_tables_of_numbers_are_checked(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("x,1,2\n0,3.5,4\n1,5,6\n")
    np.testing.assert_array_equal(read_number_table(path, 2, 2, labelled=True), [[3.5, 4], [5, 6]])
    with pytest.raises(CheckpointError, match="is not a table of numbers"):
        read_number_table(path, 3, 3)
    path.write_text("1,nan\n2,3\n")
    with pytest.raises(CheckpointError, match="not 2 by 2 finite numbers"):
        read_number_table(path, 2, 2)
    with pytest.raises(CheckpointError, match="is not a table of numbers"):
        read_number_table(tmp_path / "absent.csv", 2, 2)


def test_attention_over_many_tokens_needs_no_square_matrix():
    """7,200 tokens and 12 heads: the matrix alone would be 2.5 GB; torch's own account says what was taken."""
    attention = Attention(24, 12).requires_grad_(False)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        attention(torch.randn(1, 7200, 24))
    assert max(event.cpu_memory_usage for event in profile.events()) < 100e6


# ------------------------------------------------------------------------------------------------------------ parcels


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
    ):
        table = (folder / f"tpl-MNI152NLin6Asym_atlas-{atlas}_res-02_dseg.tsv").read_text().splitlines()[1:]
        assert tuple(row.split("\t")[1] for row in table) == parcel_order(name).names
    table = folder / "tpl-MNI152NLin6Asym_atlas-Schaefer2018TianS3_seg-7n_scale-450_res-02_dseg.tsv"
    assert tuple(row.split("\t")[1] for row in table.read_text().splitlines()[1:]) == parcel_order("Schaefer450").names


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


def test_labels_are_read_from_names():
    names = [f"parcel{label:03d}" for label in (3, 1, 2)]
    np.testing.assert_array_equal(match_labels(names, 3), [1, 2, 0])
    np.testing.assert_array_equal(match_labels(["2", "1", "3"], 3), [1, 0, 2])
    np.testing.assert_array_equal(match_labels(["A424_12", *[f"A424_{i}" for i in range(1, 12)]], 12)[[11, 0]], [0, 1])
    for wrong in (["parcel1", "parcel2"], ["parcel1", "parcel2", "parcel4"], ["a", "b", "c"], ["p1", "q1", "p2"]):
        with pytest.raises(RecordingError, match="not the labels 1 to 3"):
            match_labels(wrong, 3)


def test_unknown_orders_are_refused():
    with pytest.raises(UsageError, match="no parcel order called 'AAL'"):
        parcel_order("AAL")
    order = ParcelOrder("toy", (("a", "b"),))
    with pytest.raises(RecordingError, match="two parcels of the same name"):
        order.match(["a", "b", "a"])


# ------------------------------------------------------------------------------------------------------------- series


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.integers(10, 60), st.floats(0.3, 1.9))
def test_resampling_keeps_straight_lines_and_never_goes_beyond_the_recording(n, time):
    line = np.arange(n)[:, None] * time * [[2.0, -1.0]] + 5
    out = resample(line, time, 2.0)
    expected = np.arange(len(out))[:, None] * 2.0 * [[2.0, -1.0]] + 5
    np.testing.assert_allclose(out, expected, atol=1e-9)
    assert (len(out) - 1) * 2.0 <= (n - 1) * time + 1e-6 < len(out) * 2.0 + 1e-6


def test_z_scores_without_variance_are_zero():
    series = np.column_stack([np.full(9, 3.0), np.arange(9.0)])
    scored = z_scored(series)
    assert (scored[:, 0] == 0).all()
    assert scored[:, 1].std() == pytest.approx(1)
