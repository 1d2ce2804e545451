"""Whether a model predicts better than a guess: the test of the group level, and its errors against the guess."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fcpower_bids.analyses.baselines import BASELINES, Added, find_added
from fcpower_bids.analyses.prediction import SUMMARY
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.group import find_table
from fcpower_bids.outputs.tables import read_table

SIGNIFICANT = 0.05
SPREAD = (0.05, 0.95)
"""Share of the training values that an interval of 90 % would have without any scan."""
UNTESTED: dict[str, Any] = {"P": math.nan, "Permutations": 0.0, "OverPeople": math.nan}


def tested_at_group_level(results: Path, target: str, representation: str) -> dict[str, Any]:
    """The corrected p of a model, its permutations and its score over held-out people; `UNTESTED` without a table."""
    path = find_table(results, SUMMARY.name)
    if not path.is_file():
        return UNTESTED
    table = read_table(path)
    rows = table[(table["target"].astype(str) == target) & (table["representation"] == representation)]
    if rows.empty:
        return UNTESTED
    row = rows.iloc[0]
    score = "auc" if row["auc_pooled_mean"] == row["auc_pooled_mean"] else "r"
    found = {
        "P": row["p_max_targets"],
        "Permutations": row["n_permutations"],
        "OverPeople": row[f"{score}_pooled_mean"],
    }
    path = find_table(results, BASELINES.name)
    added = find_added(read_table(path), target, representation) if path.is_file() else None
    return found if added is None else found | {"Added": dataclasses.asdict(added)}


def judge_skill(
    tested: Mapping[str, Any],
    residuals: pd.DataFrame,
    scores: Mapping[str, Mapping[str, float]],
    width: float,
    values: pd.Series,
) -> dict[str, Any]:
    """Facts of a model about its skill: a test that finds it, and an error below that of the guess."""
    error, guess = (float((residuals[name] ** 2).mean() ** 0.5) for name in ("residual", "guess"))
    low, high = values.quantile(SPREAD[0]), values.quantile(SPREAD[1])
    return {
        **tested,
        "Found": bool(tested["P"] < SIGNIFICANT and error < guess),
        "Score": "auc" if any("auc" in one for one in scores.values()) else "r",
        "Error": error,
        "ErrorOfGuess": guess,
        "WidthOfInterval": width,
        "SpreadOfValues": float(high - low),
    }


def name_guess(facts: Mapping[str, Any]) -> str:
    """The guess that a model is measured against."""
    if facts["PositiveClass"] is not None:
        return "guessing by the share of each class"
    if facts["Covariates"]:
        *others, last = facts["Covariates"]
        return f"{', '.join(others)} and {last} alone" if others else f"{last} alone"
    return f"guessing the average {facts['Target']}"


def say_skill(facts: Mapping[str, Any]) -> str:
    """The sentence that heads a page; that of a model without skill comes before everything."""
    skill, guess = facts["Skill"], name_guess(facts)
    if skill["Found"]:
        return f"This model does better than {guess}."
    if not tested(skill):
        return f"Whether this model does better than {guess} was not tested."
    return f"This model does no better than {guess}."


def tested(skill: Mapping[str, Any]) -> bool:
    """Whether there was a test that could have found skill."""
    return skill["P"] is not None and skill["P"] == skill["P"] and skill["Permutations"] >= 1 / SIGNIFICANT - 1


def say_evidence(skill: Mapping[str, Any]) -> str:
    """The numbers behind the sentence."""
    score = "AUC" if skill["Score"] == "auc" else "r"
    said = [f"p {skill['P']:.2g}, {score} {skill['OverPeople']:.2f} over held-out people"] if tested(skill) else []
    if "Added" in skill:
        said.append(f"{score} of {_added(skill).clause('the connectome')}")
    return "; ".join([*said, f"error {skill['Error']:.3g}, that of the guess {skill['ErrorOfGuess']:.3g}"])


def say_added(skill: Mapping[str, Any]) -> list[str]:
    """A sentence where the connectome adds nothing to what is known without a scan; none where that was not tested."""
    if "Added" not in skill or _added(skill).adds or _added(skill).p != _added(skill).p:
        return []
    return [f"To what is known anyway the connectome adds nothing that was shown: {_added(skill).clause('it')}."]


def _added(skill: Mapping[str, Any]) -> Added:
    facts: dict[str, Any] = dict(skill["Added"])
    return Added(**{**facts, "p": math.nan if facts["p"] is None else facts["p"]})


def say_in_full(facts: Mapping[str, Any]) -> str:
    """The sentence with its numbers, without a full stop."""
    return f"{say_skill(facts).removesuffix('.')} ({say_evidence(facts['Skill'])})"


def refuse_without_skill(facts: Mapping[str, Any], accepted: bool) -> None:
    """Refuse a model without skill, unless it is asked for by name. Raises DatasetError."""
    if facts["Skill"]["Found"] or accepted:
        return
    remedy = "do not use it" if tested(facts["Skill"]) else "test it (--analyses prediction, --permutations 1000)"
    raise DatasetError(f"{say_in_full(facts)}: {remedy}, or take it as it is with --accept-no-skill.")
