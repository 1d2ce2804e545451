"""Identification of real and planted people, with everything that a reader needs to judge it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from tests.analyses.cohorts import choose, cohort_of


def identify(cohort, **choices):
    return ANALYSES["fingerprinting"](cohort, choose(**choices))


@pytest.fixture(scope="module")
def stages(shared):
    """Tables of 55 real people, 37 of them scanned twice."""
    series = np.load(shared / "data" / "stages" / "timeseries.npz", allow_pickle=False)
    labels = [key.split("_") for key in series.files]
    edges = [vectorise_edges(pearson_connectivity(series[key][:, :400]), weighted=False) for key in series.files]
    rows = [(person, session.removeprefix("ses-"), 468.0, 0.1, 1) for person, session in labels]
    cohort = cohort_of(np.stack(edges), rows, pd.DataFrame())
    half = identify(cohort, permutations=9, alpha=0.5, representations=("fc_power",))["identification"]
    return {**identify(cohort, permutations=99), "half": half}


def test_real_people_are_identified_as_the_reference_says(stages):
    frame = stages["identification"].frame.set_index("representation")
    assert round(frame.loc["fc", "accuracy"], 3) == 0.838
    assert frame.loc["fc_power", "accuracy"] == 1.0
    half = stages["half"].frame.iloc[0]
    assert round(half["accuracy"], 3) == 0.986
    flattened, raw = frame.loc["fc_power"], frame.loc["fc"]
    assert flattened["i_diff"] < half["i_diff"] < raw["i_diff"]
    # d', free of the scale, rises as well, though not monotonically
    np.testing.assert_allclose([row["d_prime"] for row in (raw, half, flattened)], [2.45, 3.28, 3.11], atol=0.006)
    assert (frame["n_people"] == 37).all()
    assert (frame["p_permutation"] == 0.01).all()
    pair = stages["identification_comparisons"].frame.iloc[0]
    assert (pair["only_representation"], pair["only_reference"]) == (12, 0)
    assert pair["p_mcnemar"] == pytest.approx(2 * 0.5**12)
    assert pair["ci_low"] > 0
    credit = stages["identification_scans"].frame.pivot_table(
        index=["participant_id", "session"], columns="representation", values="credit"
    )
    won = (credit["fc_power"] - credit["fc"]).groupby("participant_id").sum()
    assert pair["p_people"] == pytest.approx(2 * 0.5 ** (won > 0).sum())  # all in favour: one of two extreme flips


def test_three_sessions_are_compared_in_pairs_and_together():
    rng = np.random.default_rng(0)
    people = rng.standard_normal((6, 45))
    rows, edges = [], []
    for person in range(6):
        for session in "abc"[: 2 if person == 5 else 3]:
            rows.append((f"sub-{person}", session, 300.0, 0.1, 1))
            edges.append(np.tanh(0.5 * people[person] + 0.1 * rng.standard_normal(45)))
    rows.append(("sub-once", "c", 300.0, 0.1, 1))
    edges.append(np.tanh(rng.standard_normal(45)))
    frame = identify(cohort_of(np.stack(edges), rows, pd.DataFrame()), permutations=9)["identification"].frame
    plain = frame[frame["representation"] == "fc"]
    assert plain[["first_session", "second_session"]].to_numpy().tolist() == [
        ["a", "b"],
        ["a", "c"],
        ["b", "c"],
        ["all", "all"],
    ]
    assert plain["n_people"].tolist() == [6, 5, 5, 6]
    assert plain["n_searches"].tolist() == [12, 10, 10, 32]
    assert (plain["accuracy"] == 1).all()
