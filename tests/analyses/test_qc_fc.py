"""QC-FC against scipy and against planted motion."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fcpower_bids.analyses.qc_fc import analyse_qc_fc, edge_distances
from fcpower_bids.core.connectome.connectivity import average_connectivity
from fcpower_bids.core.connectome.edges import rebuild_matrix
from fcpower_bids.core.connectome.spd import eigendecompose, spectral_map
from fcpower_bids.core.connectome.spectrum import power_weights
from fcpower_bids.core.regression.targets import permuted_rows
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Settings

PARCELS = 7
UPPER = np.triu_indices(PARCELS, 1)
SETTINGS = Settings(Path("bids"), Path("out"), "group").changed(preset="paper", representations=("fc", "fc_power"))


def make_cohort(n=20, sessions=2, seed=0, motion=0.0):
    """Invent scans; ``motion`` moves the first edge with mean FD."""
    random = np.random.default_rng(seed)
    fd = random.gamma(2.0, 0.1, size=n * sessions)
    edges = []
    for row in range(n * sessions):
        series = random.standard_normal((60, PARCELS))
        series[:, 1] += motion * fd[row] * series[:, 0]
        edges.append(np.corrcoef(series.T)[UPPER])
    scans = pd.DataFrame(
        {
            "participant_id": np.repeat([f"sub-{i:02d}" for i in range(n)], sessions),
            "session": np.tile([f"ses-{i}" for i in range(sessions)], n),
            "seconds": 120.0,
            "mean_fd": fd,
        }
    )
    names = tuple(f"parcel{i}" for i in range(PARCELS))
    empty = pd.DataFrame(columns=["participant_id", "session", "what", "reason"])
    return Cohort(scans, np.array(edges), names, ("A",) * PARCELS, pd.DataFrame(), empty)


def averaged(cohort, person):
    rows = np.flatnonzero(cohort.scans["participant_id"] == person)
    matrices = [rebuild_matrix(cohort.edges[row], diagonal=1.0, weighted=False) for row in rows]
    return average_connectivity(np.array(matrices)) if len(rows) > 1 else matrices[0]


def test_every_edge_is_what_scipy_finds_for_fc_and_for_its_power():
    cohort = make_cohort()
    tables = analyse_qc_fc(cohort, SETTINGS)
    table = tables["qcfc"].frame
    people = sorted(set(cohort.scans["participant_id"]))
    motion = cohort.scans.groupby("participant_id")["mean_fd"].mean()[people].to_numpy()
    whole = [averaged(cohort, person) for person in people]
    power = []
    for matrix in whole:
        values, vectors = eigendecompose(matrix)
        power.append(spectral_map(values, vectors, power_weights(values, 0.35)))
    for name, matrices in (("fc", whole), ("fc_power", power)):
        own = table[table["representation"] == name]
        assert own["parcel_a"].tolist() == [f"parcel{i}" for i in UPPER[0]]
        expected = [stats.pearsonr(np.array(matrices)[:, i, j], motion) for i, j in zip(*UPPER, strict=True)]
        np.testing.assert_allclose(own["r"], [one.statistic for one in expected], atol=1e-12)
        np.testing.assert_allclose(own["p"], [one.pvalue for one in expected], atol=1e-10)
        orders = permuted_rows(len(people), 1000, 0)
        edges = stats.zscore(np.array(matrices)[:, UPPER[0], UPPER[1]])
        null = np.abs(stats.zscore(motion)[orders] @ edges) / len(people)
        pooled = [(1 + (null >= abs(r) - 2e-5).sum()) / (1 + null.size) for r in own["r"]]
        np.testing.assert_allclose(own["q"], stats.false_discovery_control(pooled), rtol=0.01)
        row = tables["qcfc_summary"].frame.set_index("representation").loc[name]
        assert row["p_all"] == (1 + ((null**2).mean(axis=1) >= (own["r"] ** 2).mean() - 1e-12).sum()) / 1001


def test_covariates_sites_and_families_are_held_constant():
    """Partial correlations of residuals; within sites permuted motion keeps its level; relatives have no t."""
    cohort, rng = make_cohort(n=24, sessions=1), np.random.default_rng(5)
    names = sorted(cohort.scans["participant_id"])
    site, age = np.arange(24) // 12, rng.uniform(20, 60, 24)
    table = pd.DataFrame({"age": age, "site": site, "family": np.arange(24) // 2}, index=names)
    table.loc[names[3], "age"] = np.nan
    cohort = replace(cohort, phenotypes=table)
    cohort.scans["mean_fd"] += 0.5 * site
    tables = analyse_qc_fc(cohort, SETTINGS.changed(covariates=("age",), site_column="site"))
    kept = np.arange(24) != 3
    design = np.column_stack([site == 0, site == 1, age])[kept].astype(float)
    left = [
        values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
        for values in (cohort.edges[kept], cohort.scans["mean_fd"].to_numpy()[kept])
    ]
    expected = [stats.pearsonr(edge, left[1]).statistic for edge in left[0].T]
    frame, row = tables["qcfc"].frame.query("representation == 'fc'"), tables["qcfc_summary"].frame.iloc[0]
    np.testing.assert_allclose(frame["r"], expected, atol=1e-10)
    assert frame["p"].isna().all(), "sites may be spread differently"
    assert row[["n_people", "n_covariates", "n_sites"]].tolist() == [23, 1, 2]
    plain = replace(cohort, phenotypes=table.drop(columns="site"))
    frame = analyse_qc_fc(plain, SETTINGS.changed(covariates=("age",)))["qcfc"].frame.query("representation == 'fc'")
    df = 23 - 2 - 1
    t = frame["r"] * np.sqrt(df / (1 - frame["r"] ** 2))
    np.testing.assert_allclose(frame["p"], 2 * stats.t.sf(np.abs(t), df))
    related = analyse_qc_fc(cohort, SETTINGS.changed(site_column="site", family_column="family"))
    assert related["qcfc"].frame["p"].isna().all()
    assert related["qcfc"].frame["q"].notna().all()


def test_the_summary_follows_from_the_edges():
    tables = analyse_qc_fc(make_cohort(motion=3.0), SETTINGS)
    edges = tables["qcfc"].frame
    for _, row in tables["qcfc_summary"].frame.iterrows():
        own = edges[edges["representation"] == row["representation"]]
        assert row["median_abs_r"] == pytest.approx(own["r"].abs().median())
        assert row["share_significant"] == pytest.approx((own["q"] < 0.05).mean())
        assert row["n_people"] == 20
        assert np.isnan(row["distance_rho"])
    assert "DistanceDependence" in tables["qcfc_summary"].facts
    assert set(edges.columns) == set(tables["qcfc"].columns)


def test_the_chance_level_of_the_median_is_that_of_unrelated_numbers():
    x, y = stats.zscore(np.random.default_rng(1).standard_normal((2, 4000, 15)), axis=-1)
    found = np.abs((x * y).mean(axis=-1))
    summary = analyse_qc_fc(make_cohort(n=15), SETTINGS)["qcfc_summary"].frame
    assert summary["median_abs_r_chance"][0] == pytest.approx(np.median(found), abs=0.01)


def test_distance_is_between_centroids_and_its_dependence_spearmans():
    places = np.random.default_rng(2).uniform(-70, 70, (PARCELS, 3))
    cohort = replace(make_cohort(), centroids=places)
    np.testing.assert_allclose(edge_distances(cohort)[1], np.linalg.norm(places[0] - places[2]))
    tables = analyse_qc_fc(cohort, SETTINGS)
    own = tables["qcfc"].frame.query("representation == 'fc'")
    expected = stats.spearmanr(own["r"].abs(), own["distance"]).statistic
    assert tables["qcfc_summary"].frame["distance_rho"][0] == pytest.approx(expected)
    assert "DistanceDependence" not in tables["qcfc_summary"].facts
