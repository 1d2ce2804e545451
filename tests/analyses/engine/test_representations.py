"""Representations by name, several of them as one, and who has been seen by an encoder of any."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fcpower_bids.analyses.features import expand_names, mark_people
from fcpower_bids.errors import Unfit, UsageError
from tests.analyses.cohorts import choose


@pytest.fixture
def embedded(cohort):
    rng, n = np.random.default_rng(0), len(cohort.scans)
    vectors = {"one": rng.standard_normal((n, 5)), "two": rng.standard_normal((n, 7))}
    seen = {"one": ("trained", *["no"] * (n - 1)), "two": ("no",) * n}
    return dataclasses.replace(cohort, embeddings=vectors, seen=seen)


def test_embedding_stands_for_every_encoder(embedded):
    found = expand_names(embedded, choose(representations=("fc", "embedding")))
    assert found == ("fc", "embedding:one", "embedding:two")
    assert expand_names(embedded, choose(representations=("embedding:two",))) == ("embedding:two",)
    with pytest.raises(UsageError, match="'nothing' does not exist"):
        expand_names(embedded, choose(representations=("nothing",)))
    with pytest.raises(Unfit, match="no embeddings for 'embedding:three'"):
        expand_names(embedded, choose(representations=("embedding:three",)))


def test_people_seen_by_an_encoder_are_marked(embedded):
    first = str(embedded.scans["participant_id"].iloc[0])
    assert mark_people(embedded, "embedding:one")[first] == "trained"
    assert not mark_people(embedded, "fc_power")
