"""Connectomes are parsed once, losslessly; a changed file is read again and a damaged cache is made anew."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from fcpower_bids.cohort import cache as cohort_cache
from fcpower_bids.cohort.cache import read_edges
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.errors import DatasetError
from fcpower_bids.ondisk import GrowingRows, RowsOnDisk
from fcpower_bids.outputs.tables import write_matrix
from fcpower_bids.settings import Settings
from tests.planting.participant_outputs import PARCELS, add_output, other_atlas, series_of

NAMES = ("sub-01", "sub-02", "sub-03")


@pytest.fixture
def tree(tmp_path):
    paths = [add_output(tmp_path / "out", name, series_of(i)) for i, name in enumerate(NAMES)]
    return paths, tmp_path / "cache", Settings(tmp_path, tmp_path / "out", "group", quiet=True)


def count_parsed(monkeypatch) -> list[str]:
    parsed: list[str] = []
    read = cohort_cache._read

    def counted(path):
        parsed.append(path.name[:6])
        return read(path)

    monkeypatch.setattr(cohort_cache, "_read", counted)
    return parsed


def values(edges):
    return np.asarray(edges.array)


def test_the_rows_are_the_edges_to_the_bit(tree):
    expected = [vectorise_edges(pearson_connectivity(series_of(i)), weighted=False) for i in range(3)]
    np.testing.assert_array_equal(values(read_edges(*tree)), expected)
    edges = read_edges(*tree)
    assert edges.parcels == PARCELS
    assert isinstance(edges.array, RowsOnDisk)
    assert edges.array.dtype == np.float64
    assert len(set(edges.digests)) == 3


def test_nothing_is_parsed_twice_and_a_selection_needs_no_new_cache(tree, monkeypatch):
    paths, folder, settings = tree
    first = values(read_edges(paths, folder, settings))
    parsed = count_parsed(monkeypatch)
    np.testing.assert_array_equal(values(read_edges(paths, folder, settings)), first)
    np.testing.assert_array_equal(values(read_edges(paths[::2][::-1], folder, settings)), first[::2][::-1])
    assert parsed == []
    assert len(list(folder.glob("*.npy"))) == 1


def test_only_changed_and_new_files_are_parsed(tree, monkeypatch):
    paths, folder, settings = tree
    read_edges(paths, folder, settings)
    parsed = count_parsed(monkeypatch)
    add_output(settings.output_dir, "sub-02", series_of(50))
    paths.append(add_output(settings.output_dir, "sub-04", series_of(51)))
    found = values(read_edges(paths, folder, settings))
    assert parsed == ["sub-02", "sub-04"]
    expected = [vectorise_edges(pearson_connectivity(series_of(i)), weighted=False) for i in (0, 50, 2, 51)]
    np.testing.assert_array_equal(found, expected)
    assert len(GrowingRows(folder).chunks) == 1, "small chunks become one"


def test_a_file_of_the_same_size_is_known_by_its_time(tree, monkeypatch):
    paths, folder, settings = tree
    read_edges(paths, folder, settings)
    os.utime(paths[0], ns=(1, 1))
    parsed = count_parsed(monkeypatch)
    read_edges(paths, folder, settings)
    assert parsed == ["sub-01"]


@pytest.mark.parametrize("damage", ["index", "truncated", "removed", "changed", "format"])
def test_a_damaged_cache_is_made_anew(tree, damage, monkeypatch):
    paths, folder, settings = tree
    first = values(read_edges(paths, folder, settings))
    (array,) = folder.glob("*.npy")
    if damage == "index":
        (folder / "index.json").write_text("{")
    elif damage == "truncated":
        array.write_bytes(array.read_bytes()[:-8])
    elif damage == "removed":
        array.unlink()
    elif damage == "changed":
        array.write_bytes(bytes([*(content := array.read_bytes())[:-1], content[-1] ^ 0x80]))
    else:
        index = folder / "index.json"
        index.write_text(index.read_text().replace('"format": 3', '"format": 1'))
    parsed = count_parsed(monkeypatch)
    np.testing.assert_array_equal(values(read_edges(paths, folder, settings)), first)
    assert len(parsed) == 3


def test_uncovered_parcels_are_known_from_the_cache_too(tree):
    paths, folder, settings = tree
    paths[1] = add_output(settings.output_dir, "sub-02", series_of(1, missing=(0, 4)))
    for _ in range(2):
        edges = read_edges(paths, folder, settings)
        assert np.flatnonzero(edges.missing[1]).tolist() == [0, 4]
        assert edges.missing.sum() == 2


def test_processes_give_the_same(tree, monkeypatch):
    paths, folder, settings = tree
    alone = values(read_edges(paths, folder, settings))
    monkeypatch.setattr(cohort_cache, "WORTH_PROCESSES", 1)
    together = values(read_edges(paths, folder.with_name("other"), replace(settings, nprocs=2)))
    np.testing.assert_array_equal(alone, together)


@pytest.mark.parametrize("known", [0, 2])
def test_other_parcels_are_an_error_and_leave_the_cache_as_it_was(tree, known):
    paths, folder, settings = tree
    if known:
        read_edges(paths[:known], folder, settings)
    before = sorted((path.name, path.stat().st_size) for path in folder.glob("*"))
    renamed = other_atlas("Toy", (*PARCELS[:-1], "LH_z"))
    paths[2] = add_output(settings.output_dir, "sub-03", series_of(2), atlas=renamed)
    with pytest.raises(DatasetError, match=r"parcels differ between people: .*sub-0\d.*lack"):
        read_edges(paths, folder, settings)
    assert sorted((path.name, path.stat().st_size) for path in folder.glob("*")) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [((0, 1, 0.5), "not symmetric"), ((slice(None), slice(None), 2.0), "outside -1"), ((0, 1, np.nan), "missing")],
)
def test_a_table_that_is_no_connectome_is_told_and_the_others_are_read(tree, change, words):
    paths, folder, settings = tree
    matrix = pearson_connectivity(series_of(0))
    matrix[change[:2]] = change[2]
    write_matrix(paths[0], matrix, PARCELS, PARCELS)
    edges = read_edges(paths, folder, settings)
    assert list(edges.unreadable) == paths[:1]
    assert words in edges.unreadable[paths[0]]
    assert str(paths[0]) in edges.unreadable[paths[0]]
    expected = [vectorise_edges(pearson_connectivity(series_of(i)), weighted=False) for i in (1, 2)]
    np.testing.assert_array_equal(values(edges), expected)
    assert [name[:6] for name in edges.names] == ["sub-02", "sub-03"]
    with pytest.raises(DatasetError, match=words):
        read_edges(paths[:1], folder, settings)


@pytest.mark.parametrize("part", [0.0, 0.02, 0.5, 0.9])
@pytest.mark.parametrize("known", [0, 2])
def test_a_table_that_was_cut_is_told(tree, part, known):
    paths, folder, settings = tree
    if known:
        read_edges(paths[1:], folder, settings)
    content = paths[0].read_bytes()
    paths[0].write_bytes(content[: int(part * len(content))])
    edges = read_edges(paths, folder, settings)
    assert list(edges.unreadable) == paths[:1]
    assert len(values(edges)) == 2
    lines = content.splitlines(keepends=True)
    paths[0].write_bytes(b"".join(lines[:3]))
    assert "2 rows for" in read_edges(paths, folder, settings).unreadable[paths[0]]


def test_the_rows_of_recordings_that_are_gone_are_forgotten(tree):
    paths, folder, settings = tree
    read_edges(paths, folder, settings)
    paths[1].unlink()
    kept = [paths[0], paths[2], add_output(settings.output_dir, "sub-04", series_of(51))]
    read_edges(kept[:1] + kept[2:], folder, settings)
    assert sorted(name[:6] for name in GrowingRows(folder).rows) == ["sub-01", "sub-03", "sub-04"]
