"""All recordings through processes or a cluster, and what to do when a process is killed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from fcpower_bids.claims import write_shared
from fcpower_bids.executors.pool import WorkerDied, run_calls
from fcpower_bids.imaging.atlas.described import describe_atlas
from fcpower_bids.inputs.identity import dataset_identity
from fcpower_bids.outputs.status import (
    FAILED,
    RUNNING,
    Status,
    embedding_names,
    explain_step,
    fingerprint,
    is_finished,
    read_status,
    remove_outdated,
    status_path,
    write_status,
)
from fcpower_bids.records import Atlas, Recording
from fcpower_bids.settings import Settings
from fcpower_bids.workflows.execution import FOR_PAGES, FOR_RECORDINGS, processes
from fcpower_bids.workflows.run_progress import Progress

Job = tuple[Recording, tuple[Atlas, ...]]
PARCELS = "parcels"
"""Folder of the work folder that keeps the parcel means of all recordings."""
PROCESS = "fcpower_bids.workflows.execution.job:process_recording"
KILLED = (
    "{}, alone and for the second time. Give more memory, or fewer atlases at a time, and run the same command again."
)
VANISHED = (
    "The process that worked on it ended without a word, as when it is killed, memory runs out or a cluster ends the "
    "job: see the log of the scheduler or of the system, and run the same command again."
)
NOT_STARTED = "The run ended before its turn came. Run the same command again."
STOPPED = "It was not started or not finished, because --stop-on-first-crash ended the run."


def run_jobs(jobs: list[Job], settings: Settings, datasets: dict[str, Path], work: Path, progress: Progress) -> None:
    """Run every job that is not finished; afterwards each recording has a final status."""
    todo = [job for job in jobs if not is_done(job, settings)]
    runner = _runner(settings) if todo else None
    known = [read_status(settings.output_dir, recording.name) for recording, _ in todo]
    for recording, _ in todo:
        status_path(settings.output_dir, recording.name).unlink(missing_ok=True)
    progress.begin(len(jobs) - len(todo))
    if runner is not None:
        from fcpower_bids.executors.nipype_plugin import configure_nipype, run_on_cluster  # loads nipype

        configure_nipype(settings.output_dir / "logs" / "crashes", settings.debug)
        named = ((workflow_name(call[0]), call) for call in _calls(todo, settings, datasets, work))
        run_on_cluster(PROCESS, named, runner, work)
    else:
        _run_here(todo, settings, datasets, work, progress)
    for recording, _ in todo:
        if _is_open(recording, settings):
            reason = STOPPED if settings.stop_on_first_crash else why_open(recording, settings)
            write_status(settings.output_dir, Status(recording.name, FAILED, _stage(recording, settings), reason))
    for earlier in known:
        if earlier is not None:
            remove_outdated(settings.output_dir, earlier)
    progress.end()


def _runner(settings: Settings) -> Any:
    """The plugin of ``--use-plugin``; made before anything is removed, since it may be refused."""
    if settings.use_plugin is None:
        return None
    from fcpower_bids.executors.nipype_plugin import make_runner  # loads nipype

    return make_runner(settings.use_plugin)


def _run_here(todo: list[Job], settings: Settings, datasets: dict[str, Path], work: Path, progress: Progress) -> None:
    """Run jobs on this machine; when a worker is killed, the recordings at work run alone and the rest together."""
    n_processes = processes(settings)
    for _ in range(len(todo) + 1):  # each round but the first two needs another killed recording
        if not todo or not _run(todo, n_processes, settings, datasets, work, progress):
            return
        suspects = [job for job in todo if _stage(job[0], settings)]
        for suspect in suspects:
            if cause := _run([suspect], 1, settings, datasets, work, progress):
                stage = _stage(suspect[0], settings)
                write_status(settings.output_dir, Status(suspect[0].name, FAILED, stage, KILLED.format(cause)))
                progress.failed(suspect[0].name)
        todo = [job for job in todo if _is_open(job[0], settings) and job not in suspects]


def _run(
    todo: list[Job], n_processes: int, settings: Settings, datasets: dict[str, Path], work: Path, progress: Progress
) -> str:
    """Run jobs until all have ended; return nothing, or how a worker ended on the way that was killed."""
    try:
        calls = _calls(todo, settings, datasets, work)
        with closing(run_calls(PROCESS, calls, n_processes, FOR_RECORDINGS, FOR_PAGES)) as outcomes:
            for outcome in outcomes:
                progress.finished(outcome)
                if outcome.failed_at and settings.stop_on_first_crash:
                    return ""
    except WorkerDied as error:
        return error.cause
    return ""


def _calls(todo: list[Job], settings: Settings, datasets: dict[str, Path], work: Path) -> Iterator[tuple[Any, ...]]:
    """Make the arguments of each job when it is about to begin."""
    described: dict[Atlas, Path] = {}
    named = replace(settings, dataset_name=dataset_identity(settings.bids_dir, settings.dataset_name))
    for recording, atlases in todo:
        for atlas in atlases:
            if atlas not in described:
                described[atlas] = describe_atlas(atlas, settings.work / "atlases")
        paths = tuple(described[atlas] for atlas in atlases)
        mark = _mark((recording, atlases), settings)
        yield recording, paths, named, datasets, mark, work / workflow_name(recording), settings.work / PARCELS


def draw_workflow(job: Job, settings: Settings, datasets: dict[str, Path]) -> Path:
    """Write the graph of one recording to ``logs/workflow.dot``, and as SVG where graphviz is installed."""
    from fcpower_bids.workflows.recording import init_recording_wf  # loads nipype

    workflow = init_recording_wf(settings, settings.output_dir, datasets)
    path = settings.output_dir / "logs" / "workflow.dot"
    if shutil.which("dot"):
        workflow.write_graph(dotfilename=str(path), graph2use="orig", format="svg", simple_form=True)
    else:
        lines = [f'  "{source.name}" -> "{target.name}";' for source, target in workflow._graph.edges()]
        write_shared(settings.output_dir, path, "\n".join(["digraph recording {", *lines, "}"]) + "\n")
    return path


def workflow_name(recording: Recording) -> str:
    """Return the recording's name in the characters that nipype allows."""
    return re.sub(r"\W", "_", recording.name.replace("+", "plus"))


def is_done(job: Job, settings: Settings) -> bool:
    """Whether a recording was finished before, with the same inputs, atlases and choices, and no embedding failed."""
    recording, atlases = job
    if read_status(settings.output_dir, recording.name) is None:
        return False
    if not is_finished(settings.output_dir, recording.name, _mark(job, settings)):
        return False
    names = embedding_names(recording.name, [atlas.name for atlas in atlases], settings).values()
    embeddings = (read_status(settings.output_dir, name) for name in names)
    return not any(one is not None and one.state == FAILED for one in embeddings)


def _mark(job: Job, settings: Settings) -> str:
    """Fingerprint of a job; with an encoder the name of the dataset too, by which its training people are known."""
    mark = fingerprint(job[0], settings, job[1])
    if settings.encoder is None:
        return mark
    return f"{mark};{dataset_identity(settings.bids_dir, settings.dataset_name)}"


def _is_open(recording: Recording, settings: Settings) -> bool:
    status = read_status(settings.output_dir, recording.name)
    return status is None or status.state == RUNNING


def why_open(recording: Recording, settings: Settings) -> str:
    """Explain a missing final status: the note of nipype, a process that is gone, or one that never was."""
    noted = explain_step(settings.output_dir, workflow_name(recording))
    return noted or (VANISHED if _stage(recording, settings) else NOT_STARTED)


def _stage(recording: Recording, settings: Settings) -> str:
    """Return the step at which a recording is, or nothing when it is not at work."""
    status = read_status(settings.output_dir, recording.name)
    return status.stage if status is not None and status.state == RUNNING else ""
