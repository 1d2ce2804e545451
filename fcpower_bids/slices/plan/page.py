"""Planned and explored results of a page, and the number of results for its targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fcpower_bids.outputs.group import FinishedAnalyses
from fcpower_bids.reports.cohort.tables import GroupTables, Part, Section, count, listed
from fcpower_bids.slices.plan.journal import JOURNAL, Result, read_plan, read_results

MOST = 8
"""Analyses and targets that are named in a sentence."""
TITLE = "Planned and explored"


def plan_section(tables: GroupTables) -> list[Section]:
    """Say which of these results were planned, and how many there are for these targets."""
    settings = tables.settings
    folder = settings.output_dir / JOURNAL
    results = read_results(folder)
    own = [one for one in results if one.results == (settings.name or "") and _is_there(one, tables)]
    if not own:
        return []
    targets = {target for one in own for target in one.targets}
    same = [one for one in results if targets & set(one.targets)]
    gone = sum(not _is_there(one, tables) for one in same)
    said = [
        f"This output folder has had {count(len(same), 'result')} for these targets, {gone} of them replaced or "
        "deleted; an analysis of other people, data or choices counts anew."
    ] * bool(same)
    if not any(one.plan for one in own):
        said.append("No plan was given (--plan): all of it is explored.")
    for digest in dict.fromkeys(one.plan for one in own if one.plan):
        plan = read_plan(folder, digest)
        late = f", after {count(plan['results_before'], 'result')} for these targets" * bool(plan["results_before"])
        said.append(f"The plan {plan['file']} (digest {digest}) was first seen on {plan['date']}{late}.")
        said += _against_plan([one for one in own if one.plan == digest])
    if any(one.plan for one in own) and (rest := [one.analysis for one in own if not one.plan]):
        said.append(f"Explored, without a plan: {listed(_in_words(rest), MOST)}.")
    return [Section("plan", TITLE, tuple(said))]


def _against_plan(own: Sequence[Result]) -> Iterator[str]:
    """Analyses and targets that keep to a plan, and those that do not."""
    kept = [one for one in own if not one.differs]
    planned = dict.fromkeys(target for one in kept for target in one.planned)
    if kept and planned:
        yield f"Planned: {listed(_in_words([one.analysis for one in kept]), MOST)} with {listed(list(planned), MOST)}."
    others = dict.fromkeys(target for one in kept for target in one.targets if target not in one.planned)
    if others:
        yield f"Explored, as the plan does not have them: {listed(list(others), MOST)}."
    for one in (each for each in own if each.differs):
        options = [f"--{name.replace('_', '-')}" for name in one.differs]
        yield f"Explored, as the plan has another {listed(options, MOST)}: {_in_words([one.analysis])[0]}."


def _in_words(analyses: Sequence[str]) -> list[str]:
    return [name.replace("_", " ") for name in analyses]


def _is_there(result: Result, tables: GroupTables) -> bool:
    folder = tables.settings.output_dir / "group" / result.results
    return FinishedAnalyses(folder).keys.get(result.analysis) == result.key


PART = Part(plan_section, "plan", TITLE, place=12)
