"""Eigendecompositions that analyses share: the same bits, each connectome once, never more than there is room for."""

from functools import partial

import numpy as np
import pytest

from fcpower_bids.analyses import features as connectomes
from fcpower_bids.analyses.features import AveragedEdges, PowerFamily, sharing_spectra
from fcpower_bids.resources import memory_limit
from tests.analyses.engine.test_connectomes import choose, draw_edges

EDGES = draw_edges(np.random.default_rng(0), 8, 30)
WEIGHTS = np.linspace(1, 2, 8)
SCANS = AveragedEdges(EDGES, [[i] for i in range(8)])
PEOPLE = AveragedEdges(EDGES, [[0, 1], [2], [5]], WEIGHTS)
OTHERS = AveragedEdges(EDGES, [[0, 1], [5]])


@pytest.fixture
def decomposed(monkeypatch):
    """Count the connectomes that are decomposed."""
    done = []

    def counting(really, matrix):
        done.append(1)
        return really(matrix)

    for name in ("eigendecompose", "decompose_range"):
        monkeypatch.setattr(connectomes, name, partial(counting, getattr(connectomes, name)))
    return done


def test_each_connectome_is_decomposed_once_for_all_analyses_with_the_same_bits(decomposed):
    alone = [PowerFamily(each, choose()).features(0.35) for each in (SCANS, PEOPLE, OTHERS)]
    decomposed.clear()
    with sharing_spectra(EDGES):
        for each, expected, new in zip((SCANS, PEOPLE, OTHERS, PEOPLE), (*alone, alone[1]), (8, 1, 1, 0), strict=True):
            before = len(decomposed)
            np.testing.assert_array_equal(PowerFamily(each, choose()).features(0.35), expected)
            assert len(decomposed) - before == new, "one scan is itself, under any weight; others are of their weights"
        PowerFamily(AveragedEdges(EDGES.copy(), [[0]]), choose()).features(0.35)
        assert len(decomposed) == 11, "a part of the scans has connectomes of its own"
    PowerFamily(SCANS, choose()).features(0.35)
    assert len(decomposed) == 19, "nothing is kept beyond the command"


def test_what_is_not_asked_for_is_forgotten_where_room_is_short(decomposed):
    with sharing_spectra(EDGES), memory_limit(4 * 9 * 30 * 31 * 8 / 2**20):
        PowerFamily(SCANS, choose())
        PowerFamily(PEOPLE, choose())
        PowerFamily(AveragedEdges(EDGES, [[1, 2]]), choose())
        assert len(decomposed) == 10
        PowerFamily(PEOPLE, choose())
        assert len(decomposed) == 13, "only what was asked for last was still there"
