"""Demo dataset to group page through the command line: the planted phenotype is found, bad input is told."""

from __future__ import annotations

import getpass
import json
import re
import shutil
import socket
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.outputs.tables import read_table, read_toml
from tests.conftest import copy_study
from tests.running import run, run_group
from tests.telling import telling

QUICK = ["--folds", "5", "--inner-folds", "3", "--repeats", "2", "--quiet", "--nprocs", "1"]


@pytest.fixture(scope="module")
def study(cohort_of_24, tmp_path_factory):
    """The cohort of 24 people with two sessions, to write into: dataset ``in``, outputs ``out``."""
    return copy_study(cohort_of_24, tmp_path_factory.mktemp("study"))


def group(study, *options):
    run_group(study / "in", study / "out", "-w", study / "w", *QUICK, "--replace", *options)


SAVE = ["--save-models", "--any-skill"]


@pytest.fixture(scope="module")
def analysed(study):
    options = ["--targets", "planted_score", "null_score", "--family-column", "family_id", "--permutations", "100"]
    group(study, *options, *SAVE)
    return study / "out"


def test_nothing_outside_the_logs_names_a_place_a_user_or_a_machine(analysed):
    """Whoever is given the outputs learns neither where they were made nor by whom; arrays need no pickle."""
    made = read_toml(analysed / "logs" / "settings.toml")["bids_dir"]
    words = [made, str(analysed.parent), str(Path.home()), getpass.getuser() + "@", socket.gethostname()]
    told = {name for name, _ in telling(analysed, [word for word in words if len(word) > 4])}  # "vm" is in any picture
    assert {name for name in told if not name.startswith("logs/")} == set()
    assert {"logs/settings.toml", "logs/settings_group.toml"} <= told
    archives = [path for path in analysed.rglob("*") if path.suffix in (".npz", ".npy")]
    assert len(archives) >= 2
    for path in archives:
        arrays = np.load(path, allow_pickle=False)
        for each in arrays.values() if path.suffix == ".npz" else [arrays]:
            assert np.asarray(each).dtype != object


def test_scores_and_verdicts_of_the_page_are_what_the_predictions_and_the_null_give(analysed):
    page = (analysed / "group.html").read_text(encoding="utf-8")
    body = page[page.index("All targets") :].partition("</table>")[0]
    head, *rows = (re.findall(r"<t[hd][^>]*>(?:<button[^>]*>)?<bdi>(.*?)</bdi>", row) for row in body.split("<tr>")[1:])
    predicted = read_table(analysed / "group" / "predictions.tsv")
    null = read_table(analysed / "group" / "null.tsv")
    null = null.pivot_table(index="permutation", columns=["target", "representation"], values="score")
    null = (null - null.mean()) / null.std(ddof=0)
    largest = null.iloc[1:].max(axis=1)
    shown = {(row[0], row[1].replace("FC^0.35", "fc_power").replace("FC", "fc")): row for row in rows}
    assert set(shown) == set(null)
    smallest = {}
    for (target, name), row in shown.items():
        own = predicted[(predicted["target"] == target) & (predicted["representation"] == name)]
        scores = [np.corrcoef(part["observed"], part["predicted"])[0, 1] for _, part in own.groupby("repeat")]
        assert float(row[head.index("r of all predictions")]) == pytest.approx(np.mean(scores), abs=0.0051)
        p = (1 + (largest >= null.loc[0, (target, name)] - 1e-12).sum()) / len(null)
        assert row[head.index("p (all targets)")] == f"{p:.3f}"
        smallest[target] = min(p, smallest.get(target, 1))
    for target, p in smallest.items():
        said = page[page.index(f"Prediction of {target}") :].partition("</li>")[0]
        assert f"p = {p:.3f}" in said
        assert ("predicted better than chance" if p < 0.05 else "nothing was found") in said


def test_a_model_takes_the_connectomes_of_its_atlas_and_says_when_there_are_none(analysed, tmp_path):
    model = next((analysed / "group" / "models").glob("*planted*power*"))
    own = next(analysed.glob("sub-01/**/func/*_stat-pearsoncorrelation_relmat.tsv"))
    folder = tmp_path / "out" / "sub-01" / "func"
    folder.mkdir(parents=True)
    other = folder / "sub-01_task-rest_atlas-Other_stat-pearsoncorrelation_relmat.tsv"
    other.write_text("Node\tA\tB\nA\t1\t0.5\nB\t0.5\t1\n")
    assert "atlas of the model" in run("predict", model, tmp_path / "out", code=3).err
    shutil.copyfile(own, folder / own.name)
    shutil.copyfile(own.with_suffix(".json"), (folder / own.name).with_suffix(".json"))
    run("predict", model, tmp_path / "out", code=0)
    table = tmp_path / "out" / "group" / "predicted" / "target-planted-score-fc-power.tsv"
    assert read_table(table)["scan"].tolist() == [own.name.removesuffix("_relmat.tsv")]


MOVING = "sub-91_ses-a_task-rest_space-MNI152NLin2009cAsym_res-2"
MOTION = "mean framewise displacement 1.900 mm, more than --max-mean-fd 0.5 mm"


def change_sidecar(table: Path, **facts: object) -> None:
    path = table.with_suffix(".json")
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


def write_batch(study: Path, folder: Path) -> Path:
    """Ten scans: one not covered, one of another pipeline, one damaged, one of the training, one excluded."""
    out = folder / "out"
    for number in range(17, 25):
        shutil.copytree(study / "out" / f"sub-{number}" / "ses-a", out / f"sub-{number}" / "ses-a")
    shutil.copytree(study / "out" / "sub-01" / "ses-a", out / "sub-90" / "ses-a")  # under another name
    for file in sorted((out / "sub-90").rglob("sub-01*")):
        file.rename(file.with_name(file.name.replace("sub-01", "sub-90")))
    first = {person.name: next(person.rglob("*_stat-pearsoncorrelation_relmat.tsv")) for person in out.glob("sub-*")}
    known, fc = (pd.read_csv(first[name], sep="\t", index_col=0) for name in ("sub-90", "sub-17"))
    known.to_csv(first["sub-90"], sep="\t", float_format="%.8f", na_rep="n/a")  # another rounding
    fc.iloc[3, :] = fc.iloc[:, 3] = np.nan
    fc.to_csv(first["sub-17"], sep="\t", na_rep="n/a")
    change_sidecar(first["sub-18"], NuisanceStrategy="another")
    first["sub-19"].write_text("no matrix")
    change_sidecar(first["sub-20"], Notes=["The level of the whole brain changes by 7 % at volume 31."])
    example = json.loads(next((study / "out" / "logs" / "status").glob("sub-01*.json")).read_text())
    link = {"DatasetLinks": {"fmriprep": "../bids/derivatives/fmriprep"}}
    (out / "dataset_description.json").write_text(json.dumps(link))
    (folder / "bids").mkdir()
    (folder / "bids" / "participants.tsv").write_text("participant_id\tage\tsex\nsub-20\t99\tF\nsub-21\t40\tM\n")
    (out / "logs" / "status").mkdir(parents=True)
    told = example | {"recording": MOVING, "state": "excluded", "reason": MOTION, "outputs": []}
    (out / "logs" / "status" / f"{MOVING}.json").write_text(json.dumps(told))
    return out


def test_a_batch_of_ten_scans_has_ten_rows_and_each_is_compared_with_the_training_scans(study, tmp_path):
    labels = [f"{number:02d}" for number in range(1, 17)]
    options = ["--targets", "planted_score", "--analyses", "prediction", "--name", "sixteen", *SAVE]
    group(study, *options, "--participant-label", *labels)
    model, batch = next((study / "out" / "group").glob("**/sixteen/models/*fc-power*")), write_batch(study, tmp_path)
    said = run("predict", model, batch, code=4).out
    table = read_table(batch / "group" / "predicted" / "target-planted-score-fc-power.tsv")
    assert len(table) == 10
    rows = table.set_index("participant_id")
    refused = ["sub-17", "sub-18", "sub-19", "sub-91"]
    assert set(rows["state"][refused]) == {"refused"}
    assert "does not cover them" in rows.loc["sub-17", "reason"]
    assert "nuisance strategy another, the model's" in rows.loc["sub-18", "reason"]
    assert "is not a numeric table" in rows.loc["sub-19", "reason"]
    assert MOTION in rows.loc["sub-91", "reason"]
    assert rows.loc["sub-90", "in_training"] == "true"
    assert "fitted on this very scan" in rows.loc["sub-90", "warning"]
    assert set(rows["state"].drop(refused)) == {"predicted"}
    assert "not predicted" in said
    assert len(list(batch.glob("sub-*_target-planted-score-fc-power.html"))) == 10
    facts = json.loads((model / "model.json").read_text())
    people = read_table(study / "in" / "participants.tsv").head(16)
    low, high = facts["AgeRange"]
    assert low < people["age"].min() < people["age"].max() < high
    assert f"the person is 99 years old, the training people {low:g} to {high:g}" in rows.loc["sub-20", "warning"]
    mean, sd = facts["Similarity"]
    done = rows[rows["state"] == "predicted"]
    unlike = done["warning"].fillna("").str.contains("the scan is unlike those of the training people")
    assert (unlike == ((done["similarity"] - mean) / sd < -2.33)).all()


def test_little_memory_changes_the_seventh_digit_and_says_so(study):
    asked = ("--analyses", "prediction", "--targets", "planted_score", "--permutations", "0")
    precision, predicted = [], []
    for name, memory in (("roomy", "0"), ("tight", "1")):
        group(study, *asked, "--name", name, "--mem-mb", memory)
        folder = study / "out" / "group" / name
        precision.append(json.loads((folder / "prediction.json").read_text())["Precision"])
        predicted.append(read_table(folder / "predictions.tsv")["predicted"].to_numpy(float))
    assert precision[0] == "double"
    assert "less than 1e-6" in precision[1]
    one, other = predicted
    assert 0 < np.abs(one - other).max() < 1e-4 * one.std()
