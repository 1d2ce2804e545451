"""Stored series of other programs get the embedding that the group level is asked for."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.checkpoints import ModelCard, save_checkpoint
from fcpower_bids.encoders.fbert import FBert, FBertConfig
from tests.command import main

PARCELS = tuple(f"parcel{number:04d}" for number in range(1, 7))


def save_weights(folder, seed):
    config = FBertConfig(n_parcels=len(PARCELS), d=8, layers=1, heads=2, ff=16)
    card = ModelCard(roi_labels=PARCELS, atlas="listed", alpha=0.35, window=10)
    save_checkpoint(folder, FBert(config, seed=seed), config, card)
    return folder


@pytest.fixture
def listed(tmp_path):
    """Six people; a parcel of the last one has no signal."""
    random, rows = np.random.default_rng(1), []
    for number in range(1, 7):
        series = random.normal(size=(30, len(PARCELS)))
        series[:, 0] *= number < 6
        np.save(tmp_path / f"{number}.npy", series)
        rows.append({"participant_id": f"sub-{number}", "session_id": "a", "path": f"{number}.npy", "kind": "series"})
    pd.DataFrame(rows).to_csv(tmp_path / "list.tsv", sep="\t", index=False)
    (tmp_path / "bids").mkdir()
    return tmp_path


def group(folder, weights, *options):
    source = ("-d", f"list={folder / 'list.tsv'}", "--analyses", "spectrum_geometry", "--quiet")
    encoder = ("--encoder", "fbert", "--encoder-weights", str(weights))
    return main([str(folder / "bids"), str(folder / "out"), "group", *source, *encoder, *options])


def vectors(folder):
    return {path.name[:5]: path for path in sorted((folder / "out").rglob("*_desc-fbert_embedding.tsv"))}


def test_series_are_embedded_once_and_anew_with_other_weights_or_when_they_can_be(listed, capsys):
    weights = save_weights(listed / "model", 1)
    assert group(listed, weights) == 4
    assert "1 of 6 stored series could not be embedded (sub-6_ses-a_task-rest)" in capsys.readouterr().err
    found = vectors(listed)
    assert sorted(found) == [f"sub-{number}" for number in range(1, 6)]
    before = {name: path.stat().st_mtime_ns for name, path in found.items()}
    group(listed, weights)
    assert {name: path.stat().st_mtime_ns for name, path in vectors(listed).items()} == before
    assert group(listed, weights, "--encoder-read", "windows", "--replace") == 4
    (status,) = (listed / "out" / "logs" / "status").glob("*_embedding.json")
    assert status.stem.endswith("_desc-fbertwindows_embedding"), "the failure of the encoder of before is forgotten"
    shutil.rmtree(weights)
    encoder = load_encoder("fbert", save_weights(weights, 2))
    np.save(listed / "6.npy", np.random.default_rng(2).normal(size=(30, len(PARCELS))))
    assert group(listed, weights, "--replace") == 0
    assert not list((listed / "out" / "logs" / "status").glob("*_embedding.json"))
    for number in range(1, 7):
        series = np.load(listed / f"{number}.npy")
        written = pd.read_csv(vectors(listed)[f"sub-{number}"], sep="\t").to_numpy()[0]
        np.testing.assert_allclose(written, encoder.embed([series], PARCELS, np.nan)[0], atol=1e-5)


def test_only_what_the_command_selects_is_embedded(listed):
    table = pd.read_csv(listed / "list.tsv", sep="\t", dtype=str)
    pd.concat([table, table.assign(session_id="b")]).to_csv(listed / "list.tsv", sep="\t", index=False)
    weights, some = save_weights(listed / "model", 1), ("--participant-label", "1", "2", "3")
    assert group(listed, weights, *some, "--session-label", "b") == 0
    found = sorted(path.name for path in (listed / "out").rglob("*_desc-fbert_embedding.tsv"))
    assert [name[:11] for name in found] == ["sub-1_ses-b", "sub-2_ses-b", "sub-3_ses-b"]
    assert group(listed, weights, *some, "--session-label", "a", "--atlas", "other") == 3
    assert len(list((listed / "out").rglob("*_desc-fbert_embedding.tsv"))) == 3
