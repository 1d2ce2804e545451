"""All recordings through processes or a cluster, and what to do when a process is killed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from fcpower_bids.executors.pool import WorkerDied, run_calls
from fcpower_bids.imaging.atlas.described import describe_atlas
from fcpower_bids.inputs.identity import dataset_identity
from fcpower_bids.locks import LOCKS, lock
from fcpower_bids.outputs.names import files_of, folders_of, is_file_of
from fcpower_bids.outputs.status import (
    FAILED,
    RUNNING,
    Status,
    embedding_names,
    explain_step,
    fingerprint,
    input_mark,
    is_finished,
    read_status,
    remove_outdated,
    status_path,
    write_status,
)
from fcpower_bids.records import Atlas, Recording
from fcpower_bids.settings import Settings
from fcpower_bids.store import leftovers, sweep
from fcpower_bids.workflows.execution import FOR_PAGES, FOR_RECORDINGS, processes
from fcpower_bids.workflows.run_progress import ELSEWHERE, Progress

Job = tuple[Recording, tuple[Atlas, ...]]
PARCELS = "parcels"
"""Folder of the work folder that keeps the parcel means of all recordings."""
PROCESS = "fcpower_bids.workflows.execution.job:process_recording"
KILLED = "{}. Give more memory, or fewer atlases at a time, and run the same command again."
VANISHED = (
    "The process that worked on it ended without a word, as when it is killed, memory runs out or a cluster ends the "
    "job: see the log of the scheduler or of the system, and run the same command again."
)
NOT_STARTED = "The run ended before its turn came. Run the same command again."


def run_jobs(jobs: list[Job], settings: Settings, datasets: dict[str, Path], work: Path, progress: Progress) -> None:
    """Run every job that is not finished; afterwards each recording has a final status."""
    todo = [job for job in jobs if not is_done(job, settings)]
    runner = None
    if todo and settings.use_plugin is not None:  # before anything is removed, since it may be refused
        from fcpower_bids.executors.nipype_plugin import make_runner  # loads nipype

        runner = make_runner(settings.use_plugin)
    progress.begin(len(jobs) - len(todo))
    known = [_forget(recording, settings, progress) for recording, _ in todo]
    if runner is not None:
        from fcpower_bids.executors.nipype_plugin import configure_nipype, run_on_cluster  # loads nipype

        configure_nipype(settings.output_dir / "logs" / "crashes", settings.debug)
        named = ((workflow_name(call[0]), call) for call in _calls(todo, settings, datasets, work, wait=True))
        run_on_cluster(PROCESS, named, runner, work)
    else:
        theirs = _run(todo, settings, datasets, work, progress, wait=False)
        for recording, _ in theirs:
            progress.say(f"{recording.name}: another run is at work on it; it is waited for.")
        _run(theirs, settings, datasets, work, progress, wait=True)
    for recording, _ in todo:
        status = read_status(settings.output_dir, recording.name)
        if status is None or status.state == RUNNING:
            reason = explain_step(settings.output_dir, workflow_name(recording))
            reason = reason or (NOT_STARTED if status is None else VANISHED)
            write_status(settings.output_dir, Status(recording.name, FAILED, status.stage if status else "", reason))
    for earlier in known:
        if earlier is not None and (removed := remove_outdated(settings.output_dir, earlier)):
            progress.say(f"{earlier.recording}: excluded now, so its {len(removed)} former files are removed.")
    for job in jobs:
        with lock(settings.output_dir / LOCKS / job[0].name, wait=False) as is_free:
            if is_free:
                _sweep(job, settings)
    progress.end()


def _forget(recording: Recording, settings: Settings, progress: Progress) -> Status | None:
    """Remove the status of a recording, and where its input has changed all that was made of the former; return it."""
    output, earlier = settings.output_dir, read_status(settings.output_dir, recording.name)
    with lock(output / LOCKS / recording.name, wait=False) as is_free:
        if is_free:  # else another run is at work on it
            status_path(output, recording.name).unlink(missing_ok=True)
            if earlier is not None and earlier.inputs not in ("", input_mark(recording)):
                old = [path for path in files_of(output, recording.entities) if path.is_file()]
                for path in old:
                    path.unlink(missing_ok=True)
                progress.say(
                    f"{recording.name}: its input is another than before: the {len(old)} files that were made of the "
                    "former are removed, those of other atlases too."
                )
    return earlier


def _sweep(job: Job, settings: Settings) -> None:
    """Remove what workers that were killed left half-written of a recording, its status included."""
    recording, output = job[0], settings.output_dir
    for folder in folders_of(output, recording.entities):
        sweep(folder / name for name in leftovers(folder) if is_file_of(name, recording.entities))
    starts = {
        status_path(output, recording.name).parent: recording.name,
        settings.work / PARCELS: recording.bold.name.partition(".")[0],
    }
    for folder, start in starts.items():
        sweep(folder / name for name in leftovers(folder) if name.startswith(start))


def _run(
    todo: list[Job], settings: Settings, datasets: dict[str, Path], work: Path, progress: Progress, wait: bool
) -> list[Job]:
    """Run jobs on this machine and return those at which another run is at work, without `wait`."""
    theirs: list[Job] = []
    while todo:
        by_name = {job[0].name: job for job in todo}
        try:
            calls = _calls(todo, settings, datasets, work, wait)
            with closing(run_calls(PROCESS, calls, processes(settings), FOR_RECORDINGS, FOR_PAGES)) as outcomes:
                for outcome in outcomes:
                    if outcome.failed_at == ELSEWHERE:
                        theirs.append(by_name[outcome.recording])
                    else:
                        progress.finished(outcome)
            return theirs
        except WorkerDied as error:
            if not _note_killed(todo, error, settings, progress):
                return theirs
        states = [read_status(settings.output_dir, recording.name) for recording, _ in todo]
        is_open = [status is None or status.state == RUNNING for status in states]
        todo = [job for job, left in zip(todo, is_open, strict=True) if left and job not in theirs]
    return theirs


def _note_killed(todo: list[Job], error: WorkerDied, settings: Settings, progress: Progress) -> bool:
    """Write the status of the recordings whose process was killed; return whether there are any."""
    at_work = []
    for recording, _ in todo:
        status = read_status(settings.output_dir, recording.name)
        with lock(settings.output_dir / LOCKS / recording.name, wait=False) as is_free:
            if is_free and status is not None and status.state == RUNNING:  # of this run: its workers have ended
                at_work.append(status)
    for status in [one for one in at_work if one.process in error.processes] or at_work:
        write_status(settings.output_dir, Status(status.recording, FAILED, status.stage, KILLED.format(error.cause)))
        progress.failed(status.recording)
    return bool(at_work)


def _calls(
    todo: list[Job], settings: Settings, datasets: dict[str, Path], work: Path, wait: bool
) -> Iterator[tuple[Any, ...]]:
    """Make the arguments of each job when it is about to begin."""
    described: dict[Atlas, Path] = {}
    named = replace(settings, dataset_name=dataset_identity(settings.bids_dir, settings.dataset_name))
    for recording, atlases in todo:
        for atlas in atlases:
            if atlas not in described:
                described[atlas] = describe_atlas(atlas, settings.work / "atlases")
        paths = tuple(described[atlas] for atlas in atlases)
        mark = _mark((recording, atlases), settings)
        yield recording, paths, named, datasets, mark, work / workflow_name(recording), settings.work / PARCELS, wait


def workflow_name(recording: Recording) -> str:
    """Return the recording's name in the characters that nipype allows."""
    return re.sub(r"\W", "_", recording.name.replace("+", "plus"))


def is_done(job: Job, settings: Settings) -> bool:
    """Whether a recording was finished before, with the same inputs, atlases and choices, and no embedding failed."""
    recording, atlases = job
    if read_status(settings.output_dir, recording.name) is None:
        return False
    embedded = embedding_names(recording.name, [atlas.name for atlas in atlases], settings).values()
    return is_finished(settings.output_dir, recording.name, _mark(job, settings), embedded)


def _mark(job: Job, settings: Settings) -> str:
    """Fingerprint of a job; with an encoder the name of the dataset too, by which its training people are known."""
    mark = fingerprint(job[0], settings, job[1])
    if settings.encoder is None:
        return mark
    return f"{mark};{dataset_identity(settings.bids_dir, settings.dataset_name)}"
