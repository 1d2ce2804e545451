"""The same people and folds under every parcellation; a parcellation without the signal is worse on them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.core.connectome.edges import rebuild_matrix, vectorise_edges
from tests.analyses.cohorts import choose, cohort_of
from tests.analyses.conftest import TARGETS


def fewer_parcels(cohort, n_parcels):
    """The cohort seen through its first parcels only."""
    cut = [rebuild_matrix(row, 1.0, weighted=False)[:n_parcels, :n_parcels] for row in np.asarray(cohort.edges)]
    edges = np.stack([vectorise_edges(each, weighted=False) for each in cut])
    return cohort_of(
        edges,
        cohort.scans[["participant_id", "session", "seconds", "mean_fd", "n_runs"]].to_numpy().tolist(),
        cohort.phenotypes,
    )


@pytest.fixture(scope="module")
def cohorts(cohort):
    """All parcels; a quarter of them; and noise with two people fewer."""
    whole = dataclasses.replace(cohort, series=())
    noise = np.tanh(np.random.default_rng(0).normal(0, 0.3, (len(cohort.scans) - 4, 66)))
    rows = cohort.scans.iloc[4:][["participant_id", "session", "seconds", "mean_fd", "n_runs"]].to_numpy().tolist()
    few = fewer_parcels(cohort, len(cohort.parcels) // 4)
    return {"whole": whole, "part": few, "noise": cohort_of(noise, rows, cohort.phenotypes)}


@pytest.fixture(scope="module")
def tables(cohorts):
    return ANALYSES["parcellation_sweep"](cohorts, choose(**TARGETS))


def test_the_planted_phenotype_needs_the_parcels_that_carry_it(tables):
    shared = tables["parcellation_sweep"].frame.query("target == 'planted_score'")
    means = shared[shared["representation"] == "fc_power"].groupby("atlas")["r"].mean()
    assert (tables["parcellation_sweep"].frame["n_people"] == 58).all()
    assert means["whole"] > 0.5
    assert means["whole"] > means["part"]
    assert abs(means["noise"]) < 0.3
    row = tables["parcellation_comparisons"].frame.set_index(["target", "representation", "atlas", "reference"])
    row = row.loc["planted_score", "fc_power", "noise", "whole"]
    assert row["mean_difference"] == pytest.approx(means["noise"] - means["whole"])
    assert row["p_less"] < 0.05


def test_gains_within_a_parcellation(tables):
    frame = tables["parcellation_sweep"].frame
    gains = tables["parcellation_gains"].frame.set_index(["atlas", "target"])
    row = gains.loc["whole", "planted_score"]
    own = frame.query("atlas == 'whole' and target == 'planted_score'")
    scores = own.pivot_table("r", ["repeat", "fold"], "representation")
    assert (row["representation"], row["reference"]) == ("fc_power", "fc")
    assert row["mean_difference"] == pytest.approx((scores["fc_power"] - scores["fc"]).mean())
    assert row["folds_won"] == (scores["fc_power"] > scores["fc"]).sum()
    assert len(frame) == 3 * 2 * 2 * 10
