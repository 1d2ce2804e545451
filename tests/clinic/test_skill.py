"""Nobody reads a number of a model that does no better than a guess, unless it is asked for by name."""

from __future__ import annotations

import html
import json
import re

import pandas as pd
import pytest

from fcpower_bids.clinic.fit import judge_skill
from fcpower_bids.clinic.page import say_added
from fcpower_bids.outputs.tables import read_table
from tests.clinic.planted import group, make_cohort, models
from tests.command import main

ALARM = "This model does no better than guessing the average age."


CELLS = [(0.0, 6), (0.95, 1)]
"""How much of their ages is in the connectomes of forty people, and at how many sites they were scanned."""


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """Forty people of whose ages most is in their connectomes, and five new ones."""
    return make_cohort(tmp_path_factory.mktemp("planted"), 0.95, new=5)


@pytest.mark.parametrize(("share", "sites"), CELLS)
def test_a_model_is_saved_and_used_where_the_test_finds_skill_and_refused_where_not(tmp_path, capsys, share, sites):
    root = make_cohort(tmp_path, share, sites, new=5)
    options = ["--site-column", "site"] if sites > 1 else []
    code, said = group(root, *options), capsys.readouterr().err
    found = share > 0.9
    assert code == (0 if found else 3)
    if not found:
        assert models(root) == []
        assert re.search(
            r"no better than guessing the average age \(p .*, r .* over held-out people.*--accept-no-", said
        )
        assert group(root, *options, "--accept-no-skill") == 0
    (model,) = models(root)
    skill = json.loads((model / "model.json").read_text())["Skill"]
    row = read_table(root / "out" / "group" / "prediction_summary.tsv").iloc[0]
    assert (skill["P"], skill["OverPeople"]) == (row["p_max_targets"], row["r_pooled_mean"])
    assert skill["Found"] == found
    assert not found or skill["Error"] < 0.85 * skill["ErrorOfGuess"]
    code, said = main(["predict", str(model), str(root / "new")]), capsys.readouterr()
    assert code == (0 if found else 3)
    assert (ALARM.removesuffix(".") in said.err) != found
    if not found:
        assert not list((root / "new").glob("*.html"))
        assert main(["predict", str(model), str(root / "new"), "--accept-no-skill"]) == 0
    check_page(root, found)


def check_page(root, found: bool) -> None:
    """No number of a model without skill stands above the sentence that says so."""
    table = read_table(root / "new" / "group" / "predicted" / "target-age-fc.tsv")
    assert table["warning"].astype(object).fillna("").str.startswith(ALARM).tolist() == [not found] * 5
    page = html.unescape(next((root / "new").glob("sub-4*.html")).read_text())
    body = page[page.index("<header") :]
    if found:
        assert ALARM not in body
        assert re.search(r"age: between \d+ and \d+; best guess \d+\.", body)
        return
    above = re.sub("<[^>]+>", "", body[: body.index(ALARM)])
    assert not re.search(r"\d\d\.\d", above)
    assert 'class="verdict stop sheet"' in body[: body.index(ALARM)]


def test_the_choice_is_nothing_without_models(tmp_path, capsys):
    assert main([str(tmp_path / "bids"), str(tmp_path / "out"), "group", "--accept-no-skill"]) == 2
    assert "--accept-no-skill is about the models of --save-models" in capsys.readouterr().err


def test_what_is_known_without_a_scan_is_set_beside_the_model(cohort):
    assert group(cohort) == 0
    (model,) = models(cohort)
    skill = json.loads((model / "model.json").read_text())["Skill"]
    table = read_table(cohort / "out" / "group" / "prediction_baselines.tsv").set_index("model")
    both, added = table.loc["known and connectome"], skill["Added"]
    alone = table.loc[both["over"]]
    assert [added["alone"], added["together"]] == pytest.approx([alone["value"], both["value"]], abs=0.005)
    assert (added["p"], added["adds"]) == (both["p_adds"], bool(both["adds"]))
    assert say_added(skill) == []
    (said,) = say_added({"Added": {"over": "sex alone", "alone": 0.2, "together": 0.21, "p": 0.4, "adds": False}})
    assert "adds nothing that was shown: sex alone 0.20, with it 0.21" in said


def test_a_model_that_was_not_tested_is_refused_with_the_remedy(cohort, capsys):
    assert group(cohort, "--name", "untested", permutations=0) == 3
    told = capsys.readouterr().err
    assert "Whether this model does better than guessing the average age was not tested" in told
    assert "--permutations 1000" in told


def test_an_error_above_that_of_the_guess_is_no_skill_whatever_the_test_found():
    residuals = pd.DataFrame({"residual": [3.0, -3.0], "guess": [2.0, -2.0]})
    tested = {"P": 0.01, "Permutations": 200, "OverPeople": 0.5}
    found = judge_skill(tested, residuals, "r")
    assert (found["Found"], found["Error"], found["ErrorOfGuess"]) == (False, 3.0, 2.0)
    assert judge_skill(tested, residuals.assign(guess=5.0), "r")["Found"]
