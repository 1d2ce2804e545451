"""The verdict on a request, from headers and tables alone; ``--dry-run`` prints it and the run executes it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from fcpower_bids.errors import FcPowerError, UsageError
from fcpower_bids.executors.pool import WorkerDied, run_calls
from fcpower_bids.imaging.atlas.loading import load_atlas
from fcpower_bids.imaging.confounds.cleaning import foresee_volumes
from fcpower_bids.imaging.confounds.strategies import load_strategy
from fcpower_bids.inputs.query import Discovery, Problem, find_recordings
from fcpower_bids.outputs.dataset import check_dataset
from fcpower_bids.outputs.names import output_folder
from fcpower_bids.outputs.status import (
    DONE,
    EXCLUDED,
    FAILED,
    MOST_ALIKE,
    RUNNING,
    SKIPPED,
    Status,
    describe_reasons,
    embedding_names,
    explain,
    group_alike,
    read_status,
)
from fcpower_bids.records import Atlas, Recording
from fcpower_bids.settings import Settings
from fcpower_bids.transforms.connectomes import make_transform
from fcpower_bids.workflows.execution import processes
from fcpower_bids.workflows.execution.batches import Job, is_done

BLOCK = 200
"""Recordings that one process judges before another is worth its start: about two seconds."""
CLEANING = "fcpower_bids.imaging.confounds.cleaning"
DIGITS, WORD = 17, 8
"""Bytes of a number in a table, which holds all its digits, and in the work folder."""
GIGA = 1e9


def check_folders(settings: Settings) -> None:
    """Refuse an output folder of another program, and folders that cannot be written to. Raises UsageError."""
    check_dataset(settings.output_dir)
    for folder in (settings.output_dir, settings.work):
        home = _existing(folder)
        if not home.is_dir() or not os.access(home, os.W_OK | os.X_OK):
            raise UsageError(
                f"Nothing can be written to {folder}: {home} is a file, closed to you or read-only. Choose another "
                "folder."
            )


def check_room(todo: Sequence[tuple[Job, int]], settings: Settings) -> None:
    """Refuse folders that have not the room for what is to be written at the least. Raises UsageError."""
    # series and connectomes, by far the most of what is written; the parcel means in the work folder
    matrices = 1 + len(settings.transforms)
    sizes = [(atlas.n_parcels, volumes) for (_, atlases), volumes in todo for atlas in atlases]
    needed = {
        settings.output_dir: DIGITS * sum(parcels * (volumes // 2 + parcels * matrices) for parcels, volumes in sizes),
        settings.work: WORD * sum(parcels * volumes for parcels, volumes in sizes),
    }
    sharing: dict[int, list[Path]] = {}
    for folder in needed:
        sharing.setdefault(_existing(folder).stat().st_dev, []).append(folder)
    for folders in sharing.values():
        free, wanted = shutil.disk_usage(_existing(folders[0])).free, sum(needed[folder] for folder in folders)
        if wanted > free:
            raise UsageError(
                f"{' and '.join(map(str, folders))} will need at least {wanted / GIGA:.1f} GB, but only "
                f"{free / GIGA:.1f} GB are free there: make room, or choose other folders."
            )


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    absolute = folder.absolute()
    return next(path for path in (absolute, *absolute.parents) if path.exists())


ATLAS, INPUTS, BANDPASS, EMBED = "atlas", "inputs", "bandpass", "embed"
"""Steps that the statuses name."""


SOME_FAILED, ALL_FAILED = 4, 5
"""Exit codes of the participant level."""


def exit_code(states: Sequence[str]) -> int:
    """Return the documented exit code for the states of all recordings."""
    failed = any(state in (FAILED, RUNNING) for state in states)
    if DONE not in states and (failed or EXCLUDED in states):  # what was skipped has no result either
        return ALL_FAILED
    return SOME_FAILED if failed else 0


@dataclass(frozen=True)
class Ready:
    """A recording that will be processed."""

    job: Job  # the recording and its atlases
    volumes: int  # volumes of its series
    kept: int = 0  # volumes left after dummy scans and censoring
    excluded: str = ""  # why quality control will exclude it; empty when it will not
    # whether it is finished already, with the same inputs, atlases and choices: nothing was looked at again
    finished: bool = False

    @property
    def recording(self) -> Recording:
        """Recordings that are processed."""
        return self.job[0]


@dataclass(frozen=True)
class Plan:
    """Plan of a run."""

    discovery: Discovery  # found recordings
    ready: tuple[Ready, ...]  # recordings that are processed
    refused: tuple[Status, ...]  # recordings that are not processed, as the run records them
    # embeddings that there will not be, as the run will record them
    others: tuple[Status, ...] = ()
    notes: tuple[str, ...] = ()  # notes that need no action

    @property
    def jobs(self) -> list[Job]:
        """Recordings that are processed."""
        return [one.job for one in self.ready]

    @property
    def expected(self) -> list[Status]:
        """The status of everything after the run, unless the volumes bring something new."""
        processed = (
            Status(one.recording.name, EXCLUDED, BANDPASS, one.excluded)
            if one.excluded
            else Status(one.recording.name, DONE)
            for one in self.ready
        )
        return sorted([*processed, *self.refused, *self.others], key=lambda status: status.recording)

    def exit_code(self) -> int:
        """Return the exit code of the run, unless the volumes bring something new."""
        return exit_code([status.state for status in self.expected])


def plan_run(settings: Settings, atlases: Path) -> Plan:
    """Say what a run of the participant level will do. Raises UsageError, DatasetError."""
    check_folders(settings)
    load_strategy(settings.strategy)
    for name in settings.transforms:
        make_transform(name, settings)
    discovery = find_recordings(settings)
    found = list(zip(discovery.recordings, discovery.volumes, strict=True))
    jobs, without_atlas = _with_atlases(found, settings, atlases)
    refused = [*_refused(discovery.problems), *without_atlas]
    verdicts = _judge_all(jobs, settings)
    ready = [verdict for verdict in verdicts if isinstance(verdict, Ready)]
    refused += [verdict for verdict in verdicts if isinstance(verdict, Status)]
    todo = [(one.job, one.volumes) for one in ready if not one.finished]
    check_room(todo, settings)
    return Plan(discovery, tuple(ready), tuple(refused), tuple(_embeddings(ready, settings)), discovery.notes)


def _refused(problems: Iterable[Problem]) -> Iterator[Status]:
    """One status for all that is wrong with a recording."""
    for name, of_one in groupby(problems, key=lambda problem: problem.recording):
        found = list(of_one)
        state = SKIPPED if all(problem.kind == SKIPPED for problem in found) else FAILED
        yield Status(name, state, INPUTS, " ".join(problem.sentence for problem in found))


def _with_atlases(
    found: Iterable[tuple[Recording, int]], settings: Settings, cache: Path
) -> tuple[list[tuple[Job, int]], list[Status]]:
    """Give each recording its atlases. Raises FcPowerError."""
    loaded: dict[Any, Atlas | FcPowerError] = {}
    jobs: list[tuple[Job, int]] = []
    refused: list[tuple[str, FcPowerError]] = []
    for recording, volumes in found:
        try:
            mine = tuple(_atlas(spec, recording, settings, cache, loaded) for spec in settings.atlas)
        except FcPowerError as error:
            refused.append((recording.name, error))
        else:
            _refuse_twins(mine, settings.atlas)
            jobs.append(((recording, mine), volumes))
    if refused and not jobs:
        raise refused[0][1]
    return jobs, [Status(name, FAILED, ATLAS, str(reason)) for name, reason in refused]


def _refuse_twins(atlases: Sequence[Atlas], given: Sequence[str]) -> None:
    """Refuse two atlases of one name: one would overwrite what the other gave."""
    names = [atlas.name for atlas in atlases]
    for name in names:
        if names.count(name) > 1:
            twins = " and ".join(spec for spec, one in zip(given, names, strict=True) if one == name)
            raise UsageError(
                f"Two atlases of --atlas would write the same files, for both are called '{name}': {twins}. "
                "Leave out one of them, or rename the file and its table."
            )


def _atlas(spec: str, recording: Recording, settings: Settings, cache: Path, loaded: dict[Any, Any]) -> Atlas:
    """Load an atlas in the space of a recording, once for all recordings; so it is with an error."""
    key = (spec, recording.space, recording.is_cifti)
    if key not in loaded:
        try:
            loaded[key] = load_atlas(spec, recording.space, settings.atlas_dir, cache, cifti=recording.is_cifti)
        except FcPowerError as error:
            loaded[key] = error
    if isinstance(loaded[key], FcPowerError):
        raise loaded[key]
    return cast(Atlas, loaded[key])


def _judge_all(jobs: Sequence[tuple[Job, int]], settings: Settings) -> list[Ready | Status]:
    """Say what will become of each recording; of many at once, where several processes were asked for."""
    blocks = [jobs[first : first + BLOCK] for first in range(0, len(jobs), BLOCK)]
    at_once = min(processes(settings), len(blocks))
    if at_once < 2:
        return judge_block(0, jobs, settings)[1]
    calls = ((number, block, settings) for number, block in enumerate(blocks))
    found: dict[int, list[Ready | Status]] = {}
    with suppress(WorkerDied):  # what it leaves is judged here
        found |= run_calls(f"{__name__}:{judge_block.__name__}", calls, at_once, (CLEANING,))
    each = [found.get(number) or judge_block(number, block, settings)[1] for number, block in enumerate(blocks)]
    return [verdict for verdicts in each for verdict in verdicts]


def judge_block(number: int, jobs: Sequence[tuple[Job, int]], settings: Settings) -> tuple[int, list[Ready | Status]]:
    """Say what will become of the recordings of one block; its number comes back with it."""
    return number, [_judge(job, volumes, settings) for job, volumes in jobs]


def _judge(job: Job, volumes: int, settings: Settings) -> Ready | Status:
    """Say what will become of one recording."""
    recording, atlases = job
    try:
        if is_done(job, settings):
            before = read_status(settings.output_dir, recording.name)
            return Ready(job, volumes, excluded=before.reason if before else "", finished=True)
        from fcpower_bids.imaging.series.parcellation import check_request  # loads nibabel

        check_request(recording.bold, recording.mask, atlases)
        kept, excluded = foresee_volumes(recording, volumes, settings)
    except Exception as error:  # of one recording: the others go on
        reason = explain(error, settings.output_dir, f"{recording.name}_{INPUTS}")
        return Status(recording.name, FAILED, INPUTS, reason)
    return Ready(job, volumes, kept, excluded)


def _embeddings(ready: Iterable[Ready], settings: Settings) -> Iterator[Status]:
    """Embeddings that there will not be, because the encoder is not for the atlas. Raises UsageError."""
    if settings.encoder is None:
        return
    from fcpower_bids.interfaces.embedding import refusals  # loads nipype, and then torch

    jobs = [one.job for one in ready if not one.excluded]
    known = {atlases: refusals(settings.method_only(), atlases) for atlases in dict.fromkeys(own for _, own in jobs)}
    if known and all(len(known[atlases]) == len(atlases) for atlases in known):
        sentence = next(sentence for refused in known.values() for _, sentence in refused.values())
        raise UsageError(f"No recording can be embedded. {sentence} Mend that, or leave out --encoder.")
    for recording, atlases in jobs:
        for name, (state, sentence) in known[atlases].items():
            yield Status(embedding_names(recording.name, [name], settings)[name], state, EMBED, sentence)


HEADER = ("recording", "bold", "mask", "confounds", "TR (s)", "volumes", "minutes", "kept (min)", "output")
MOST_ROWS = 200
"""Recordings that can be processed and are listed without ``--verbose``."""
UNKNOWN = (
    "Headers and tables were read, volumes were not: a damaged block of a series, an empty mask, or a parcel without "
    "signal is found when the volumes are read."
)
OUTCOMES = {
    0: "everything would be done",
    4: "some would fail",
    5: "nothing would be done",
}


def describe_plan(plan: Plan, settings: Settings) -> str:
    """Return what ``--dry-run`` prints."""
    shown = plan.ready if settings.verbose else plan.ready[:MOST_ROWS]
    rows = [_ready_row(one, settings) for one in shown] + _refused_rows(plan, settings)
    lines = [_align(HEADER, *rows)]
    if len(shown) < len(plan.ready):
        lines.append(f"... and {len(plan.ready) - len(shown)} more that can be processed (--verbose lists them).")
    lines.append("")
    refused = [status for status in plan.expected if status.reason]
    lines += describe_reasons(refused, settings.verbose)
    lines += [f"Note: {note}" for note in group_notes(plan.notes, settings.verbose)]
    lines += [f"Read from {root}" for root in plan.discovery.derivatives]
    code = plan.exit_code()
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
    path = (
        output_folder(settings.output_dir, recording.entities).relative_to(settings.output_dir) / f"{recording.name}_*"
    )
    output = "none (excluded)" if one.excluded else f"{path.as_posix()}{' (finished)' if one.finished else ''}"
    return (
        *(recording.name, "yes", "yes" if recording.mask else "not needed", "yes" if recording.confounds else "none"),
        *(f"{seconds:g}", str(one.volumes), f"{one.volumes * seconds / 60:.1f}"),
        "-" if one.finished else f"{one.kept * seconds / 60:.1f}",
        output,
    )


PARTS = ("bold", "mask", "confounds", "TR")


def _refused_rows(plan: Plan, settings: Settings) -> list[tuple[str, ...]]:
    """One row each; of many with the same problem the first."""
    problems = {problem.recording: problem for problem in plan.discovery.problems}
    most = len(plan.refused) if settings.verbose else MOST_ALIKE
    groups = group_alike(plan.refused, lambda status: status.reason, most)
    rows = []
    for status in (alike[0] for alike in groups):
        problem = problems.get(status.recording)
        found = PARTS if problem is None else problem.found
        marks = ("-" if found is None else "yes" if part in found else "NO" for part in PARTS)
        rows.append((status.recording, *marks, "-", "-", "-", f"none ({status.state})"))
    return rows


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
