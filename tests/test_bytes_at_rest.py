"""Outputs of the participant level with one byte changed on the disk, which still can be read: each is named."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from fcpower_bids.cli.run import main
from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.outputs.tables import read_table
from fcpower_bids.store import DIGESTS, digest_of
from tests.running import run_app

CHANGED = "was changed after it was written"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Outputs as tables, and as arrays, of the same people."""
    folder = tmp_path_factory.mktemp("written")
    make_dataset(folder / "in", DemoDesign.tiny(subjects=6, sessions=1))
    for name, options in (("tables", ()), ("arrays", ("--compact",))):
        assert run_app(folder / "in", folder / name, "--atlas", "builtin", "--quiet", *options).code == 0
    return folder


@pytest.fixture
def start(written, tmp_path, capsys):
    def start(kind, level, *options):
        code = main([str(written / "in"), str(tmp_path / kind), level, "-w", str(tmp_path / "w"), "--quiet", *options])
        return code, capsys.readouterr().err

    for kind in ("tables", "arrays"):
        shutil.copytree(written / kind, tmp_path / kind)
    return start


GROUP = ("--min-time", "0", "--drop-people-missing", "1", "--analyses", "spectrum_geometry")


def change(path):
    """Change one digit in the middle of a table, or one bit of a number in the middle of an array."""
    content = bytearray(path.read_bytes())
    place = len(content) // 2 // 8 * 8 + 2
    if path.suffix == ".npy":
        content[place] ^= 0x40
    else:
        place = next(at for at in range(place, len(content)) if chr(content[at]) in "123")
        content[place] ^= 0x04
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        ("tables", "_stat-mean_timeseries.tsv"),
        ("arrays", "_stat-mean_timeseries.npy"),
        ("tables", "_stat-pearsoncorrelation_relmat.npy"),
        ("tables", "_desc-fcpower_qc.tsv"),
    ],
)
def test_a_changed_file_leaves_its_recording_out_by_name(start, tmp_path, kind, ending):
    (path,) = (tmp_path / kind).rglob(f"sub-02_*{ending}")
    change(path)
    code, err = start(kind, "group", *GROUP)
    assert code == 0, err
    (row,) = read_table(tmp_path / kind / "group" / "excluded.tsv").query("what == 'recording'").to_dict("records")
    assert row["participant_id"] == "sub-02"
    assert f"{path.name} {CHANGED} ({path.with_suffix('.json').name} has another SHA-256)" in row["reason"]
    assert "emove " in row["reason"]
    assert len(read_table(tmp_path / kind / "group" / "scans.tsv")) == 5


def test_the_remedy_of_the_sentence_is_one(start, tmp_path, written):
    (path,) = (tmp_path / "tables").rglob("sub-02_*_timeseries.tsv")
    change(path).unlink()
    assert run_app(written / "in", tmp_path / "tables", "--atlas", "builtin", "--quiet").code == 0
    assert path.read_bytes() == next((written / "tables").rglob(path.name)).read_bytes()
    assert start("tables", "group", *GROUP)[0] == 0
    assert len(read_table(tmp_path / "tables" / "group" / "scans.tsv")) == 6


def test_a_file_without_a_digest_is_read_as_it_is(start, tmp_path):
    """Those of former versions have none, nor has one whose digest was taken out on purpose."""
    (path,) = (tmp_path / "tables").rglob("sub-02_*_timeseries.tsv")
    sidecar = change(path).with_suffix(".json")
    facts = json.loads(sidecar.read_text())
    assert facts.pop(DIGESTS).keys() == {".tsv"}
    sidecar.write_text(json.dumps(facts))
    assert start("tables", "group", *GROUP)[0] == 0
    assert len(read_table(tmp_path / "tables" / "group" / "scans.tsv")) == 6


def test_every_table_and_array_has_its_digest(written):
    data = [path for kind in ("tables", "arrays") for path in (written / kind).rglob("func/*")]
    data = [path for path in data if path.suffix in (".tsv", ".npy")]
    assert len(data) > 80
    for path in data:
        assert json.loads(path.with_suffix(".json").read_text())[DIGESTS][path.suffix] == digest_of(path)


def test_pack_names_a_changed_series_and_packs_nothing(start, tmp_path):
    (path,) = (tmp_path / "arrays").rglob("sub-02_*_timeseries.npy")
    change(path)
    code, err = start("arrays", "pack")
    assert code == 4
    assert f"{path} {CHANGED}" in err
    assert "remove it and run the participant level on it again" in err
    assert not (tmp_path / "arrays" / "corpus" / "pack.json").exists()


def test_the_digest_goes_along_where_outputs_are_combined(start, tmp_path):
    (path,) = (tmp_path / "tables").rglob("sub-02_*_relmat.npy")
    change(path)
    assert main(["combine", str(tmp_path / "whole"), str(tmp_path / "tables")]) == 0
    assert start("whole", "group", *GROUP)[0] == 0
    told = read_table(tmp_path / "whole" / "group" / "excluded.tsv")
    (row,) = [row for row in told.to_dict("records") if CHANGED in row["reason"]]
    assert row["participant_id"] == "sub-02"


def test_an_embedding_that_was_changed_is_none(start, tmp_path):
    from fcpower_bids.outputs.tables import describe_files, write_matrix

    for fc in (tmp_path / "tables").rglob("*_stat-pearsoncorrelation_relmat.tsv"):
        path = fc.with_name(fc.name.replace("_stat-pearsoncorrelation_relmat", "_desc-other_embedding"))
        seed = int(fc.name[4:6])
        write_matrix(path, np.random.default_rng(seed).standard_normal((1, 8)), [f"dim{i:04d}" for i in range(8)])
        describe_files({"sha256": "ab"}, path)
    (path,) = (tmp_path / "tables").rglob("sub-02_*_embedding.tsv")
    change(path)
    code, err = start("tables", "group", *GROUP)
    assert code == 0, err
    (row,) = (
        read_table(tmp_path / "tables" / "group" / "excluded.tsv")
        .query("what == 'value' and participant_id == 'sub-02'")
        .to_dict("records")
    )
    assert row["reason"].startswith(f"no embedding 'other': {path.name} {CHANGED}")
