"""The journal: a file per result and per plan in ``logs/journal``, written once and never again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, cast

from fcpower_bids.cohort.phenotype_columns import parse_composites
from fcpower_bids.options import plain_value
from fcpower_bids.outputs.group import FinishedAnalyses
from fcpower_bids.outputs.tables import read_json, read_toml, write_json
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Settings
from fcpower_bids.slices.plan.options import PlanChoices
from fcpower_bids.store import digest_of, stored_path
from fcpower_bids.workflows.group import WITHOUT_TARGETS
from fcpower_bids.workflows.run_progress import Attempts

JOURNAL = Path("logs") / "journal"
BY_TARGET, BY_ANALYSIS = ("targets", "composite"), "analyses"
NO_PART = ("plan", "name", "analyses")
"""Choices that are compared otherwise, or are no part of a question."""


@dataclass(frozen=True)
class Result:
    """One analysis of one cohort by one set of choices."""

    # results, analysis, key: name of the results, the analysis, and the key of people, data and choices
    results: str
    analysis: str
    key: str
    targets: tuple[str, ...]
    planned: tuple[str, ...] = ()  # targets that the plan has
    plan: str = ""  # digest of the plan to whose other choices it keeps; empty where it was explored
    differs: tuple[str, ...] = ()  # choices in which it differs from its plan


def digest_plan(path: Path) -> str:
    """Digest of the bytes of a plan."""
    return digest_of(path)[:16]


def compare_with_plan(
    content: Mapping[str, Any], settings: PlanChoices, analysis: str, targets: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Targets that a plan has, and the choices in which an analysis differs from it."""
    named = [str(text).partition("=")[0].strip() for key in BY_TARGET for text in _as_list(content.get(key))]
    planned = tuple(one for one in targets if not named or one in named)
    differs = [BY_ANALYSIS] if analysis not in _as_list(content.get(BY_ANALYSIS, analysis)) else []
    for key, value in content.items():
        if key not in (*BY_TARGET, *NO_PART) and _in_any_order(value) != _in_any_order(getattr(settings, key)):
            differs.append(key)
    return planned, tuple(differs)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def _in_any_order(value: Any) -> list[str]:
    return sorted(map(str, _as_list(plain_value(value))))


def note_result(folder: Path, result: Result) -> None:
    """Write a result that is not in the journal; one that is keeps what was written first."""
    name = hashlib.blake2b(
        json.dumps([result.results, result.analysis, result.key]).encode(), digest_size=16
    ).hexdigest()
    path = stored_path(folder, f"result_{name}.json")
    if not path.is_file():
        write_json(path, {**vars(result), "date": date.today().isoformat()})


def read_results(folder: Path) -> list[Result]:
    """Every result of the journal."""
    fields = Result.__dataclass_fields__
    found = []
    for path in sorted(folder.glob("result_*.json")):
        content: dict[str, Any] = {key: value for key, value in read_json(path).items() if key in fields}
        content = {key: tuple(each) if isinstance(each, list) else each for key, each in content.items()}
        found.append(Result(**content))
    return found


def note_new_plan(folder: Path, path: Path, targets: Sequence[str]) -> None:
    """Write when a plan was first seen, what it has, and how many results for its targets were there before."""
    kept = stored_path(folder, f"plan_{digest_plan(path)}.json")
    if not kept.is_file():
        before = sum(bool(set(one.targets) & set(targets)) for one in read_results(folder))
        about = {"file": path.name, "date": date.today().isoformat(), "results_before": before}
        write_json(kept, {**about, "content": read_toml(path)})


def read_plan(folder: Path, digest: str) -> dict[str, Any]:
    """Return what `note_new_plan` wrote."""
    return dict(read_json(stored_path(folder, f"plan_{digest}.json")))


def note_plan(cohort: Cohort, settings: Settings) -> Cohort:
    """Note a plan that was not seen before, ahead of the first result."""
    if plan := _plan(settings):
        note_new_plan(settings.output_dir / JOURNAL, plan, _targets(cohort, settings))
    return cohort


def note_results(cohort: Cohort, attempts: Attempts) -> None:
    """Note every analysis that is done."""
    settings, folder = attempts.settings, attempts.settings.output_dir / JOURNAL
    keys, plan = FinishedAnalyses(settings.results).keys, _plan(settings)
    digest = digest_plan(plan) if plan else ""
    content = read_plan(folder, digest)["content"] if digest else {}
    for analysis in (name for name in attempts.done if name in keys):
        targets = () if analysis in WITHOUT_TARGETS else _targets(cohort, settings)
        chosen = cast(PlanChoices, settings)
        planned, differs = compare_with_plan(content, chosen, analysis, targets) if digest else ((), ())
        result = Result(settings.name or "", analysis, keys[analysis], targets, planned, digest, differs)
        note_result(folder, result)


def _plan(settings: Settings) -> Path | None:
    return cast(PlanChoices, settings).plan


def _targets(cohort: Cohort, settings: Settings) -> tuple[str, ...]:
    return (*cohort.targets, *parse_composites(settings))
