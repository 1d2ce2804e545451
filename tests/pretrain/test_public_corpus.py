"""The layout of the public corpus, through the command: what is read, what is refused."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.pretrain import corpus as public_corpus
from fcpower_bids.pretrain.corpus import open_pack
from tests.pretrain.conftest import NAMES, made_recordings
from tests.pretrain.outputs import PACKED, plant_outputs, read_log, run_pretrain, write_public

WINDOW = 20


@pytest.fixture
def public(written):
    """A corpus in the public layout."""
    return written / "public"


def test_training_on_it_is_training_on_our_pack_of_the_same_windows(tmp_path):
    """Recordings of one window each, so that both layouts hold the same windows."""
    short = [(facts, series[:WINDOW]) for facts, series in made_recordings()]
    plant_outputs(tmp_path, short)
    assert run_pretrain(tmp_path) == 0
    write_public(tmp_path / "out" / "corpus", tmp_path / "public")
    named = ("--corpus", tmp_path / "public", "--roi-labels", tmp_path / "public" / "parcels.txt")
    assert run_pretrain(tmp_path, *named, out="elsewhere") == 0
    pd.testing.assert_frame_equal(read_log(tmp_path / "elsewhere" / "encoder"), read_log(tmp_path / "out" / "encoder"))
    configs = [json.loads((tmp_path / out / "encoder/model/config.json").read_text()) for out in ("out", "elsewhere")]
    assert [config["tr_range"] for config in configs] == [[2.0, 2.5], None]
    assert configs[0]["roi_labels"] == configs[1]["roi_labels"] == NAMES


def test_every_window_drawn_is_a_stored_one_of_its_recording(public, tmp_path):
    public_corpus.prepare_corpus(public, tmp_path / "run")
    corpus = public_corpus.open_corpus(public, tmp_path / "run", NAMES)
    stored, owners = np.load(public / "windows.npy"), np.load(public / "window_to_recording.npy")
    rows, places = np.array([31, 0, 7]), np.array([1, 0, 1])
    cut = corpus.windows(rows, places, WINDOW).numpy()
    for window, row, place in zip(cut, rows, places, strict=True):
        np.testing.assert_array_equal(window.T, stored[np.flatnonzero(owners == row)[place]])
    np.testing.assert_array_equal(corpus.places(WINDOW), np.bincount(owners))
    np.testing.assert_array_equal(corpus.places(WINDOW - 4), 5 * np.bincount(owners))
    shorter = corpus.windows(rows, np.array([9, 0, 7]), WINDOW - 4).numpy()  # 9 = window 1, shifted by 4
    np.testing.assert_array_equal(shorter[0].T, stored[np.flatnonzero(owners == 31)[1]][:, 4:])
    assert corpus.places(WINDOW + 1).sum() == 0


def test_the_released_files_alone_need_the_names_of_the_parcels(public, tmp_path, capsys):
    assert run_pretrain(tmp_path, "--corpus", public, out="new") == 3
    assert "with roi_labels, a FILE" in capsys.readouterr().err
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(f"Region{i}" for i in range(10)) + "\n")
    assert run_pretrain(tmp_path, "--corpus", public, "--roi-labels", labels, out="new") == 0
    config = json.loads((tmp_path / "new/encoder/model/config.json").read_text())
    assert config["roi_labels"][:2] == ["Region0", "Region1"]
    assert config["tr_range"] is None
    labels.write_text("Region0\n")
    assert run_pretrain(tmp_path, "--corpus", public, "--roi-labels", labels, out="other") == 3
    assert "has 10 parcels and 1 different names" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "harm", "told"),
    [
        ("windows", lambda a: np.ascontiguousarray(a.T).reshape(a.shape), "are not those that its teacher"),
        ("windows", lambda a: a[:-1], "window_to_recording.npy"),
        ("window_to_recording", lambda a: a + 1, "points outside recordings.json"),
        ("teachers", lambda a: a[:, :-1], "teachers.npy has the shape"),
    ],
)
def test_files_that_do_not_fit_each_other_are_named(public, tmp_path, capsys, name, harm, told):
    np.save(public / f"{name}.npy", harm(np.load(public / f"{name}.npy")))
    assert run_pretrain(tmp_path, "--corpus", public, out="new") == 3
    assert told in capsys.readouterr().err
    assert not (tmp_path / "new" / "encoder" / "model").exists()


def test_nothing_is_packed_into_it_and_a_pack_alone_is_enough(public, tmp_path, capsys):
    assert run_pretrain(tmp_path, "--corpus", public, quick=PACKED) == 2
    assert "to which nothing is added" in capsys.readouterr().err
    assert run_pretrain(tmp_path, "--corpus", tmp_path / "out" / "corpus", out="only_pack") == 0
    assert "holds no series to add" in capsys.readouterr().err


def test_both_layouts_agree_on_the_windows_that_share_no_volume(public, tmp_path, tables):
    pack = open_pack(tmp_path / "out" / "corpus")
    public_corpus.prepare_corpus(public, tmp_path / "run")
    layout = public_corpus.open_corpus(public, tmp_path / "run", NAMES)
    counts = [
        pd.Series(each.windows_apart(WINDOW), each.table["subject"]).groupby(level=0).sum() for each in (pack, layout)
    ]
    assert (
        counts[0].sum()
        == counts[1].sum()
        == sum(len(pd.read_csv(path, sep="\t")) // WINDOW for path in tables.values())
    )
