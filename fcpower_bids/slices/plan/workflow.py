"""Notes of the group level in the journal, before and after its analyses."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from fcpower_bids.cohort.phenotype_columns import parse_composites
from fcpower_bids.outputs.group import FinishedAnalyses
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Settings
from fcpower_bids.slices.plan import journal
from fcpower_bids.slices.plan.journal import JOURNAL, Result
from fcpower_bids.slices.plan.options import PlanChoices
from fcpower_bids.workflows.collect_errors import Attempts
from fcpower_bids.workflows.group import WITHOUT_TARGETS


def note_plan(cohort: Cohort, settings: Settings) -> Cohort:
    """Note a plan that was not seen before, ahead of the first result."""
    if plan := _plan(settings):
        journal.note_new_plan(settings.output_dir / JOURNAL, plan, _targets(cohort, settings))
    return cohort


def note_results(cohort: Cohort, attempts: Attempts) -> None:
    """Note every analysis that is done."""
    settings, folder = attempts.settings, attempts.settings.output_dir / JOURNAL
    keys, plan = FinishedAnalyses(settings.results).keys, _plan(settings)
    digest = journal.digest_plan(plan) if plan else ""
    content = journal.read_plan(folder, digest)["content"] if digest else {}
    for analysis in (name for name in attempts.done if name in keys):
        targets = () if analysis in WITHOUT_TARGETS else _targets(cohort, settings)
        chosen = cast(PlanChoices, settings)
        planned, differs = journal.compare_with_plan(content, chosen, analysis, targets) if digest else ((), ())
        result = Result(settings.name or "", analysis, keys[analysis], targets, planned, digest, differs)
        journal.note_result(folder, result)


def _plan(settings: Settings) -> Path | None:
    return cast(PlanChoices, settings).plan


def _targets(cohort: Cohort, settings: Settings) -> tuple[str, ...]:
    return (*cohort.targets, *parse_composites(settings))
