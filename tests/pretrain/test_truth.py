"""The pretrain level on files: what is packed is what was written, and what is not is named."""

from __future__ import annotations

import json
import signal

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from fcpower_bids.pretrain import corpus as shards
from fcpower_bids.pretrain import packing as preparation
from fcpower_bids.store import beside
from tests.pretrain.outputs import PACKED, in_child, run_pretrain


def packed_table(folder) -> pd.DataFrame:
    return pd.read_csv(folder / "out" / "corpus" / "recordings.tsv", sep="\t", index_col="id")


def packed_series(folder) -> dict[str, np.ndarray]:
    """Series of every recording, read from the files of the pack with nothing of the program."""
    with safe_open(folder / "out" / "corpus" / "series-00000.safetensors", "np") as file:
        series = file.get_tensor("series").astype(float)
    return {name: series[row["offset"] : row["offset"] + row["T"]] for name, row in packed_table(folder).iterrows()}


def fc_power(series: np.ndarray, alpha: float) -> np.ndarray:
    """Off-diagonal entries of the power of the correlation matrix, for a matrix of full rank."""
    values, vectors = np.linalg.eigh(np.corrcoef(series.T))
    return ((vectors * values**alpha) @ vectors.T)[np.triu_indices(series.shape[1], 1)]


def test_packed_series_are_the_written_tables_and_the_teacher_is_theirs(tmp_path, tables):
    packed = packed_series(tmp_path)
    assert packed.keys() == tables.keys()
    for name, path in tables.items():
        table = pd.read_csv(path, sep="\t").to_numpy()
        z = (table - table.mean(0)) / table.std(0, ddof=1)
        np.testing.assert_allclose(packed[name], z, rtol=2**-10, atol=1e-6)
    vectors = load_file(tmp_path / "out" / "corpus" / "teacher-00000.safetensors")["vectors"]
    kernel = load_file(tmp_path / "out" / "corpus" / "teacher_kernel.safetensors")["kernel"]
    positions = packed_table(tmp_path)["position"]
    edges = {name: fc_power(series, 0.35) for name, series in packed.items()}
    for name in tables:
        assert np.corrcoef(edges[name], vectors[positions[name]])[0, 1] > 0.9999
    np.testing.assert_allclose(kernel, np.corrcoef([edges[name] for name in positions.index]), rtol=0, atol=2e-3)


def flip(place: int):
    def change(path) -> None:
        content = bytearray(path.read_bytes())
        content[place] ^= 0x80  # the sign of a sample, or a bit of the kernel
        path.write_bytes(content)

    return change


def exchange(one: str, other: str):
    def change(path) -> None:
        text = path.read_text()
        assert one in text
        path.write_text(text.replace(one, "@").replace(other, one).replace("@", other))

    return change


def exchange_rows(path) -> None:
    head, first, second, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([head, second, first, *rest]))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("series-00000.safetensors", flip(-1)),
        ("teacher-00000.safetensors", flip(-2)),
        ("teacher_kernel.safetensors", flip(-3)),
        ("recordings.tsv", exchange("\t00\t", "\t01\t")),
        ("recordings.tsv", exchange_rows),
        ("pack.json", exchange('"P1"', '"P2"')),
    ],
    ids=["a sample", "a teacher", "the kernel", "subjects", "rows", "parcel names"],
)
def test_a_changed_byte_of_a_pack_is_named_and_trains_nothing(tmp_path, tables, capsys, name, change):
    change(tmp_path / "out" / "corpus" / name)
    if not name.startswith("series"):  # also where it is packed again first
        run_pretrain(tmp_path, quick=PACKED)
    assert run_pretrain(tmp_path) == 3
    told = capsys.readouterr().err
    assert name in told
    assert "checksum differs" in told
    assert not (tmp_path / "out" / "encoder").exists()


@pytest.mark.parametrize("said", [{}, {"format": 99}])
def test_a_pack_of_another_format_is_refused_with_what_to_do(tmp_path, tables, said, capsys):
    assert run_pretrain(tmp_path, "--dry-run") == 0
    corpus = tmp_path / "out" / "corpus"
    facts = json.loads((corpus / "pack.json").read_text())
    facts.pop("format")
    (corpus / "pack.json").write_text(json.dumps(facts | said))
    capsys.readouterr()
    assert run_pretrain(tmp_path, "--dry-run") == 3
    told = capsys.readouterr().err
    assert "pack.json is of another format than" in told
    assert "Remove this folder and run the same command again, which packs anew." in told


def pack_bytes(folder, out="out") -> dict[str, bytes]:
    return {str(path.relative_to(folder / out)): path.read_bytes() for path in (folder / out / "corpus").rglob("*")}


def test_many_processes_pack_the_same_bytes(tmp_path, tables):
    assert run_pretrain(tmp_path, quick=PACKED) == 0
    assert run_pretrain(tmp_path, "--corpus", tmp_path / "other" / "corpus", "--nprocs", "2", quick=PACKED) == 0
    assert pack_bytes(tmp_path) == pack_bytes(tmp_path, "other")


def test_a_killed_run_goes_on_after_its_last_shard(tmp_path, unpacked, monkeypatch):
    computed = []
    original = preparation.teacher_vector_and_rank
    monkeypatch.setattr(preparation, "SHARD_RECORDINGS", 5)

    def compute_until_killed(*given):
        if len(computed) == 22:
            signal.raise_signal(signal.SIGKILL)
        computed.append(given)
        return original(*given)

    with monkeypatch.context() as patch:
        patch.setattr(preparation, "teacher_vector_and_rank", compute_until_killed)
        assert in_child(lambda: run_pretrain(tmp_path, quick=PACKED)) == -signal.SIGKILL
    assert len(packed_table(tmp_path)) == 20
    beside(tmp_path / "out" / "corpus" / "series-00004.safetensors").touch()  # as when the signal comes while it writes
    assert run_pretrain(tmp_path, "--corpus", tmp_path / "out" / "corpus", out="none") == 3  # nothing is trained on it
    monkeypatch.setattr(preparation, "teacher_vector_and_rank", lambda *a: computed.append(a) or original(*a))
    assert run_pretrain(tmp_path, quick=PACKED) == 0
    assert len(computed) == len(unpacked) - 20
    assert run_pretrain(tmp_path, "--corpus", tmp_path / "other" / "corpus", quick=PACKED) == 0
    assert pack_bytes(tmp_path) == pack_bytes(tmp_path, "other")


def test_unchanged_tables_are_not_read_again_and_what_is_said_of_them_is_kept_up(tmp_path, tables, monkeypatch):
    assert run_pretrain(tmp_path, quick=PACKED) == 0
    changed = sorted(tables)[3]
    table = pd.read_csv(tables[changed], sep="\t")
    (table**3).to_csv(tables[changed], sep="\t", index=False)
    people = pd.DataFrame({"participant_id": [f"sub-{i:02d}" for i in range(16)], "house": [i // 2 for i in range(16)]})
    people.to_csv(tmp_path / "bids" / "participants.tsv", sep="\t", index=False)
    read = []
    original = preparation.read_series
    monkeypatch.setattr(preparation, "read_series", lambda path, *rest: read.append(path) or original(path, *rest))
    assert run_pretrain(tmp_path, "--family-column", "house", quick=PACKED) == 0
    assert read == [tables[changed]]
    family = packed_table(tmp_path)["family"]
    assert family[sorted(tables)[0]] == 0
    assert family.nunique() == 8
    vectors = load_file(tmp_path / "out" / "corpus" / "teacher-00001.safetensors")["vectors"]
    assert len(vectors) == 1
    kernel = load_file(tmp_path / "out" / "corpus" / "teacher_kernel.safetensors")["kernel"]
    assert run_pretrain(tmp_path, "--corpus", tmp_path / "other" / "corpus", quick=PACKED) == 0
    fresh = load_file(tmp_path / "other" / "corpus" / "teacher_kernel.safetensors")["kernel"]
    order = [packed_table(tmp_path).index.get_loc(name) for name in sorted(tables)]
    np.testing.assert_allclose(kernel[np.ix_(order, order)], fresh, rtol=0, atol=2e-7)


IDS = [f"sub-{i:02d}" for i in range(16)]
PLACES = {
    "named": ({"named": IDS}, 0, ""),
    "named, beside a table without it": ({"named": IDS, "bids": None}, 0, ""),
    "half in each": ({"named": IDS[:8], "bids": IDS[8:]}, 0, ""),
    "of the dataset": ({"bids": IDS}, 0, ""),
    "nowhere": ({}, 3, "has a column 'house'"),
    "in no table": ({"bids": None}, 3, "has a column 'house'"),
    "of others": ({"named": [f"sub-x{i}" for i in range(16)]}, 3, "known of nobody whose series are here"),
}


@pytest.mark.parametrize("place", PLACES)
def test_families_and_sites_are_those_of_the_tables_that_are_named_too(tmp_path, tables, place, capsys):
    holders, code, said = PLACES[place]
    houses = {person: f"h{number // 2}" for number, person in enumerate(IDS)}
    paths = {"named": tmp_path / "fam.tsv", "bids": tmp_path / "bids" / "participants.tsv"}
    for name, people in holders.items():
        rows = pd.DataFrame({"participant_id": people or IDS, "age": range(len(people or IDS))})
        if people:
            rows = rows.assign(
                house=[houses.get(person, "h") for person in people], town=[person[-1] for person in people]
            )
        rows.drop(columns="age" if len(holders) > 1 else []).to_csv(paths[name], sep="\t", index=False)
    words = ("--family-column", "house", "--site-column", "town")
    words += ("--phenotypes", paths["named"]) if "named" in holders else ()
    assert run_pretrain(tmp_path, *words, quick=PACKED) == code
    assert said in capsys.readouterr().err
    if not code:
        packed = packed_table(tmp_path)
        people = "sub-" + packed["subject"].astype(str).str.zfill(2)
        assert packed["family"].tolist() == [houses[person] for person in people]
        assert packed["site"].astype(str).tolist() == people.str[-1].tolist()


def test_a_table_or_a_repetition_time_that_cannot_be_is_named(tmp_path, unpacked, capsys):
    path = next(iter(unpacked.values()))
    sidecar = path.with_suffix(".json")
    before = sidecar.read_text()
    for value in ("NaN", "0", "-2", "Infinity"):
        sidecar.write_text(f'{{"RepetitionTime": {value}}}')
        assert run_pretrain(tmp_path, quick=PACKED) == 3
        assert f"{sidecar} does not give a RepetitionTime" in capsys.readouterr().err
    sidecar.write_text(before)
    path.write_text(path.read_text().replace(".", "x", 20))
    assert run_pretrain(tmp_path, quick=PACKED) == 4
    assert f"{path} cannot be read" in capsys.readouterr().err


def test_what_pack_cannot_use_is_named_and_what_nothing_trains_on_is_counted(tmp_path, unpacked, capsys):
    path, short, *_ = unpacked.values()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:8]))  # cut at the end of a line, which its JSON alone tells
    assert run_pretrain(tmp_path, quick=PACKED) == 4
    assert f"{path} has 7 of the {len(lines) - 1} volumes of its JSON; run" in capsys.readouterr().err
    assert not (tmp_path / "out" / "corpus" / "pack.json").exists()
    for file in (path, short):
        file.write_text("".join(lines[:13]))
        file.with_suffix(".json").write_text('{"RepetitionTime": 2, "NumberOfVolumesUsed": 12}')
    (tmp_path / "bids").rename(tmp_path / "moved")
    assert run_pretrain(tmp_path, quick=PACKED) == 3
    assert f"The input folder {tmp_path / 'bids'} does not exist. Check the path" in capsys.readouterr().err
    (tmp_path / "moved").rename(tmp_path / "bids")
    (tmp_path / "file").write_text("mine")
    assert run_pretrain(tmp_path, "--corpus", tmp_path / "file", quick=PACKED) == 2
    assert f"{tmp_path / 'file'} is a file, so there can be no corpus" in capsys.readouterr().err
    path.with_name(f"._{path.name}").write_bytes(b"\0\5\26\7")  # as macOS leaves them
    assert run_pretrain(tmp_path, quick=PACKED) == 0
    assert "2 of them have fewer volumes than window 20: nothing trains on those" in capsys.readouterr().err


def test_a_fault_of_ours_while_writing_is_not_blamed_on_the_recordings(tmp_path, unpacked, monkeypatch, capsys):
    def write_in_the_order_of_memory(arrays, path, metadata):
        save_file({name: np.ascontiguousarray(a.T).reshape(a.shape) for name, a in arrays.items()}, path, metadata)

    monkeypatch.setattr(shards, "save_file", write_in_the_order_of_memory)
    assert run_pretrain(tmp_path) == 1
    told = capsys.readouterr().err
    assert "does not read back as it was written" in told
    assert "not the recordings" in told
    assert not list((tmp_path / "out" / "corpus").glob("*.safetensors"))
    assert not list((tmp_path / "out" / "corpus").glob(".*"))
