"""Planned, explored, and how many results there were, through the command."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from datetime import date

import numpy as np
import pytest

from fcpower_bids.cli.run import main
from tests.planting.planted import Planted, make_cohort

QUICK = ["--quiet", "--nprocs", "1", "--folds", "4", "--inner-folds", "2", "--repeats", "1", "--representations", "fc"]
PLAN = 'targets = ["score"]\nanalyses = ["prediction", "edges"]\npermutations = 19\ncovariates = ["age"]\n'


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    made, _ = make_cohort(tmp_path_factory.mktemp("plan"), 24, "a")
    made.phenotypes = made.phenotypes.assign(other=np.random.default_rng(0).standard_normal(24))
    return made


@pytest.fixture
def cohort(sound, tmp_path):
    shutil.copytree(sound.root, tmp_path / "cohort")
    (tmp_path / "plan.toml").write_text(PLAN)
    return Planted(tmp_path / "cohort")


def run(cohort, *options, name="", code=0):
    named = ["--name", name] if name else []
    command = [cohort.bids, cohort.out, "group", *QUICK, *named, *options]
    assert main([*map(str, command)]) == code
    page = cohort.out / (f"group_{name}.html" if name else "group.html")
    return re.sub(r"\s+", " ", page.read_text()) if not code else ""


ASKED = ["--targets", "score", "--covariates", "age", "--analyses", "prediction"]


def test_every_result_is_counted_deleted_ones_too(cohort):
    page = run(cohort, *ASKED, "--permutations", "19")
    assert "This output folder has had 1 result for these targets, 0 of them replaced or deleted;" in page
    assert "No plan was given (--plan): all of it is explored." in page
    run(cohort, *ASKED, "--permutations", "19")
    (kept,) = (cohort.out / "logs" / "journal").iterdir()
    before = kept.read_bytes()
    page = run(cohort, *ASKED, "--permutations", "29")
    assert "has had 2 results for these targets, 1 of them replaced" in page, "the first was replaced"
    assert kept.read_bytes() == before
    page = run(cohort, "--targets", "other", "--analyses", "prediction", name="other")
    assert "has had 1 result for these targets, 0 of them" in page, "of another target"
    shutil.rmtree(cohort.out / "group")
    page = run(cohort, *ASKED, "--permutations", "39")
    assert "has had 3 results for these targets, 2 of them replaced or deleted" in page
    entries = [json.loads(each.read_text()) for each in (cohort.out / "logs" / "journal").iterdir()]
    assert sum("score" in each["targets"] for each in entries) == 3
    assert {each["date"] for each in entries} == {date.today().isoformat()}


def test_what_keeps_to_the_plan_is_planned_and_the_rest_explored(cohort, tmp_path):
    plan = ["--plan", tmp_path / "plan.toml", "--permutations", "19"]
    page = run(cohort, "--targets", "score", "other", "--covariates", "age", "--analyses", "prediction", "qc_fc", *plan)
    digest = hashlib.sha256(PLAN.encode()).hexdigest()[:16]
    assert f"The plan plan.toml (digest {digest}) was first seen on {date.today().isoformat()}." in page
    assert "Planned: prediction with score." in page
    assert "Explored, as the plan does not have them: other." in page
    assert "Explored, as the plan has another --analyses: qc fc." in page
    page = run(cohort, "--targets", "score", "--analyses", "prediction", *plan, name="changed")
    assert "Explored, as the plan has another --covariates: prediction." in page
    assert "Planned:" not in page


def test_a_plan_that_comes_after_results_says_so_and_cannot_change_what_was_explored(cohort, tmp_path):
    run(cohort, *ASKED, "--permutations", "19")
    page = run(cohort, *ASKED, "--permutations", "19", "--plan", tmp_path / "plan.toml")
    assert "No plan was given (--plan): all of it is explored." in page, "it is the result of before"
    page = run(cohort, *ASKED, "--permutations", "19", "--plan", tmp_path / "plan.toml", name="again")
    assert f"was first seen on {date.today().isoformat()}, after 1 result for these targets." in page
    assert "Planned: prediction with score." in page


@pytest.mark.parametrize(("text", "said"), [("targts = 1", "has 'targts', which is no"), ("= ?", "cannot be read")])
def test_a_plan_that_is_none_is_refused(cohort, tmp_path, text, said, capsys):
    (tmp_path / "plan.toml").write_text(text)
    run(cohort, *ASKED, "--plan", tmp_path / "plan.toml", code=2)
    assert said in capsys.readouterr().err
    run(cohort, *ASKED, "--plan", tmp_path / "none.toml", code=2)
    assert "cannot be read" in capsys.readouterr().err
