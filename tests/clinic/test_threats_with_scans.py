"""The attacks of docs/outputs.md by who holds scans of people, and on what has rows by person."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from scipy import stats

from fcpower_bids.outputs.tables import read_table
from tests.clinic.planted import MEAN, QUICK, SD
from tests.command import main
from tests.doors.test_doors_in_pairs import Shape, Truth, by_list, power

PEOPLE, PARCELS = 30, 20
NAMES = [f"sub-p{number:02d}" for number in range(PEOPLE)]


@dataclass(frozen=True)
class Attacked:
    """A study with one scan per person, and what an attacker has: another scan of each, and perhaps the same."""

    out: Path
    model: Path
    series: dict[tuple[str, str], np.ndarray]
    age: pd.Series

    def rows(self, session: str) -> np.ndarray:
        """Edges of FC^alpha of each person, centred and of unit norm, from series alone."""
        return np.array([row_of(np.corrcoef(self.series[name[4:], session].T)) for name in NAMES])


def row_of(fc: np.ndarray) -> np.ndarray:
    edges = power(fc)[np.triu_indices(len(fc), 1)]
    edges = edges - edges.mean()
    return edges / np.linalg.norm(edges)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """Thirty people whose ages have nothing to do with their scans, and a model of these ages."""
    folder, rng = tmp_path_factory.mktemp("attacked"), np.random.default_rng(5)
    shared, series = rng.standard_normal((PARCELS, 4)), {}
    for name in NAMES:
        load = shared + 0.6 * rng.standard_normal((PARCELS, 4))
        for session in "ab":
            noise = rng.standard_normal((200, PARCELS))
            series[name[4:], session] = rng.standard_normal((200, 4)) @ load.T + noise
    age = pd.Series(rng.normal(MEAN, SD, PEOPLE).round(2), NAMES)
    (folder / "bids").mkdir()
    pd.DataFrame({"participant_id": NAMES, "age": age.to_numpy()}).to_csv(
        folder / "bids" / "participants.tsv", sep="\t", index=False
    )
    one_each = {scan: each for scan, each in series.items() if scan[1] == "a"}
    study = by_list(folder / "study", Truth(folder / "bids", one_each), Shape(decided="all accepted"))
    words = "--analyses prediction --targets age --representations fc_power --permutations 0 --save-models"
    places = [str(study.bids), str(study.out), "group", *study.options]
    for options in ([], ["--name", "without-one", "--participant-label", *NAMES[1:]]):
        assert main([*places, *words.split(), "--accept-no-skill", *QUICK.split(), *options]) == 0
    (model,) = (study.out / "group" / "models").iterdir()
    return Attacked(study.out, model, series, age)


def predictions(attacked: Attacked) -> pd.DataFrame:
    assert main(["predict", str(attacked.model), str(attacked.out), "--accept-no-skill"]) == 0
    name = attacked.model.name.removesuffix("_model")
    table = read_table(attacked.out / "group" / "predicted" / f"{name}.tsv")
    return table.set_index("participant_id").loc[NAMES]


def test_who_has_a_scan_can_see_that_it_took_part_and_reads_its_value(attacked):
    """A model gives its training scans back, though it predicts nobody else: skill and this are two things."""
    found = predictions(attacked)
    assert (found["in_training"] == "true").all()
    others = read_table(attacked.out / "group" / "predictions.tsv").groupby("participant_id")["predicted"].mean()
    assert stats.pearsonr(found["prediction"], attacked.age).statistic > 0.8
    assert stats.pearsonr(others[NAMES], attacked.age).statistic < 0.1


def test_who_has_all_scans_solves_for_every_value(attacked):
    """Weights are a sum of the training scans: its coefficients and the penalty give the values to the last digit."""
    with np.load(attacked.model / "weights.npz") as arrays:
        weights, penalty = arrays["weights"][:, 0], float(arrays["penalty"][0])
        centred, level = attacked.rows("a") - arrays["mean_features"], float(arrays["intercept"][0])
    coefficients = np.linalg.lstsq(centred.T, weights, rcond=None)[0]
    found = centred @ weights + penalty * coefficients + level
    np.testing.assert_allclose(found, attacked.age, atol=1e-3)


def test_outputs_have_rows_by_person(attacked):
    table = read_table(attacked.out / "group" / "predictions.tsv").drop_duplicates("participant_id")
    assert table.set_index("participant_id")["observed"][NAMES].tolist() == attacked.age.tolist()
    assert {path.name[:7] for path in attacked.out.rglob("sub-*_timeseries.npy")} == set(NAMES)


def test_a_corpus_has_names_and_series(attacked, tmp_path):
    words = ["--steps", "2", "--batch-size", "4", "--architecture", "d=16", "layers=1", "heads=2", "--window", "30"]
    bids = attacked.out.parent / "people"
    quiet = ["--held-out", "0.5", "--accept-unproven", "--dataset-name", "study", "--quiet", "--nprocs", "1"]
    assert main([str(bids), str(attacked.out), "pretrain", *words, *quiet]) == 0
    corpus = attacked.out / "corpus"
    rows = pd.read_csv(corpus / "recordings.tsv", sep="\t", dtype={"subject": str})
    assert sorted(rows["subject"]) == [name[4:] for name in NAMES]
    row = rows.iloc[0]
    with safe_open(corpus / f"series-{row['shard']:05d}.safetensors", "np") as shard:
        series = shard.get_slice("series")[row["offset"] : row["offset"] + row["T"]]
    likeness = attacked.rows("b") @ row_of(np.corrcoef(np.asarray(series, dtype=float).T))
    assert NAMES[int(likeness.argmax())] == f"sub-{row['subject']}"
    facts = json.loads((attacked.out / "encoder" / "model" / "config.json").read_text())
    assert len(facts["trained_on"]) + len(facts["held_out"]) == PEOPLE
