"""Prefetching weights: a checked copy in a folder, and no network afterwards."""

from __future__ import annotations

import pytest

from fcpower_bids.cli import commands
from fcpower_bids.cli.commands import fetch_weights
from fcpower_bids.cli.commands import prefetch as main
from fcpower_bids.encoders import HUB_IDS, checkpoints
from fcpower_bids.encoders.checkpoints import ModelCard, read_config, save_checkpoint
from fcpower_bids.encoders.fbert import FBert, FBertConfig
from fcpower_bids.errors import DatasetError
from fcpower_bids.store import digest_of

SMALL = FBertConfig(3, d=8, layers=1, heads=2, ff=16)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with one checkpoint and a file that nobody needs; it remembers what was asked of it."""
    folder = tmp_path / "hub"
    save_checkpoint(folder, FBert(SMALL, 0), SMALL, ModelCard(("a", "b", "c")))
    (folder / "pickle.bin").touch()
    asked = []

    def locate(weights, revision=None):
        asked.append((weights, revision))
        return folder

    monkeypatch.setattr(checkpoints, "locate", locate)
    return asked


def test_weights_are_copied_with_checksums_and_fetched_once(hub, tmp_path, capsys):
    target = tmp_path / "fetched"
    assert main(["--folder", str(target), "--weights", "fbert-1m"]) == 0
    assert hub == [(HUB_IDS["fbert-1m"], None)]
    folder = target / "weights" / "fbert-1m"
    listed = [line.split("\t") for line in (folder / commands.CHECKSUMS).read_text().splitlines()[1:]]
    assert {name: int(size) for name, _, size in listed} == {
        path.name: path.stat().st_size for path in folder.iterdir() if path.name != commands.CHECKSUMS
    }
    assert all(digest_of(folder / name) == digest for name, digest, _ in listed)
    assert read_config(folder)[1].roi_labels == ("a", "b", "c")
    assert not (folder / "pickle.bin").exists()
    told = capsys.readouterr().out
    assert f"--encoder-weights {folder}" in told
    assert "CC BY-NC 4.0" in told
    main(["--folder", str(target), "--weights", "fbert-1m"])
    assert len(hub) == 1, "what is there is verified, not fetched again"


@pytest.mark.parametrize("harm", ["change", "remove"])
def test_weights_that_changed_are_noticed(hub, tmp_path, harm):
    folder = fetch_weights("owner/name", tmp_path / "name")
    assert hub == [("owner/name", None)]
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0") if harm == "change" else weights.unlink()
    with pytest.raises(DatasetError, match=r"model\.safetensors is not what was fetched"):
        fetch_weights("owner/name", folder)


def test_atlases_are_fetched_by_default_and_left_out_when_weights_are_asked_for(hub, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "fcpower_bids.imaging.atlas.prefetch_atlases",
        lambda names, *_: asked.append(names) or tmp_path / "checksums.tsv",
    )
    main(["--folder", str(tmp_path)])
    main(["--folder", str(tmp_path), "--weights", "fbert-1m"])
    main(["--folder", str(tmp_path), "--weights", "fbert-1m", "--atlas", "Schaefer100"])
    assert asked == [["Schaefer400"], ["Schaefer100"]]
