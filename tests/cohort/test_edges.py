"""Connectomes are read losslessly, and what is none is told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fcpower_bids.cohort import scans as cohort_edges
from fcpower_bids.cohort.scans import read_edges
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.outputs.tables import write_matrix
from fcpower_bids.resources import memory_limit
from fcpower_bids.settings import Settings
from tests.planting.participant_outputs import PARCELS, add_output, series_of

NAMES = ("sub-01", "sub-02", "sub-03")


@pytest.fixture
def tree(tmp_path):
    paths = [add_output(tmp_path / "out", name, series_of(i)) for i, name in enumerate(NAMES)]
    return paths, Settings(tmp_path, tmp_path / "out", "group", quiet=True)


def values(edges):
    return np.asarray(edges.array)[: len(edges.missing)]


def test_the_rows_are_the_edges_to_the_bit(tree):
    expected = [vectorise_edges(pearson_connectivity(series_of(i)), weighted=False) for i in range(3)]
    np.testing.assert_array_equal(values(read_edges(*tree)), expected)
    edges = read_edges(*tree)
    assert edges.parcels == PARCELS
    assert edges.array.dtype == np.float64
    assert len(set(edges.digests)) == 3


def test_more_than_the_memory_that_is_given_or_there_is_refused(tree, monkeypatch):
    paths, settings = tree
    with memory_limit(1e-4), pytest.raises(UsageError, match=r"parcels need .* GB of memory: give more"):
        read_edges(paths, settings)
    monkeypatch.setattr("fcpower_bids.cohort.scans.machine_bytes", lambda: 100)
    with pytest.raises(UsageError, match=r"parcels need .* GB of memory: give more"):
        read_edges(paths, settings)


def test_processes_give_the_same(tree, monkeypatch):
    paths, settings = tree
    alone = values(read_edges(paths, settings))
    monkeypatch.setattr(cohort_edges, "WORTH_PROCESSES", 1)
    together = values(read_edges(paths, replace(settings, nprocs=2)))
    np.testing.assert_array_equal(alone, together)


@pytest.mark.parametrize(
    ("change", "words"),
    [((0, 1, 0.5), "not symmetric"), ((slice(None), slice(None), 2.0), "outside -1"), ((0, 1, np.nan), "missing")],
)
def test_a_table_that_is_no_connectome_is_told_and_the_others_are_read(tree, change, words):
    paths, settings = tree
    matrix = pearson_connectivity(series_of(0))
    matrix[change[:2]] = change[2]
    write_matrix(paths[0], matrix, PARCELS, PARCELS)
    edges = read_edges(paths, settings)
    assert list(edges.unreadable) == paths[:1]
    assert words in edges.unreadable[paths[0]]
    assert str(paths[0]) in edges.unreadable[paths[0]]
    expected = [vectorise_edges(pearson_connectivity(series_of(i)), weighted=False) for i in (1, 2)]
    np.testing.assert_array_equal(values(edges), expected)
    with pytest.raises(DatasetError, match=words):
        read_edges(paths[:1], settings)


@pytest.mark.parametrize("part", [0.0, 0.02, 0.5, 0.9])
def test_a_table_that_was_cut_is_told(tree, part):
    paths, settings = tree
    content = paths[0].read_bytes()
    paths[0].write_bytes(content[: int(part * len(content))])
    edges = read_edges(paths, settings)
    assert list(edges.unreadable) == paths[:1]
    assert len(values(edges)) == 2
    lines = content.splitlines(keepends=True)
    paths[0].write_bytes(b"".join(lines[:3]))
    assert "2 rows for" in read_edges(paths, settings).unreadable[paths[0]]
