"""Two questions in one output folder: each keeps its tables and its page."""

from __future__ import annotations

import dataclasses
import html
import json
import shlex

import pandas as pd
import pytest

from fcpower_bids.outputs.tables import read_toml
from fcpower_bids.settings import Group, Inputs
from tests.command import main, parse_settings
from tests.planting.planted import make_cohort
from tests.running import FOOT

QUICK = ["--quiet", "--nprocs", "1", "--folds", "3", "--inner-folds", "2", "--repeats", "1"]
QUICK += ["--analyses", "prediction", "--permutations", "0"]


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    return make_cohort(tmp_path_factory.mktemp("named"), 9, "a")[0]


def run(cohort, *options):
    return main([*map(str, [cohort.bids, cohort.out, "group", *QUICK, *options])])


def test_a_second_question_leaves_the_first_as_it_is(cohort):
    assert run(cohort, "--targets", "age") == 0
    before = {path.name: path.read_bytes() for path in (cohort.out / "group").glob("*.*")}
    first_page = FOOT.sub(b"", (cohort.out / "group.html").read_bytes())
    assert run(cohort, "--targets", "score", "--name", "score_alone") == 0
    assert {path.name: path.read_bytes() for path in (cohort.out / "group").glob("*.*")} == before
    assert FOOT.sub(b"", (cohort.out / "group.html").read_bytes()) == first_page
    assert set(cohort.table("score_alone/prediction")["target"]) == {"score"}
    assert set(cohort.table("prediction")["target"]) == {"age"}
    page = (cohort.out / "group_score_alone.html").read_text()
    assert 'href="group/score_alone/prediction.tsv"' in page
    for text, headline in ((first_page.decode(), "Whether age"), (page, "Whether score")):
        assert f"{headline} can be predicted was not tested against chance." in html.unescape(text)
    command = shlex.split(html.unescape(page).partition('<code id="command">')[2].partition("</code>")[0])
    record = cohort.out / "logs" / command[command.index("--config-file") + 1]
    again = parse_settings([*command[1:-2], "--config-file", str(record)])
    assert (again.level, again.group.name, again.group.targets, again.group.folds) == (
        "group",
        "score_alone",
        ("score",),
        3,
    )
    assert str(cohort.out) not in page


@pytest.mark.parametrize("name", ["models", "../x", "a b", "a" * 100])
def test_a_name_that_cannot_be_a_folder_is_refused(cohort, name, capsys):
    assert run(cohort, "--targets", "age", "--name", name) == 2
    assert f"--name {name} must be" in capsys.readouterr().err


def test_a_file_where_the_tables_would_go_is_refused_and_stays(cohort, capsys):
    taken = cohort.out / "group" / "taken"
    taken.parent.mkdir(exist_ok=True)
    taken.write_text("mine")
    assert run(cohort, "--targets", "age", "--name", "taken") == 2
    assert f"Nothing can be written to {taken}" in capsys.readouterr().err
    assert taken.read_text() == "mine"
    taken.unlink()


QUESTIONS = (
    *(["--covariates", "score"], ["--site-column", "site"], ["--family-column", "participant"], ["--preset", "paper"]),
    *(["--folds-file", "mine.tsv"], ["--max-mean-fd", "0.39"], ["--session-label", "a"]),
)


def test_whatever_makes_another_question_is_told_with_both_before_anything_is_replaced(cohort, tmp_path, capsys):
    names = cohort.phenotypes["participant_id"]
    splits = pd.DataFrame({"participant_id": names, "split": ["a" if i < 4 else "b" for i in range(len(names))]})
    splits.to_csv(tmp_path / "mine.tsv", sep="\t", index=False)
    cohort.phenotypes = cohort.phenotypes.assign(participant=names)
    table = cohort.out / "group" / "first" / "prediction_summary.tsv"
    assert run(cohort, "--targets", "age", "--name", "first") == 0
    before = table.read_bytes()
    for option, *value in QUESTIONS:
        words = [str(tmp_path / word) if word.endswith(".tsv") else word for word in value]
        capsys.readouterr()
        assert run(cohort, "--targets", "age", "--name", "first", option, *words) == 2
        given = words[0] if words else "given"
        was = "recommended" if option == "--preset" else "not given"
        said = f"({option} {was}, now {given}). Give this run another --name to keep both, or --replace."
        assert said in capsys.readouterr().err
        assert table.read_bytes() == before
    assert run(cohort, "--targets", "age", "--name", "first", "--representations", "fc", "--penalties", "1") == 0


def test_a_run_of_other_analyses_does_not_hide_the_question_of_the_first(cohort, capsys):
    assert run(cohort, "--targets", "age", "--name", "hidden") == 0
    words = [word if word != "prediction" else "qc_fc" for word in QUICK]
    other = [*map(str, [cohort.bids, cohort.out, "group", *words, "--name", "hidden", "--targets", "score"])]
    assert main(other) == 0
    assert run(cohort, "--targets", "score", "--name", "hidden") == 2
    assert "(--targets age, now score)" in capsys.readouterr().err


def test_every_choice_of_a_cohort_is_decided_to_make_another_question_or_not():
    fields = {each.name: each for part in (Group, Inputs) for each in dataclasses.fields(part)}
    assert not [name for name, each in fields.items() if each.metadata["question"] is None]


def test_choices_that_a_file_of_folds_overrides_are_not_listed_as_used(cohort, tmp_path, capsys):
    names = cohort.phenotypes["participant_id"]
    splits = pd.DataFrame({"participant_id": names, "split": ["a" if i < 4 else "b" for i in range(len(names))]})
    splits.to_csv(tmp_path / "mine.tsv", sep="\t", index=False)
    words = [word for word in QUICK if word != "--quiet"] + ["--name", "brought", "--targets", "age"]
    command = [cohort.bids, cohort.out, "group", *words, "--folds-file", tmp_path / "mine.tsv"]
    assert main([*map(str, command)]) == 0
    assert "--folds is not used: mine.tsv has the folds." in capsys.readouterr().err
    settings = read_toml(cohort.out / "logs" / "settings_group_brought.toml")
    assert not {"folds", "repeats"} & settings.keys()
    assert settings["inner_folds"] == 2
    results = cohort.out / "group" / "brought"
    for text in ((results / "CITATION.md").read_text(), (cohort.out / "group_brought.html").read_text()):
        assert "--folds " not in text
        assert "--repeats" not in text
    assert (
        not {"n_folds", "n_repeats", "n_inner"} & json.loads((results / "prediction.json").read_text())["Preset"].keys()
    )
    assert "those of mine.tsv; there were 2 inner folds." in (results / "CITATION.md").read_text()
