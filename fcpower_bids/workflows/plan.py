"""The verdict on a request, from headers and tables alone; ``--dry-run`` prints it and the run executes it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from fcpower_bids.errors import FcPowerError, UsageError
from fcpower_bids.imaging.atlas import load_atlas
from fcpower_bids.imaging.cleaning import foresee_volumes
from fcpower_bids.imaging.confounds import load_strategy
from fcpower_bids.imaging.parcellation import check_request
from fcpower_bids.inputs.discover import Discovery, find_recordings
from fcpower_bids.inputs.roots import dataset_names
from fcpower_bids.outputs.dataset import check_dataset, output_folder
from fcpower_bids.outputs.status import (
    DONE,
    EMBEDDING,
    EXCLUDED,
    FAILED,
    RUNNING,
    SKIPPED,
    Status,
    describe_reasons,
    embedding_name,
    explain,
    group_alike,
    is_finished,
    read_status,
)
from fcpower_bids.parallel import WorkerDied, processes, run_calls
from fcpower_bids.records import Atlas, Recording
from fcpower_bids.settings import Settings
from fcpower_bids.store import may_write, nearest
from fcpower_bids.transforms.connectomes import make_transform

BLOCK = 200
"""Recordings that one process judges before another is worth its start: about two seconds."""
DIGITS = 17
"""Bytes of a number in a table, which holds all its digits, and in the work folder."""
GIGA = 1e9
FINISHED, ELSEWHERE, OTHERWISE = "finished", "elsewhere", "made otherwise by another run"
"""Ends of a recording: done or excluded, which the summary distinguishes; another run is at work on it, or was."""
SOME_FAILED, ALL_FAILED = 4, 5
"""Exit codes of the participant level."""
MOST_ROWS = 200
"""Recordings that can be processed and are listed without ``--verbose``."""
UNKNOWN = (
    "Headers and tables were read, volumes were not: a damaged block of a series, an empty mask, or a parcel without "
    "signal is found when the volumes are read."
)
OUTCOMES = {0: "everything would be done", 4: "some would fail", 5: "nothing would be done"}


def exit_code(states: Sequence[str]) -> int:
    """Return the documented exit code for the states of all recordings."""
    failed = any(state in (FAILED, RUNNING) for state in states)
    if DONE not in states and (failed or EXCLUDED in states):  # what was skipped has no result either
        return ALL_FAILED
    return SOME_FAILED if failed else 0


@dataclass(frozen=True)
class Job:
    """A recording that will be processed."""

    recording: Recording
    atlases: tuple[Atlas, ...]
    kept: int = 0  # volumes left after dummy scans and censoring
    excluded: str = ""  # why quality control will exclude it; empty when it will not
    # whether it is finished already, with the same inputs, atlases and choices: nothing was looked at again
    finished: bool = False


@dataclass(frozen=True)
class Plan:
    """Plan of a run."""

    discovery: Discovery  # found recordings
    jobs: tuple[Job, ...]  # recordings that are processed
    refused: tuple[Status, ...]  # recordings that are not processed, as the run records them
    others: tuple[Status, ...]  # embeddings that there will not be, as the run will record them

    @property
    def expected(self) -> list[Status]:
        """The status of everything after the run, unless the volumes bring something new."""
        ends = [
            Status(job.recording.name, *((EXCLUDED, "bandpass", job.excluded) if job.excluded else (DONE,)))
            for job in self.jobs
        ]
        return sorted([*ends, *self.refused, *self.others], key=lambda status: status.recording)

    @property
    def exit_code(self) -> int:
        """Exit code of the run, unless the volumes bring something new."""
        return exit_code([status.state for status in self.expected])


def plan_run(settings: Settings, cache: Path) -> Plan:
    """Say what a run of the participant level will do; atlases that are made go into `cache`.

    Raises UsageError, DatasetError.
    """
    check_dataset(settings.output_dir)
    for folder in (settings.output_dir, settings.work):
        if not may_write(folder):
            raise UsageError(
                f"Nothing can be written to {folder}: {nearest(folder)} is a file, closed to you or read-only. Choose "
                "another folder."
            )
    load_strategy(settings.method.strategy)
    for name in settings.method.transforms:
        make_transform(name, settings.method)
    discovery = find_recordings(settings)
    refused = []
    for name, problems in groupby(discovery.problems, key=lambda problem: problem.recording):
        listed = list(problems)
        state = SKIPPED if all(problem.kind == SKIPPED for problem in listed) else FAILED
        refused.append(Status(name, state, "inputs", " ".join(problem.sentence for problem in listed)))
    jobs, without_atlas = _with_atlases(discovery, settings, cache)
    verdicts = _judge_all(jobs, settings)
    refused += [*without_atlas, *(verdict for verdict in verdicts if isinstance(verdict, Status))]
    jobs = [verdict for verdict in verdicts if isinstance(verdict, Job)]
    sizes = [(atlas.n_parcels, job.recording.volumes) for job in jobs if not job.finished for atlas in job.atlases]
    matrices = 1 + len(settings.method.transforms)
    wanted = DIGITS * sum(parcels * (volumes // 2 + parcels * matrices) for parcels, volumes in sizes)
    if wanted > (free := shutil.disk_usage(nearest(settings.output_dir)).free):
        raise UsageError(
            f"{settings.output_dir} will need at least {wanted / GIGA:.1f} GB, but only {free / GIGA:.1f} GB are free "
            "there: make room, or choose another folder."
        )
    return Plan(discovery, tuple(jobs), tuple(refused), tuple(_embeddings(jobs, settings)))


def _with_atlases(discovery: Discovery, settings: Settings, cache: Path) -> tuple[list[Job], list[Status]]:
    """Give each recording its atlases, each loaded once for all in a space; so it is with errors. Raises FcPowerError.

    Two atlases of one name are refused: one would overwrite what the other gave.
    """
    loaded: dict[Any, Atlas | FcPowerError] = {}
    jobs: list[Job] = []
    errors: dict[str, FcPowerError] = {}
    for recording in discovery.recordings:
        atlases: dict[str, Atlas] = {}
        for spec in settings.method.atlas:
            key = (spec, recording.space, recording.is_cifti)
            if key not in loaded:
                try:
                    loaded[key] = load_atlas(*key[:2], settings.method.atlas_dir, cache, cifti=recording.is_cifti)
                except FcPowerError as error:
                    loaded[key] = error
            if isinstance(atlas := loaded[key], FcPowerError):
                errors[recording.name] = atlas
                break
            twin = next((other for other, earlier in atlases.items() if earlier.name == atlas.name), None)
            if twin is not None:
                raise UsageError(
                    f"Two atlases of --atlas would write the same files, for both are called '{atlas.name}': {twin} "
                    f"and {spec}. Leave out one of them, or rename the file and its table."
                )
            atlases[spec] = atlas
        else:
            jobs.append(Job(recording, tuple(atlases.values())))
    if errors and not jobs:
        raise next(iter(errors.values()))
    return jobs, [Status(name, FAILED, "atlas", str(reason)) for name, reason in errors.items()]


def _judge_all(jobs: Sequence[Job], settings: Settings) -> list[Job | Status]:
    """Say what will become of each recording; of many at once, where several processes were asked for."""
    blocks = [
        (number, jobs[first : first + BLOCK], settings) for number, first in enumerate(range(0, len(jobs), BLOCK))
    ]
    verdicts: dict[int, list[Job | Status]] = {}
    if (at_once := min(processes(settings), len(blocks))) > 1:
        with suppress(WorkerDied):  # what it leaves is judged here
            verdicts |= run_calls(_judge_block, blocks, at_once, ("fcpower_bids.imaging.parcellation",))
    return [verdict for block in blocks for verdict in verdicts.get(block[0]) or _judge_block(*block)[1]]


def _judge_block(number: int, jobs: Sequence[Job], settings: Settings) -> tuple[int, list[Job | Status]]:
    """Say what will become of the recordings of one block; its number comes back with it."""
    dataset = dataset_names(settings.bids_dir)
    return number, [_judge(job, settings, dataset) for job in jobs]


def _judge(job: Job, settings: Settings, dataset: str) -> Job | Status:
    recording = job.recording
    try:
        if is_finished(settings.output_dir, recording, job.atlases, settings.method, dataset):
            before = read_status(settings.output_dir, recording.name)
            return replace(job, excluded=before.reason if before else "", finished=True)
        check_request(recording.bold, recording.mask, job.atlases)
        kept, excluded = foresee_volumes(recording, settings.method)
    except Exception as error:  # of one recording: the others go on
        reason = explain(error, settings.output_dir, f"{recording.name}_inputs")
        return Status(recording.name, FAILED, "inputs", reason)
    return replace(job, kept=kept, excluded=excluded)


def _embeddings(jobs: Iterable[Job], settings: Settings) -> Iterator[Status]:
    """Embeddings that there will not be, because the encoder is not for the atlas. Raises UsageError."""
    if settings.method.encoder is None:
        return
    from fcpower_bids.interfaces.embedding import refusals  # loads nipype, and then torch

    fit = [job for job in jobs if not job.excluded]
    known = {atlases: refusals(settings.method, atlases) for atlases in dict.fromkeys(job.atlases for job in fit)}
    if known and all(len(known[atlases]) == len(atlases) for atlases in known):
        sentence = next(sentence for refused in known.values() for _, sentence in refused.values())
        raise UsageError(f"No recording can be embedded. {sentence} Mend that, or leave out --encoder.")
    for job in fit:
        for name, (state, sentence) in known[job.atlases].items():
            yield Status(embedding_name(job.recording.name, name, settings.method), state, "embed", sentence)


def describe_notes(notes: Sequence[str], every: bool) -> list[str]:
    """One line for each note on what was found, or for all that say the same."""
    groups = group_alike(notes, str, len(notes) if every else 1)
    times = (f" So it is {len(alike)} times in all." if len(alike) > 1 else "" for alike in groups)
    return [f"Note: {alike[0]}{more}" for alike, more in zip(groups, times, strict=True)]


def describe_plan(plan: Plan, settings: Settings) -> str:
    """Return what ``--dry-run`` prints."""
    code, every, fit = plan.exit_code, settings.run.verbose, [job for job in plan.jobs if not job.excluded]
    shown, lines = fit if every else fit[:MOST_ROWS], list[str]()
    for job in shown:
        name, seconds, volumes = job.recording.name, job.recording.repetition_time, job.recording.volumes
        kept = "finished" if job.finished else f"{job.kept * seconds / 60:.1f} kept"
        folder = output_folder(settings.output_dir, job.recording.entities).relative_to(settings.output_dir).as_posix()
        length = f"{volumes} volumes every {seconds:g} s, {volumes * seconds / 60:.1f} minutes"
        lines.append(f"{name}: {length}, {kept}; {folder}/{name}_*")
    if len(shown) < len(fit):
        lines.append(f"... and {len(fit) - len(shown)} more that can be processed (--verbose lists them).")
    lines += [""] * bool(lines)
    lines += describe_reasons([status for status in plan.expected if status.reason], every)
    lines += describe_notes(plan.discovery.notes, every)
    lines.append(f"Read from {plan.discovery.derivatives}")
    people = {dict(job.recording.entities)["sub"] for job in fit}
    hours = sum(job.recording.volumes * job.recording.repetition_time for job in fit) / 3600
    states = [status.state for status in plan.expected if not status.recording.endswith(EMBEDDING)]
    failed, skipped = states.count(FAILED), states.count(SKIPPED)
    return "\n".join(
        [
            *lines,
            UNKNOWN,
            f"Exit code {code}: {OUTCOMES[code]}.",
            f"{len(fit)} recording{'s' * (len(fit) != 1)} of {len(people)} participant{'s' * (len(people) != 1)} "
            f"({hours:.1f} h) can be processed; {failed} {'has' if failed == 1 else 'have'} problems, {skipped} "
            f"{'is' if skipped == 1 else 'are'} skipped, {states.count(EXCLUDED)} would be excluded.\n",
        ]
    )
