"""QC-FC against scipy, and ComBat against its published equations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.analyses.qc_fc import edge_distances
from fcpower_bids.core.connectome import eigendecompose, power_weights, spectral_map
from fcpower_bids.core.edges import rebuild_matrix
from fcpower_bids.core.folds import Fold
from fcpower_bids.core.targets import fixed_target, permuted_rows
from fcpower_bids.settings import Settings
from tests.analyses.cohorts import cohort_of
from tests.planting.planted import Planted, make_sites
from tests.referee import nested

PARCELS = 7
UPPER = np.triu_indices(PARCELS, 1)
SETTINGS = Settings(Path("bids"), Path("out"), "group").changed(preset="paper", representations=("fc", "fc_power"))


def test_every_edge_is_what_scipy_finds_for_fc_and_for_its_power_and_distance_is_between_centroids():
    """Of two noisy scans of each of twenty people; dependence on distance is Spearman's."""
    random = np.random.default_rng(0)
    fd = random.gamma(2.0, 0.1, size=40)
    edges = np.array([np.corrcoef(random.standard_normal((60, PARCELS)).T)[UPPER] for _ in fd])
    rows = [(f"sub-{row // 2:02d}", f"ses-{row % 2}", 120.0, motion, 1) for row, motion in enumerate(fd)]
    places = np.random.default_rng(2).uniform(-70, 70, (PARCELS, 3))
    cohort = cohort_of(edges, rows, pd.DataFrame(), centroids=places)
    tables = ANALYSES["qc_fc"](cohort, SETTINGS)
    table = tables["qcfc"].frame
    people = sorted(set(cohort.scans["participant_id"]))
    motion = cohort.scans.groupby("participant_id")["mean_fd"].mean()[people].to_numpy()
    matrices = rebuild_matrix(cohort.edges, diagonal=1.0, weighted=False)
    whole = [matrices[(cohort.scans["participant_id"] == person).to_numpy()].mean(axis=0) for person in people]
    power = []
    for matrix in whole:
        values, vectors = eigendecompose(matrix)
        power.append(spectral_map(vectors, power_weights(values, 0.35)))
    for name, matrices in (("fc", whole), ("fc_power", power)):
        own = table[table["representation"] == name]
        assert own["parcel_a"].tolist() == [f"parcel{i:02d}" for i in UPPER[0]]
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
    np.testing.assert_allclose(edge_distances(cohort)[1], np.linalg.norm(places[0] - places[2]))
    own = table[table["representation"] == "fc"]
    expected = stats.spearmanr(own["r"].abs(), own["distance"]).statistic
    assert tables["qcfc_summary"].frame["distance_rho"][0] == pytest.approx(expected)
    assert "DistanceDependence" not in tables["qcfc_summary"].facts


QUICK = ["--quiet", "--nprocs", "1", "--folds", "4", "--inner-folds", "3", "--repeats", "1", "--analyses", "prediction"]
PENALTIES = [0.1, 1.0, 10.0]
SITE = ["--site-column", "site", "--targets", "score", "--representations", "fc"]


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """Two scanners, and a third that two people saw."""
    made = make_sites(tmp_path_factory.mktemp("harmonisation"), 36)
    table = made.phenotypes
    table.loc[[4, 9], "site"] = "three"
    made.phenotypes = table
    return made


def run(cohort, name, *options, code=0):
    return cohort.group(*QUICK, *SITE, "--name", name, "--replace", *options, code=code).err


def combat(edges, sites, train):
    """Fortin et al. 2018 as published: estimated on some, applied to everyone of the sites that these have."""
    train = train[np.isin(sites[train], [s for s in set(sites) if (sites[train] == s).sum() >= 3])]
    names = sorted(set(sites[train]))
    batch = np.column_stack([sites[train] == name for name in names]).astype(float)
    weights = np.linalg.lstsq(batch, edges[train], rcond=None)[0]
    fitted = batch @ weights
    deviation = np.sqrt(((edges[train] - fitted) ** 2).mean(axis=0))
    level = batch.mean(axis=0) @ weights
    standard, out = (edges - level) / deviation, edges.copy()
    for name in names:
        own = standard[train[sites[train] == name]]
        n, raw, spread = len(own), own.mean(axis=0), own.var(axis=0, ddof=1)
        a = 2 + spread.mean() ** 2 / spread.var(ddof=1)
        b = spread.mean() * (a - 1)
        gamma, delta = raw, spread
        for _ in range(300):
            gamma = (n * raw.var(ddof=1) * raw + delta * raw.mean()) / (n * raw.var(ddof=1) + delta)
            delta = (b + ((own - gamma) ** 2).sum(axis=0) / 2) / (a + n / 2 - 1)
        rows = sites == name
        out[rows] = (standard[rows] - gamma) / np.sqrt(delta) * deviation + level
    return out


def test_it_is_combat_of_the_training_people_and_kernel_ridge(cohort):
    run(cohort, "combat", "--penalties", *PENALTIES, "--permutations", "19", "--sites", "combat")
    harmonised = Planted(cohort.root, "combat")
    table = cohort.phenotypes
    files = sorted(cohort.out.rglob("*stat-mean_timeseries.tsv"))
    upper = np.triu_indices(60, 1)
    edges = np.stack([np.corrcoef(pd.read_csv(file, sep="\t").to_numpy().T)[upper] for file in files])
    names, folds = table["participant_id"].tolist(), harmonised.table("folds")
    folds = folds.assign(row=folds["participant_id"].map(names.index))
    predicted = harmonised.table("predictions").set_index("participant_id")["predicted"]
    chosen = harmonised.table("prediction").set_index("fold")["penalty"]
    splits = []
    for number, part in folds.groupby("fold"):
        training, test = (part[part["role"] == role] for role in ("train", "test"))
        inner = [own["row"].to_numpy() for _, own in training.groupby("inner_fold")]
        splits.append(Fold(0, number, training["row"].to_numpy(), test["row"].to_numpy(), inner))

    def kernel_of(train):
        return np.corrcoef(combat(edges, table["site"].to_numpy(dtype=str), train))

    expected = nested(kernel_of, fixed_target(table[["score"]].to_numpy()), splits, PENALTIES)
    for fold, (penalty, values, _) in zip(splits, expected, strict=True):
        assert chosen[fold.fold] == penalty
        np.testing.assert_allclose(predicted[[names[row] for row in fold.test]], values, atol=1e-5)


@pytest.mark.parametrize("asked", ["learning_curves", "alpha_selection"])
def test_what_predicts_without_combat_is_refused_with_it(asked, cohort):
    words = ("--sites", "combat", "--representations", "fc", "fc_power", "--analyses", asked)
    assert "--sites combat" in run(cohort, "refused", *words, code=3)
    assert not (cohort.out / "group" / "refused").exists()
