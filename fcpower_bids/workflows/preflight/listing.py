"""Output of ``--dry-run``: every recording that was found, its faults, and the place of its results."""

from __future__ import annotations

from collections.abc import Sequence

from fcpower_bids.inputs.query import Problem
from fcpower_bids.outputs.names import output_folder
from fcpower_bids.outputs.status import (
    DONE,
    EXCLUDED,
    FAILED,
    MOST_ALIKE,
    SKIPPED,
    Status,
    describe_reasons,
    group_alike,
)
from fcpower_bids.settings import Settings
from fcpower_bids.workflows.preflight.plan import Plan, Ready

HEADER = ("recording", "bold", "mask", "confounds", "TR (s)", "volumes", "minutes", "kept (min)", "df", "output")
MOST_ROWS = 200
"""Recordings that can be processed and are listed without ``--verbose``."""
UNKNOWN = (
    "Headers and tables were read, volumes were not: a damaged block of a series, an empty mask, or a parcel without "
    "signal is found when the volumes are read."
)
OUTCOMES = {
    0: "everything would be done",
    4: "some would fail",
    5: "all would fail",
    6: "some would be excluded",
}


def describe_plan(plan: Plan, settings: Settings) -> str:
    """Return what ``--dry-run`` prints."""
    shown = plan.ready if settings.verbose else plan.ready[:MOST_ROWS]
    rows = [_ready_row(one, settings) for one in shown] + _refused_rows(plan, settings) + _combined_rows(plan, settings)
    lines = [_align(HEADER, *rows)]
    if len(shown) < len(plan.ready):
        lines.append(f"... and {len(plan.ready) - len(shown)} more that can be processed (--verbose lists them).")
    lines.append("")
    refused = [status for status in plan.expected if status.reason]
    lines += describe_reasons(refused, settings.verbose)
    lines += [f"Note: {note}" for note in group_notes(plan.notes, settings.verbose)]
    lines += [f"Read from {root}" for root in plan.discovery.derivatives]
    code = plan.exit_code(settings.strict)
    lines += [UNKNOWN, f"Exit code {code}: {OUTCOMES[code]}.", _summary(plan)]
    return "\n".join(lines) + "\n"


def group_notes(notes: Sequence[str], every_one: bool) -> list[str]:
    """Return notes, those that are alike as one with a count."""
    return [
        note if len(alike) == 1 else f"{note} So it is {len(alike)} times in all."
        for alike in group_alike(notes, str, 1 if not every_one else len(notes))
        for note in alike[:1]
    ]


def _ready_row(one: Ready, settings: Settings) -> tuple[str, ...]:
    recording = one.recording
    seconds = recording.repetition_time
    path = output_folder(settings.output_dir, recording).relative_to(settings.output_dir) / f"{recording.name}_*"
    output = "none (excluded)" if one.excluded else f"{path.as_posix()}{' (finished)' if one.finished else ''}"
    return (
        *(recording.name, "yes", "yes" if recording.mask else "not needed", "yes" if recording.confounds else "none"),
        *(f"{seconds:g}", str(one.volumes), f"{one.volumes * seconds / 60:.1f}"),
        *(("-", "-") if one.finished else (f"{one.kept * seconds / 60:.1f}", f"{one.degrees_of_freedom:g}")),
        output,
    )


def _refused_rows(plan: Plan, settings: Settings) -> list[tuple[str, ...]]:
    """One row each; of many with the same problem the first."""
    problems = {problem.recording: problem for problem in plan.discovery.problems}
    most = len(plan.refused) if settings.verbose else MOST_ALIKE
    groups = group_alike(plan.refused, lambda status: status.reason, most)
    return [_refused_row(alike[0], problems.get(alike[0].recording)) for alike in groups]


def _refused_row(status: Status, problem: Problem | None) -> tuple[str, ...]:
    found = ("bold", "mask", "confounds", "TR") if problem is None else problem.found
    marks = ("-" if found is None else "yes" if part in found else "NO" for part in ("bold", "mask", "confounds", "TR"))
    return (status.recording, *marks, "-", "-", "-", "-", f"none ({status.state})")


def _combined_rows(plan: Plan, settings: Settings) -> list[tuple[str, ...]]:
    """The combinations of runs that there will be."""
    names = [status.recording for status in plan.others if status.state == DONE]
    shown = names if settings.verbose else names[:MOST_ROWS]
    return [(name, *["-"] * (len(HEADER) - 2), "combination of its runs") for name in shown]


def _align(*rows: tuple[str, ...]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _summary(plan: Plan) -> str:
    fit = [one for one in plan.ready if not one.excluded]
    people = {one.recording.subject for one in fit}
    hours = sum(one.volumes * one.recording.repetition_time for one in fit) / 3600
    states = [status.state for status in plan.expected]
    failed, skipped = states.count(FAILED), states.count(SKIPPED)
    return (
        f"{len(fit)} recording{'s' * (len(fit) != 1)} of {len(people)} participant{'s' * (len(people) != 1)} "
        f"({hours:.1f} h) can be processed; {failed} {'has' if failed == 1 else 'have'} problems, {skipped} "
        f"{'is' if skipped == 1 else 'are'} skipped, {states.count(EXCLUDED)} would be excluded."
    )
