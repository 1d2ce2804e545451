"""Representations by name, several of them as one, and who has been seen by an encoder of any."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fcpower_bids.analyses.engine.representations import build_representations, encoders_of, expand_names
from fcpower_bids.analyses.pretraining_overlap import mark_people
from fcpower_bids.errors import Unfit, UsageError
from tests.analyses.cohorts import choose


@pytest.fixture
def embedded(cohort):
    rng, n = np.random.default_rng(0), len(cohort.scans)
    vectors = {"one": rng.standard_normal((n, 5)), "two": rng.standard_normal((n, 7))}
    seen = {"one": ("trained", *["no"] * (n - 1)), "two": ("no",) * n}
    return dataclasses.replace(cohort, embeddings=vectors, seen=seen)


def test_joined_names_stand_for_every_encoder(embedded):
    assert expand_names(
        embedded,
        choose(
            representations=(
                "fc",
                "fc_power+embedding",
            )
        ),
    ) == (*("fc", "fc_power+embedding:one", "fc_power+embedding:two"),)
    assert expand_names(embedded, choose(representations=("fc+embedding:two",))) == ("fc+embedding:two",)
    assert encoders_of("fc_power+embedding:one") == ("one",)
    assert encoders_of("fc+fc_power") == ()
    with pytest.raises(UsageError, match="'nothing' does not exist"):
        expand_names(embedded, choose(representations=("fc+nothing",)))
    with pytest.raises(Unfit, match="no embeddings for 'embedding:three'"):
        expand_names(embedded, choose(representations=("fc+embedding:three",)))


def test_the_kernel_of_joined_representations_is_the_mean_of_their_kernels(embedded):
    groups = [np.array([row]) for row in range(6)]
    names = ("fc_power", "embedding:one", "fc_power+embedding:one")
    power, vectors, both = (
        each.similarity() for each in build_representations(embedded, groups, names, choose(representations=names))
    )
    np.testing.assert_allclose(vectors, np.corrcoef(embedded.embeddings["one"][:6]), atol=1e-12)
    np.testing.assert_allclose(both, (power + vectors) / 2, atol=1e-12)


@pytest.mark.parametrize("name", ["embedding:one", "fc_power+embedding:one", "fc_power+embedding:one:multikernel"])
def test_people_seen_by_an_encoder_are_marked_in_whatever_holds_its_embedding(embedded, name):
    first = str(embedded.scans["participant_id"].iloc[0])
    assert mark_people(embedded, name)[first] == "trained"
    assert not mark_people(embedded, "fc_power+fc")
