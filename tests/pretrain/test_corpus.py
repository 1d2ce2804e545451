"""The corpus in both layouts: what is packed is what was written, how it grows, and what is refused."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from fcpower_bids.core.connectome import pearson_connectivity, spectral_power
from fcpower_bids.encoders import CORPUS_ID
from fcpower_bids.errors import DatasetError
from fcpower_bids.pretrain import corpus as public_corpus
from fcpower_bids.pretrain import packing as preparation
from fcpower_bids.pretrain.corpus import open_pack, teacher_kernel, teacher_vector_and_rank
from fcpower_bids.pretrain.packing import pack_corpus
from fcpower_bids.store import beside
from fcpower_bids.workflows import pretraining
from tests.pretrain.conftest import NAMES, as_sources, made_recordings
from tests.pretrain.outputs import PACKED, in_child, plant_outputs, read_log, run_pretrain, write_public
from tests.referee import power_edges
from tests.running import is_alive, run, wait_for


def packed_table(folder) -> pd.DataFrame:
    return pd.read_csv(folder / "out" / "corpus" / "recordings.tsv", sep="\t", index_col="id")


def test_packed_series_are_the_written_tables_and_the_teacher_is_theirs(tmp_path, tables):
    """The files of the pack are read with nothing of the program."""
    series, places = np.load(tmp_path / "out" / "corpus" / "series.npy").astype(float), packed_table(tmp_path)
    packed = {name: series[row["offset"] : row["offset"] + row["T"]] for name, row in places.iterrows()}
    assert packed.keys() == tables.keys()
    for name, path in tables.items():
        table = pd.read_csv(path, sep="\t").to_numpy()
        z = (table - table.mean(0)) / table.std(0, ddof=1)
        np.testing.assert_allclose(packed[name], z, rtol=2**-10, atol=1e-6)
    vectors = np.load(tmp_path / "out" / "corpus" / "teacher.npy")
    kernel = load_file(tmp_path / "out" / "corpus" / "teacher_kernel.safetensors")["kernel"]
    positions = places["position"]
    edges = {name: power_edges(np.corrcoef(series.T), 0.35) for name, series in packed.items()}
    for name in tables:
        assert np.corrcoef(edges[name], vectors[positions[name]])[0, 1] > 0.9999
    np.testing.assert_allclose(kernel, np.corrcoef([edges[name] for name in positions.index]), rtol=0, atol=2e-3)


@pytest.mark.parametrize("size", [100, 1, 4])
def test_blocks_of_the_kernel_do_not_matter(tmp_path, size):
    vectors, rows = np.random.default_rng(0).standard_normal((15, 190)), np.array([*range(10), 13])
    np.save(tmp_path / "vectors.npy", vectors.astype(np.float32))
    kernel = teacher_kernel(tmp_path / "vectors.npy", rows, size)
    np.testing.assert_allclose(kernel, np.corrcoef(vectors[rows]), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(kernel, kernel.T)
    np.testing.assert_array_equal(np.diag(kernel), 1)


def flip(place: int):
    def change(path) -> None:
        content = bytearray(path.read_bytes())
        content[place] ^= 0x80  # the sign of a sample, or a bit of the kernel
        path.write_bytes(content)

    return change


def exchange_rows(path) -> None:
    head, first, second, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([head, second, first, *rest]))


def exchange_axes(path) -> None:
    stored = np.load(path)
    np.save(path, np.ascontiguousarray(stored.T).reshape(stored.shape))


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("out/corpus/series.npy", flip(-1), "checksum differs"),
        ("out/corpus/series.npy", lambda p: p.write_bytes(p.read_bytes()[:-99]), "checksum differs"),
        ("out/corpus/teacher.npy", flip(-1), "checksum differs"),
        ("out/corpus/teacher_kernel.safetensors", flip(-3), "checksum differs"),
        ("out/corpus/recordings.tsv", exchange_rows, "checksum differs"),
        ("public/windows.npy", exchange_axes, "are not those that its teacher"),
        ("public/teachers.npy", lambda p: np.save(p, np.load(p) * [np.nan, *[1] * 44]), "lacks a value"),
        ("public/window_to_recording.npy", lambda p: np.save(p, np.load(p) + 1), "points outside recordings.json"),
        ("public/parcels.txt", lambda p: p.write_text(p.read_text().replace(*NAMES[3:1:-1])), "different names for"),
        ("public/parcels.txt", Path.unlink, "in a file parcels.txt"),
    ],
)
def test_a_changed_file_of_a_corpus_is_named_and_trains_nothing(written, name, change, told):
    path = written / name
    change(path)
    if path.name in ("teacher_kernel.safetensors", "recordings.tsv"):  # also where it is packed again first
        run(written / "bids", written / "out", "pretrain", *PACKED)
    words, out = (("--corpus", path.parent), "new") if name.startswith("public") else ((), "out")
    shown = run_pretrain(written, *words, out=out, code=3).err
    assert told in shown
    assert path.name in shown
    assert not (written / out / "encoder").exists()


def pack_bytes(folder, out="out") -> dict[str, bytes]:
    """Files of a pack; the place of its outputs, and digests of it, as in a corpus within them."""
    packed = {str(path.relative_to(folder / out)): path.read_bytes() for path in (folder / out / "corpus").rglob("*")}
    table = packed.pop("corpus/recordings.tsv").decode()
    place = pd.read_csv(io.StringIO(table), sep="\t", dtype=str)["place"].unique().item()
    facts = json.loads(packed.pop("corpus/pack.json"))
    facts.pop("pack_sha256")
    facts["files"].pop("recordings.tsv")
    return packed | {"table": table.replace(place, "").encode(), "facts": json.dumps(facts).encode()}


def test_a_killed_run_goes_on_from_what_it_wrote_and_many_pack_the_same_bytes(tmp_path, unpacked, monkeypatch):
    computed = []
    original = preparation.teacher_vector_and_rank
    monkeypatch.setattr(preparation, "WAITING", 4 * (58 * 10 * 2 + 45 * 4))  # four recordings or five
    series = tmp_path / "out" / "corpus" / "series.npy"

    def compute_until_killed(*given):
        if len(computed) == 22:
            signal.raise_signal(signal.SIGKILL)
        computed.append(given)
        return original(*given)

    with monkeypatch.context() as patch:
        patch.setattr(preparation, "teacher_vector_and_rank", compute_until_killed)
        assert in_child(lambda: run_pretrain(tmp_path, quick=PACKED).code) == -signal.SIGKILL
    assert 15 < (kept := len(packed_table(tmp_path))) < 22
    beside(tmp_path / "out" / "corpus" / "recordings.tsv").touch()  # as when the signal comes while it writes
    with series.open("ab") as file:
        file.write(b"half of a recording")
    run_pretrain(tmp_path, "--corpus", tmp_path / "out" / "corpus", out="none", code=3)  # nothing is trained on it
    monkeypatch.setattr(preparation, "teacher_vector_and_rank", lambda *a: computed.append(a) or original(*a))
    run_pretrain(tmp_path, quick=PACKED)
    assert len(computed) == len(unpacked) - kept
    run_pretrain(tmp_path, "--corpus", tmp_path / "other" / "corpus", "--nprocs", "2", quick=PACKED)
    assert pack_bytes(tmp_path) == pack_bytes(tmp_path, "other")
    corpus, rows, places = open_pack(tmp_path / "out" / "corpus"), np.array([31, 0, 12]), np.array([1, 0, 3])
    for row, place, window in zip(rows, places, corpus.windows(rows, places, WINDOW).numpy(), strict=True):
        table = pd.read_csv(unpacked[corpus.table["id"][row]], sep="\t").to_numpy()
        z = (table - table.mean(0)) / table.std(0, ddof=1)
        np.testing.assert_allclose(window, z[place : place + WINDOW], rtol=2**-10, atol=1e-6)


def test_unchanged_tables_are_not_read_again_and_what_is_said_of_them_is_kept_up(tmp_path, tables, monkeypatch):
    run_pretrain(tmp_path, quick=PACKED)
    changed = sorted(tables)[3]
    table = pd.read_csv(tables[changed], sep="\t")
    (table**3).to_csv(tables[changed], sep="\t", index=False)
    people = pd.DataFrame({"participant_id": [f"sub-{i:02d}" for i in range(16)], "house": [i // 2 for i in range(16)]})
    people.to_csv(tmp_path / "bids" / "participants.tsv", sep="\t", index=False)
    read = []
    original = pretraining.read_series
    monkeypatch.setattr(pretraining, "read_series", lambda path, *rest: read.append(path) or original(path, *rest))
    run_pretrain(tmp_path, "--family-column", "house", quick=PACKED)
    assert read == [tables[changed]]
    family = packed_table(tmp_path)["family"]
    assert family[sorted(tables)[0]] == 0
    assert family.nunique() == 8
    run_pretrain(tmp_path, quick=PACKED)
    pd.testing.assert_series_equal(packed_table(tmp_path)["family"], family)
    of_a_new_run = tables[sorted(tables)[0]].parent
    for path in list(of_a_new_run.iterdir()):  # of somebody who is known
        (path.with_name(path.name.replace("_task-rest", "_task-rest_run-2"))).write_bytes(path.read_bytes())
    run_pretrain(tmp_path, quick=PACKED)
    again = packed_table(tmp_path)["family"]
    assert again[again.index.str.contains("run-2")].tolist() == [0]
    for path in of_a_new_run.glob("*run-2*"):
        path.unlink()
    assert "the corpus keeps what it has as family" in run_pretrain(tmp_path, quick=PACKED).err
    assert len(np.load(tmp_path / "out" / "corpus" / "teacher.npy")) == len(tables) + 3
    kernel = load_file(tmp_path / "out" / "corpus" / "teacher_kernel.safetensors")["kernel"]
    run_pretrain(tmp_path, "--corpus", tmp_path / "other" / "corpus", quick=PACKED)
    fresh = load_file(tmp_path / "other" / "corpus" / "teacher_kernel.safetensors")["kernel"]
    order = [packed_table(tmp_path).index.get_loc(name) for name in sorted(tables)]
    np.testing.assert_allclose(kernel[np.ix_(order, order)], fresh, rtol=0, atol=2e-7)


@pytest.mark.parametrize("moved", [True, False])
def test_who_is_gone_leaves_the_corpus_and_a_copy_with_fewer_people_takes_nobody_out(tmp_path, tables, moved):
    corpus = tmp_path / "second" / "corpus" if moved else tmp_path / "shared"
    run_pretrain(tmp_path, *() if moved else ("--corpus", corpus), quick=PACKED)
    (shutil.move if moved else shutil.copytree)(tmp_path / "out", tmp_path / "second")
    shutil.rmtree(tmp_path / "second" / "sub-03")
    run_pretrain(tmp_path, "--corpus", corpus, quick=PACKED, out="second")
    packed = pd.read_csv(corpus / "recordings.tsv", sep="\t", dtype=str)
    assert sorted(packed["id"]) == sorted(name for name in tables if not (moved and "sub-03" in name))
    assert packed["place"].nunique() == (1 if moved else 2)


IDS = [f"sub-{i:02d}" for i in range(16)]
PLACES = {
    "named, beside a table without it": ({"named": IDS, "bids": None}, 0, ""),
    "half in each": ({"named": IDS[:8], "bids": IDS[8:]}, 0, ""),
    "in no table": ({"bids": None}, 3, "has a column 'house'"),
}


@pytest.mark.parametrize("place", PLACES)
def test_families_are_those_of_the_tables_that_are_named_too(tmp_path, tables, place):
    holders, code, said = PLACES[place]
    houses = {person: f"h{number // 2}" for number, person in enumerate(IDS)}
    paths = {"named": tmp_path / "fam.tsv", "bids": tmp_path / "bids" / "participants.tsv"}
    for name, people in holders.items():
        rows = pd.DataFrame({"participant_id": people or IDS, "age": range(len(people or IDS))})
        if people:
            rows = rows.assign(house=[houses.get(person, "h") for person in people])
        rows.drop(columns="age" if len(holders) > 1 else []).to_csv(paths[name], sep="\t", index=False)
    words = ("--family-column", "house")
    words += ("--phenotypes", paths["named"]) if "named" in holders else ()
    assert said in run_pretrain(tmp_path, *words, quick=PACKED, code=code).err
    if not code:
        packed = packed_table(tmp_path)
        people = "sub-" + packed["subject"].astype(str).str.zfill(2)
        assert packed["family"].tolist() == [houses[person] for person in people]


def test_kernel_of_real_recordings(shared):
    """Both ways of decomposing agree on band-passed scans (rank about 130 of 400)."""
    stored = np.load(shared / "data" / "stages" / "timeseries.npz")
    x = stored["sub-001_ses-1"][:, :400].astype(np.float64)
    vector, rank = teacher_vector_and_rank(x, 0.35)
    assert 125 <= rank <= 140
    assert abs(vector.mean()) < 1e-15
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-12)
    matrix = spectral_power(pearson_connectivity(x), 0.35)
    edges = matrix[np.triu_indices(400, 1)]
    assert np.corrcoef(vector, edges)[0, 1] == pytest.approx(1, abs=1e-9)


def test_bad_recordings_are_left_out_and_listed_and_the_umask_says_who_may_read(tmp_path, caplog):
    recordings = made_recordings()
    recordings[2][1][:, 4] = 7.0
    recordings[3][1][5, 6] = np.nan
    recordings[5][1][:, 1] = np.nan
    before = os.umask(0o027)
    try:
        table = pack_corpus(as_sources(recordings), tmp_path / "pack")
    finally:
        os.umask(before)
    modes = {oct(path.stat().st_mode & 0o777) for path in (tmp_path / "pack").iterdir() if path.is_file()}
    assert modes == {oct(0o640)}
    assert len(table) == len(recordings) - 3
    excluded = pd.read_csv(tmp_path / "pack" / "excluded.tsv", sep="\t")
    assert excluded["id"].tolist() == [recordings[i][0]["id"] for i in (2, 3, 5)]
    assert [reason.split(": ")[1] for reason in excluded["reason"]] == ["P4", "P6", "P1"]
    assert "P4" in caplog.text


def test_other_parcels_or_another_alpha_are_refused(written):
    pack, recordings = written / "out" / "corpus", made_recordings()
    facts, series = recordings[0]
    other = {**facts, "parcel_names": [*NAMES[:-1], "Other"], "id": "toy/new"}
    with pytest.raises(DatasetError, match=r"toy/new.*Other, P9.*another --corpus"):
        pack_corpus([(other, lambda: series)], pack)
    with pytest.raises(DatasetError, match=r"was packed with .*, not atlas-Other; give another --corpus"):
        pack_corpus(as_sources(recordings), pack, atlas="atlas-Other")
    with pytest.raises(DatasetError, match=r"alpha 0\.35, not 0\.5"):
        pack_corpus(as_sources(recordings), pack, 0.5)


WINDOW = 20


def test_training_on_it_is_training_on_our_pack_of_the_same_windows(tmp_path):
    """Recordings of one window each, so that both layouts hold the same windows."""
    short = [(facts, series[:WINDOW]) for facts, series in made_recordings()]
    plant_outputs(tmp_path, short)
    run_pretrain(tmp_path)
    write_public(tmp_path / "out" / "corpus", tmp_path / "public")
    run_pretrain(tmp_path, "--corpus", tmp_path / "public", out="elsewhere")
    pd.testing.assert_frame_equal(read_log(tmp_path / "elsewhere" / "encoder"), read_log(tmp_path / "out" / "encoder"))
    configs = [json.loads((tmp_path / out / "encoder/model/config.json").read_text()) for out in ("out", "elsewhere")]
    assert [config["tr_range"] for config in configs] == [[2.0, 2.5], None]
    assert configs[0]["roi_labels"] == configs[1]["roi_labels"] == NAMES


def test_every_window_drawn_is_a_stored_one_of_its_recording(written, tmp_path):
    public = written / "public"
    public_corpus.prepare_corpus(public, tmp_path / "run")
    corpus = public_corpus.open_corpus(public, tmp_path / "run")
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


@pytest.mark.usefixtures("written")
def test_nobody_trains_where_everyone_is_rejected(tmp_path):
    rows = [f"sub-{number:02d}\tmoved" for number in range(16)]
    (tmp_path / "out" / "exclude.tsv").write_text("\n".join(["participant_id\treason", *rows, ""]))
    for steps in ("0", "4"):
        assert "No recording" in run_pretrain(tmp_path, "--steps", steps, code=3).err
    assert not (tmp_path / "out" / "encoder").exists()


@pytest.mark.parametrize("name", ["out/corpus", "public"])
def test_choices_of_the_packing_are_refused_where_nothing_is_packed(written, name):
    of_packing = ("--participant-label 01", "--alpha 0.5", "--atlas Schaefer100", "--family-column family")
    for given in (*of_packing, *["-d list=nowhere.tsv"] * (name == "public")):
        told = run_pretrain(written, "--corpus", written / name, *given.split(), out="empty", code=2).err
        assert "is of the packing" in told
    assert not list((written / "empty").glob("logs/settings*"))


def test_two_datasets_that_are_packed_into_one_corpus_at_once_are_both_there(tmp_path):
    places = []
    for number, name in enumerate(("one", "two")):
        plant_outputs(tmp_path / name, made_recordings(seed=number))
        (tmp_path / name / "bids" / "dataset_description.json").write_text(f'{{"Name": "{name}"}}')
        places.append((tmp_path / name / "bids", tmp_path / name / "out", "pretrain"))
    words = ("--corpus", tmp_path / "corpus", "--steps", "0", "--nprocs", "1")
    command = (sys.executable, "-m", "fcpower_bids")
    started = [subprocess.Popen([*map(str, (*command, *place, *words))]) for place in places]
    assert [process.wait() for process in started] == [0, 0]
    table = pd.read_csv(tmp_path / "corpus" / "recordings.tsv", sep="\t")
    assert table["dataset"].value_counts().tolist() == [32, 32]
    assert not (tmp_path / "corpus" / "lock").exists()


def test_a_dataset_that_gets_a_doi_is_not_packed_twice_and_another_in_its_place_leaves_it_in_the_corpus(tmp_path):
    """Containers have the output folder of all datasets at one path."""

    def pack(people: int, sessions: int, **named: str) -> dict[str, int]:
        if not (tmp_path / "out").exists():
            plant_outputs(tmp_path, made_recordings(people, sessions, seed=people))
        (tmp_path / "bids" / "dataset_description.json").write_text(json.dumps(named))
        run_pretrain(tmp_path, "--corpus", tmp_path / "corpus", quick=PACKED)
        return pd.read_csv(tmp_path / "corpus" / "recordings.tsv", sep="\t")["dataset"].value_counts().to_dict()

    assert pack(16, 2, Name="toy", DatasetDOI="10.5281/zenodo.1") == {"10.5281-zenodo.1": 32}
    shutil.rmtree(tmp_path / "out" / "sub-03")  # who leaves meanwhile leaves the former name
    assert pack(16, 2, Name="toy", DatasetDOI="10.5281/zenodo.12") == {"10.5281-zenodo.12": 30}
    for people, name in ((8, "one"), (6, "two")):
        shutil.rmtree(tmp_path / "bids")
        shutil.rmtree(tmp_path / "out")
        packed = pack(people, 1, Name=name)
    assert list(packed.values()) == [30, 8, 6]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_processes_that_pack_end_with_the_one_that_waits_for_them(tmp_path, number):
    facts = [facts for facts, _ in made_recordings(4, 1)]
    code = f"from tests.pretrain.slowly import Path, pack_slowly; pack_slowly(Path({str(tmp_path)!r}), {facts!r})"
    tests = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}  # its processes import them too
    parent = subprocess.Popen([sys.executable, "-c", code], env=tests)
    try:
        wait_for(lambda: sum(map(str.isdigit, os.listdir(tmp_path))) == 2, "the work of two processes")
    finally:
        parent.send_signal(number)
    assert parent.wait(60) != 0
    workers = [int(name) for name in os.listdir(tmp_path) if name.isdigit()]
    wait_for(lambda: not any(map(is_alive, workers)), "the end of the workers")


ASKED = {"License": "CC0", "DatasetDOI": "doi:10.5281/zenodo.12", "HowToAcknowledge": "Cite\n\tAuthor |  2026"}


def test_the_card_says_how_the_corpus_was_made_and_where_it_came_from(tmp_path, unpacked, monkeypatch):
    """Recordings of which three were cleaned otherwise; then the same corpus from the hub."""
    about, models, asked = tmp_path / "bids" / "dataset_description.json", [], {}
    about.write_text(json.dumps({**json.loads(about.read_text()), **ASKED}))
    for number, path in enumerate(unpacked.values()):
        sidecar = path.with_suffix(".json")
        band = {"HighPassHz": 0.01, "LowPassHz": 0.1 if number < 3 else 0.08}
        sidecar.write_text(json.dumps({**json.loads(sidecar.read_text()), "SoftwareFilters": {"Butterworth": band}}))
    run_pretrain(tmp_path, quick=PACKED)
    cached = tmp_path / "datasets--owner--name" / "snapshots" / "0123abcd"
    write_public(tmp_path / "out" / "corpus", cached)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **how: asked.update(how) or str(cached))
    for out, words in (("out", ()), ("new", ("--corpus", CORPUS_ID))):
        run_pretrain(tmp_path, "--steps", "1", "--held-out", "0", *words, out=out)
        models.append(tmp_path / out / "encoder" / "model")
    facts, of_hub = (json.loads((model / "config.json").read_text()) for model in models)
    assert facts["band"] is None, "it is not one"
    assert facts["corpus_licences"] == "CC0 (32 recordings)"
    assert facts["corpus_citation"] == "10.5281-zenodo.12: Cite Author | 2026"
    assert "| corpus_citation | 10.5281-zenodo.12: Cite Author \\| 2026 |" in (models[0] / "README.md").read_text()
    assert asked["repo_type"] == "dataset"
    assert "windows.npy" in asked["allow_patterns"]
    assert (facts["corpus_revision"], of_hub["corpus_revision"]) == ("n/a", "0123abcd")
