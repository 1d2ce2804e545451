"""Identification, encoders and parcellations compared on real and planted people: each number as its referee has it."""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import StandardScaler

from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.core.edges import rebuild_matrix, vectorise_edges
from fcpower_bids.core.identification import identify
from tests.analyses.cohorts import choose, cohort_of
from tests.analyses.conftest import TARGETS
from tests.cases.cohorts import group, read, write_table

FULL, WINDOW, NOISE = "embedding:full", "embedding:window", "embedding:noise"


@pytest.fixture(scope="module")
def equipped(cohort):
    """Embeddings of a good encoder, of the same one on windows, and of one that saw nothing."""
    rng = np.random.default_rng(5)
    score = cohort.phenotypes["planted_score"].loc[cohort.scans["participant_id"]].to_numpy()
    person = pd.factorize(cohort.scans["participant_id"])[0]
    trait = rng.standard_normal((60, 16))[person]
    trait[:, 0] += 2 * (score - score.mean()) / score.std()
    full = trait + 0.3 * rng.standard_normal(trait.shape)
    window = trait + 2.0 * rng.standard_normal(trait.shape)
    noise = rng.standard_normal(trait.shape)
    return dataclasses.replace(
        cohort,
        series=(),
        embeddings={"full": full, "window": window, "noise": noise},
        embedding_facts={
            "full": {"n_parameters": 850_000, "n_parcels": 450, "parcellation": "Sch-450", "read": "sequence"},
            "window": {"n_parameters": 850_000, "n_parcels": 450, "parcellation": "Sch-450", "read": "windows"},
        },
        phenotypes=cohort.phenotypes.assign(high=np.where(cohort.phenotypes["planted_score"] > 100, "yes", "no")),
    )


@pytest.fixture(scope="module")
def tables(equipped):
    targets = ("planted_score", "null_score", "high")
    return ANALYSES["encoder_comparison"](equipped, choose(**{**TARGETS, "targets": targets}))


def test_inputs_come_from_sidecars_or_are_said_to_be_unknown(tables, equipped):
    rows = tables["encoders"].frame.drop_duplicates("representation").set_index("representation")
    n_edges = equipped.edges.shape[1]
    assert rows.loc["fc", ["params", "parcels", "scan"]].tolist() == [n_edges, len(equipped.parcels), "full"]
    assert rows.loc[WINDOW, ["params", "parcels", "atlas", "scan"]].tolist() == [850_000, 450, "Sch-450", "windows"]
    assert rows.loc[NOISE, ["params", "parcels", "atlas", "scan"]].tolist() == ["n/a"] * 4


@pytest.mark.parametrize("fitted_to", ["cohort", "fold"])
def test_the_probe_is_ridge_on_z_scored_features(equipped, fitted_to):
    """scikit-learn's ridge with the penalty of the row gives the prediction scores of the row."""
    names = sorted(set(equipped.scans["participant_id"]))
    person = equipped.scans["participant_id"].to_numpy()
    features = np.stack([equipped.embeddings["full"][person == name].mean(axis=0) for name in names])
    y = equipped.phenotypes.loc[names, "planted_score"].to_numpy()
    settings = choose(**TARGETS, representations=(FULL,), kernel="linear", fit_transforms_on=fitted_to)
    prediction = ANALYSES["prediction"](equipped, settings)
    folds = prediction["folds"].frame
    rows = prediction["prediction"].frame.query("target == 'planted_score'").set_index(["repeat", "fold"])
    for fold in range(5):
        part = folds[(folds["repeat"] == 1) & (folds["fold"] == fold)].set_index("participant_id").loc[names]
        train, test = ((part["role"] == role).to_numpy() for role in ("train", "test"))
        row, scaler = rows.loc[(1, fold)], StandardScaler().fit(features[train] if fitted_to == "fold" else features)
        scaled = scaler.transform(features)
        model = RidgeCV([row["penalty"]]).fit(scaled[train], y[train])
        assert row["r"] == pytest.approx(np.corrcoef(model.predict(scaled[test]), y[test])[0, 1], abs=1e-8)


def test_pairs_have_corrected_tests_per_target_and_mcnemar_for_identification(tables, equipped):
    frame = tables["encoder_comparisons"].frame
    assert frame.groupby("target").size().to_dict() == {
        "planted_score": 10, "null_score": 10, "high": 10, "identification": 10,
    }  # fmt: skip
    row = frame.query("target == 'planted_score' and representation == @FULL and reference == 'fc'").iloc[0]
    scores = tables["encoder_folds"].frame.query("target == 'planted_score'")
    scores = scores.pivot_table("r", ["repeat", "fold"], "representation")
    assert row["mean_difference"] == pytest.approx((scores[FULL] - scores["fc"]).mean())
    pair = frame.query("target == 'identification' and representation == @WINDOW and reference == @FULL").iloc[0]
    scans = equipped.scans
    hits = {
        label: identify(np.corrcoef(equipped.embeddings[label]), scans["participant_id"], scans["session"]).credit == 1
        for label in ("full", "window")
    }
    alone = int((hits["window"] & ~hits["full"]).sum()), int((hits["full"] & ~hits["window"]).sum())
    assert (pair["only_representation"], pair["only_reference"]) == alone
    assert pair["p_two_sided"] == pytest.approx(binomtest(alone[0], sum(alone), 0.5).pvalue)
    for name, table in tables.items():
        assert list(table.frame.columns) == list(table.columns), name


@pytest.mark.parametrize("size", [1, 2])
def test_families_are_the_unit_of_identification(size, tmp_path):
    """Every flip of signs of the searches that a family wins, by hand, against the p-value that is written."""
    random, people = np.random.default_rng(2), [f"sub-{number:02d}" for number in range(1, 17)]
    rows = []
    (tmp_path / "bids").mkdir()
    for person in people:
        mixing = np.eye(8) + 0.3 * random.standard_normal((8, 8))
        for session in ("ses-a", "ses-b"):
            artefact = 2 * random.standard_normal((50, 1)) @ random.standard_normal((1, 8))
            np.save(tmp_path / f"{person}_{session}.npy", random.standard_normal((50, 8)) @ mixing + artefact)
            row = {"participant_id": person, "session_id": session, "path": f"{person}_{session}.npy"}
            rows.append(row | {"kind": "series", "repetition_time": 2.0})
    pd.DataFrame(rows).to_csv(tmp_path / "list.tsv", sep="\t", index=False)
    family = dict(zip(people, [f"f{number // size}" for number in range(16)], strict=True))
    columns = {"family": list(family.values()), "age": random.uniform(20, 60, 16)}
    write_table(tmp_path / "bids" / "participants.tsv", participant_id=people, **columns)
    asked = ("--analyses", "fingerprinting", "encoder_comparison", "--representations", "fc", "fc_power")
    assert group(tmp_path, *asked, "--targets", "age", "--family-column", "family", "--alpha", "0.2") == 0
    searches = read(tmp_path, "identification_scans")
    wins = searches.assign(family=searches["participant_id"].map(family)).pivot_table(
        "credit", "family", "representation", aggfunc="sum"
    )
    net = (wins["fc_power"] - wins["fc"]).to_numpy()
    flipped = np.array(list(product((-1, 1), repeat=len(net)))) @ net
    row = read(tmp_path, "encoder_comparisons").set_index("target").loc["identification"]
    assert np.abs(net).sum() > 2
    assert row["p_two_sided"] == pytest.approx((np.abs(flipped) >= abs(net.sum()) - 1e-9).mean())
    fingerprints = read(tmp_path, "identification_comparisons").iloc[0]
    for column in ("ci_low", "ci_high"):
        assert row[column] == fingerprints[column]
    errors = read(tmp_path, "encoders").query("target == 'identification'").set_index("representation")["fold_sd"]
    others = read(tmp_path, "identification").set_index("representation")["sd"]
    pd.testing.assert_series_equal(errors, others.loc[errors.index], check_names=False)


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
def tables_of_sweep(cohorts):
    return ANALYSES["parcellation_sweep"](cohorts, choose(**TARGETS))


def test_the_planted_phenotype_needs_the_parcels_that_carry_it(tables_of_sweep):
    shared = tables_of_sweep["parcellation_sweep"].frame.query("target == 'planted_score'")
    means = shared[shared["representation"] == "fc_power"].groupby("atlas")["r"].mean()
    assert (tables_of_sweep["parcellation_sweep"].frame["n_people"] == 58).all()
    assert means["whole"] > 0.5
    assert means["whole"] > means["part"]
    assert abs(means["noise"]) < 0.3
    row = tables_of_sweep["parcellation_comparisons"].frame.set_index(
        ["target", "representation", "atlas", "reference"]
    )
    row = row.loc["planted_score", "fc_power", "noise", "whole"]
    assert row["mean_difference"] == pytest.approx(means["noise"] - means["whole"])
    assert row["p_less"] < 0.05


def test_gains_within_a_parcellation(tables_of_sweep):
    frame = tables_of_sweep["parcellation_sweep"].frame
    gains = tables_of_sweep["parcellation_gains"].frame.set_index(["atlas", "target"])
    row = gains.loc["whole", "planted_score"]
    own = frame.query("atlas == 'whole' and target == 'planted_score'")
    scores = own.pivot_table("r", ["repeat", "fold"], "representation")
    assert (row["representation"], row["reference"]) == ("fc_power", "fc")
    assert row["mean_difference"] == pytest.approx((scores["fc_power"] - scores["fc"]).mean())
    assert row["folds_won"] == (scores["fc_power"] > scores["fc"]).sum()
    assert len(frame) == 3 * 2 * 2 * 10
