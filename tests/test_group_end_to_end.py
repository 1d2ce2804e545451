"""Demo dataset to group page through the command line: the planted phenotype is found, bad input is told."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.cli.run import main
from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.outputs.tables import read_table

QUICK = ["--folds", "5", "--inner-folds", "3", "--repeats", "2", "--quiet", "--nprocs", "1"]


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """A processed cohort of 24 people with two sessions: folder of the dataset, folder of the outputs."""
    folder = tmp_path_factory.mktemp("study")
    make_dataset(folder / "bids", DemoDesign(volumes=140, troubles=False))
    code = main(
        [
            str(folder / "bids"),
            str(folder / "out"),
            "participant",
            "--atlas",
            "builtin",
            "--quiet",
            "-w",
            str(folder / "w"),
        ]
    )
    assert code == 0
    return folder


def group(study, *options, out="out"):
    return main([str(study / "bids"), str(study / out), "group", "-w", str(study / "w"), *QUICK, *options])


@pytest.fixture(scope="session")
def analysed(study):
    options = ["--targets", "planted_score", "null_score", "--family-column", "family_id", "--permutations", "100"]
    assert group(study, *options, "--save-models") == 0
    return study / "out"


def test_the_planted_phenotype_is_found_and_the_null_is_not(analysed):
    table = read_table(analysed / "group" / "prediction_summary.tsv").set_index(["target", "representation"])
    assert table.loc[("planted_score", "fc_power"), "r_pooled_mean"] > 0.5
    assert table.loc[("null_score", "fc_power"), "r_pooled_mean"] < 0.3
    p_columns = [name for name in table.columns if name.startswith("p_")]
    assert p_columns, "the summary has permutation p-values"
    assert table.loc[("planted_score", "fc_power"), p_columns[0]] < 0.05
    assert table.loc[("null_score", "fc_power"), p_columns[0]] > 0.05


def test_flattening_identifies_more_people(analysed):
    table = read_table(analysed / "group" / "identification.tsv").set_index("representation")
    assert table.loc["fc_power", "accuracy"] > table.loc["fc", "accuracy"] + 0.3


def test_every_table_has_a_sidecar_that_describes_its_columns(analysed):
    tables = sorted((analysed / "group").glob("*.tsv"))
    assert len(tables) > 8
    for path in tables:
        about = json.loads(path.with_suffix(".json").read_text())
        missing = [name for name in read_table(path).columns if name not in about]
        assert not missing, f"{path.name}: {missing}"


def test_one_row_per_fold(analysed):
    table = read_table(analysed / "group" / "prediction.tsv")
    assert not table.duplicated(["target", "representation", "repeat", "fold"]).any()
    assert len(table) == 2 * 2 * 2 * 5


def test_families_never_span_a_split(analysed, study):
    folds = read_table(analysed / "group" / "folds.tsv")
    people = read_table(study / "bids" / "participants.tsv")
    family = dict(zip(people["participant_id"].str.removeprefix("sub-"), people["family_id"], strict=True))
    folds["family"] = folds["participant_id"].astype(str).str.removeprefix("sub-").map(family)
    assert folds["family"].notna().all()
    roles = folds.groupby(["repeat", "fold", "family"])["role"].nunique()
    assert (roles == 1).all()


def test_the_page_is_there(analysed):
    page = (analysed / "group.html").read_text(encoding="utf-8")
    assert "planted_score" in page
    assert "null_score" in page


def test_a_second_run_gives_the_same_bytes_whatever_the_number_of_processes(study, analysed):
    before = {path.name: path.read_bytes() for path in (analysed / "group").glob("*.tsv")}
    (analysed / "group" / "analyses.json").unlink()  # or nothing would be done again
    options = ["--targets", "planted_score", "null_score", "--family-column", "family_id", "--permutations", "100"]
    assert group(study, *options, "--nprocs", "2") == 0
    assert {path.name: path.read_bytes() for path in (analysed / "group").glob("*.tsv")} == before


def test_a_saved_model_predicts_the_scans_of_the_cohort(analysed, study, tmp_path):
    model = next((analysed / "group" / "models").glob("*planted*power*"))
    table = tmp_path / "predicted.tsv"
    assert main(["predict", str(model), str(analysed), "--table", str(table)]) == 0
    predicted = read_table(table)
    people = read_table(study / "bids" / "participants.tsv").set_index("participant_id")["planted_score"]
    truth = [people["sub-" + name[4:6]] for name in predicted["scan"]]
    assert np.corrcoef(predicted["prediction"], truth)[0, 1] > 0.7
    assert (predicted["inside_range"] == "true").mean() > 0.9


def test_a_model_takes_the_connectomes_of_its_atlas_and_says_when_there_are_none(analysed, tmp_path, capsys):
    model = next((analysed / "group" / "models").glob("*planted*power*"))
    own = next(analysed.glob("sub-01/**/func/*_stat-pearsoncorrelation_relmat.tsv"))
    folder = tmp_path / "out" / "sub-01" / "func"
    folder.mkdir(parents=True)
    other = folder / "sub-01_task-rest_atlas-Other_stat-pearsoncorrelation_relmat.tsv"
    other.write_text("Node\tA\tB\nA\t1\t0.5\nB\t0.5\t1\n")
    assert main(["predict", str(model), str(tmp_path / "out")]) == 3
    assert "atlas of the model" in capsys.readouterr().err
    shutil.copyfile(own, folder / own.name)
    assert main(["predict", str(model), str(tmp_path / "out")]) == 0
    (table,) = (tmp_path / "out" / "group" / "predicted").glob("*.tsv")
    assert read_table(table)["scan"].tolist() == [own.name.removesuffix("_relmat.tsv")]


def test_the_dry_run_writes_nothing(study, capsys):
    shutil.copytree(study / "out", study / "dry", dirs_exist_ok=True)
    shutil.rmtree(study / "dry" / "group", ignore_errors=True)
    assert main([str(study / "bids"), str(study / "dry"), "group", "--dry-run", "-w", str(study / "w")]) == 0
    assert "24 people" in capsys.readouterr().err
    assert not (study / "dry" / "group").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--targets", "planted_scor"], ["planted_scor", "planted_score"]),
        (["--targets", "constant"], ["constant"]),
        (["--targets", "missing"], ["missing"]),
        (["--targets", "words"], ["words"]),
        (["--family-column", "famly"], ["famly"]),
        (["--site-column", "nowhere", "--hold-out-sites"], ["nowhere"]),
        (["--covariates", "nothing"], ["nothing"]),
        (["--composite", "g=reasoning,memroy"], ["memroy"]),
        (["--targets", "planted_score", "--folds", "40"], ["40"]),
        (["--targets", "planted_score", "--family-column", "everybody"], ["family"]),
        (["--session-label", "a", "--analyses", "fingerprinting"], ["session"]),
        (["--targets", "planted_score", "--representations", "embedding"], ["embedding"]),
        (["--targets", "planted_score", "--representations", "nonsense"], ["nonsense"]),
        (["--participant-label", "99"], ["99"]),
        (["--task-id", "none"], ["none"]),
    ],
)
def test_bad_requests_are_told_in_one_sentence_and_write_nothing(study, capsys, tmp_path, options, words):
    table = read_table(study / "bids" / "participants.tsv")[["participant_id"]]
    table = table.assign(constant=1.0, missing=pd.NA, words=[f"w{i}" for i in range(len(table))], everybody="one")
    extra = tmp_path / "extra.tsv"
    table.to_csv(extra, sep="\t", index=False, na_rep="n/a")
    shutil.rmtree(study / "bad", ignore_errors=True)
    shutil.copytree(study / "out", study / "bad", ignore=shutil.ignore_patterns("group*", "*.html"))
    tables = [str(extra), str(study / "bids" / "participants.tsv"), str(study / "bids" / "phenotype" / "cognition.tsv")]
    code = group(study, "--phenotypes", *tables, *options, out="bad")
    text = capsys.readouterr().err
    assert code in (2, 3), text
    assert "Traceback" not in text
    for word in words:
        assert word in text
    assert not list((study / "bad").glob("group/prediction*"))


@pytest.mark.parametrize("content", ["id\tx\n1\t2\n", "", "participant_id\tx\nsub-01\t1\nsub-01\t2\n"])
def test_a_phenotype_table_that_cannot_be_used_is_named(study, capsys, tmp_path, content):
    path = tmp_path / "broken.tsv"
    path.write_text(content)
    assert group(study, "--phenotypes", str(path), "--targets", "x") == 3
    assert "broken.tsv" in capsys.readouterr().err


def test_mixed_exponents_are_refused(study, capsys):
    shutil.rmtree(study / "mixed", ignore_errors=True)
    shutil.copytree(study / "out", study / "mixed", ignore=shutil.ignore_patterns("group*"))
    for path in (study / "mixed" / "sub-02").rglob("*desc-power0p35*"):
        path.rename(path.with_name(path.name.replace("power0p35", "power0p5")))
    assert group(study, "--targets", "planted_score", out="mixed") == 3
    assert "power0p5" in capsys.readouterr().err
