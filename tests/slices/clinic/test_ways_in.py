"""A model, recalibration and identification on scans that came as series or matrices of other programs."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fcpower_bids.cli.run import main
from fcpower_bids.outputs.tables import read_table
from tests.doors.cohort import ONE, WAYS_IN, Entered, Truth, power
from tests.slices.clinic.planted import MEAN, QUICK, SD, series_with

DOORS = ("XCP-D", "list of series", "list of matrices")
SITES, PEOPLE, NEW, LOCAL = 6, 48, 12, 6
OFFSET = 15.0
"""Years that the new people are older than their scans say, as if their scanner moved predictions."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """People of six sites with one scan each, and new ones with two; the ages of both."""
    folder, rng = tmp_path_factory.mktemp("series"), np.random.default_rng(0)
    truths = []
    for name, people, sessions, shifts in (
        ("training", PEOPLE, "a", rng.normal(0, 8, SITES)),
        ("new", NEW, "ab", [OFFSET]),
    ):
        factor, labels = rng.standard_normal(people), [f"{name[0]}{number:02d}" for number in range(people)]
        site = np.arange(people) % len(shifts)
        age = MEAN + SD * factor + np.asarray(shifts)[site]
        table = pd.DataFrame({"participant_id": [f"sub-{label}" for label in labels], "age": age.round(3)})
        (folder / name).mkdir()
        table.assign(site=[f"s{one}" for one in site]).to_csv(folder / name / "participants.tsv", sep="\t", index=False)
        series = {
            (label, one): series_with(at, rng) for label, at in zip(labels, factor, strict=True) for one in sessions
        }
        truths.append(Truth(folder / name, series))
    return truths


@pytest.fixture(scope="module")
def entered(planted, tmp_path_factory):
    """Each door with a model of the training people, and the new people in a folder of their own."""
    found = {}
    for door in DOORS:
        folder = tmp_path_factory.mktemp(door.replace(" ", "_"))
        training, new = (
            WAYS_IN[door](folder / name, truth, ONE) for name, truth in zip(("one", "two"), planted, strict=True)
        )
        words = "--analyses prediction --targets age --representations fc_power --permutations 100 --site-column site"
        places = [str(training.bids), str(training.out), "group", *training.options]
        assert main([*places, *words.split(), *QUICK.split(), "--save-models"]) == 0
        assert main([str(new.bids), str(new.out), "group", *new.options, "--check", "--min-time", "60", "--quiet"]) == 0
        (model,) = (training.out / "group" / "models").iterdir()
        found[door] = (model, new)
    return found


def expected(model, new: Entered) -> dict[tuple[str, str], float]:
    """Predictions from the weights of the model and the series, by numpy alone."""
    with np.load(model / "weights.npz") as arrays:
        weights, level = arrays["weights"][:, 0], float(arrays["intercept"][0])
    said = {}
    for scan, series in new.truth.series.items():
        edges = power(np.corrcoef(series.T))
        edges = edges[np.triu_indices(len(edges), 1)]
        edges = (edges - edges.mean()) / np.linalg.norm(edges - edges.mean())
        said[scan] = float(edges @ weights + level)
    return said


@pytest.mark.parametrize("door", DOORS)
def test_recalibration_moves_new_scans_of_another_program_as_its_formula_says(entered, tmp_path, door):
    model, new = entered[door]
    ages = pd.read_csv(new.bids / "participants.tsv", sep="\t").set_index("participant_id")["age"]
    local = tmp_path / "local.tsv"
    ages.iloc[:LOCAL].to_csv(local, sep="\t")
    assert main(["predict", str(model), str(new.out), "--recalibrate", str(local)]) == 0
    table = read_table(new.out / "group" / "predicted" / f"{model.name.removesuffix('_model')}.tsv")
    assert (table["state"] == "predicted").all()
    assert len(list(new.out.glob("sub-*_target-age*.html"))) == NEW
    raw = expected(model, new)
    person = {
        name: np.mean([value for (label, _), value in raw.items() if f"sub-{label}" == name]) for name in ages.index
    }
    errors = np.array([person[name] - ages[name] for name in ages.index[:LOCAL]])
    facts = json.loads((model / "model.json").read_text())
    sites = pd.DataFrame(facts["HeldOutScores"]["site"]).T
    within = float(((sites["Scans"] - 1) * sites["SD"] ** 2).sum() / (sites["Scans"] - 1).sum())
    between = max(0.0, float((sites["MeanError"] ** 2 - within / sites["Scans"]).mean()))
    offset = errors.mean() * LOCAL * between / (LOCAL * between + within)
    about = json.loads((new.out / "group" / "predicted" / f"{model.name.removesuffix('_model')}.json").read_text())
    assert about["Recalibration"]["Offset"] == pytest.approx(offset, abs=1e-4)
    radius = next(one["Radius"] for one in reversed(facts["Interval"]["WithLocalPeople"]) if one["People"] <= LOCAL)
    got = table.set_index(["participant_id", "session"])
    for (label, session), value in raw.items():
        row = got.loc[(f"sub-{label}", f"ses-{session}")]
        ends = (value - offset, max(value - offset - radius, 0), value - offset + radius)
        assert (row["prediction"], row["low"], row["high"]) == pytest.approx(ends, abs=1e-3)
    later = ages.index[LOCAL:]
    before, after = (np.abs([person[name] - moved - ages[name] for name in later]).mean() for moved in (0, offset))
    assert after < before - 5


@pytest.mark.parametrize("door", DOORS)
def test_identify_compares_sessions_of_another_program(entered, door):
    _, new = entered[door]
    assert main(["identify", str(new.out)]) == 0
    pairs = read_table(new.out / "group" / "identify_pairs.tsv")
    own = pairs[pairs["participant_id"] == pairs["other_participant_id"]].set_index("participant_id")
    assert len(own) == NEW == len(list(new.out.glob("sub-*_identify.html")))
    edges = {
        scan: power(np.corrcoef(one.T))[np.triu_indices(one.shape[1], 1)] for scan, one in new.truth.series.items()
    }
    for label in {label for label, _ in edges}:
        known = stats.pearsonr(edges[label, "a"], edges[label, "b"]).statistic
        assert own.loc[f"sub-{label}", "similarity"] == pytest.approx(known, abs=1e-5)


def test_a_model_is_not_applied_to_scans_whose_parcels_bear_other_names(entered, capsys):
    model, _ = entered["XCP-D"]
    _, new = entered["list of series"]
    assert main(["predict", str(model), str(new.out)]) == 3
    assert "of the atlas of the model" in capsys.readouterr().err
