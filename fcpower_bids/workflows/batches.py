"""Batches of recordings through nipype, and what to do when a process is killed."""

from __future__ import annotations

from pathlib import Path
from shutil import which

from nipype import Workflow

from fcpower_bids.outputs.crashes import explain_step
from fcpower_bids.outputs.status import (
    FAILED,
    RUNNING,
    Status,
    fingerprint,
    is_finished,
    read_status,
    remove_outdated,
    status_path,
    write_status,
)
from fcpower_bids.records import Atlas, Recording
from fcpower_bids.settings import Settings
from fcpower_bids.store import write_text
from fcpower_bids.workflows.execution import run_workflow
from fcpower_bids.workflows.progress import Progress
from fcpower_bids.workflows.recording import init_recording_wf, workflow_name

Job = tuple[Recording, tuple[Atlas, ...]]
BATCH = 1000
"""Recordings per nipype graph; building a graph takes time and memory in proportion."""
BATCH_NAME = "participants"
KILLED = (
    "The process was killed from outside, alone and for the second time; as a rule memory ran out. "
    "Give more memory, or fewer atlases at a time."
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
    known = [read_status(settings.output_dir, recording.name) for recording, _ in todo]
    for recording, _ in todo:
        status_path(settings.output_dir, recording.name).unlink(missing_ok=True)
    progress.begin(len(jobs) - len(todo))
    for start in range(0, len(todo), BATCH):
        if not (
            settings.stop_on_first_crash and any(_has_failed(recording, settings) for recording, _ in todo[:start])
        ):
            _run_batch(todo[start : start + BATCH], settings, datasets, work, progress)
    for recording, _ in todo:
        if _is_open(recording, settings):
            reason = STOPPED if settings.stop_on_first_crash else why_open(recording, settings)
            write_status(settings.output_dir, Status(recording.name, FAILED, _stage(recording, settings), reason))
    for earlier in known:
        if earlier is not None:
            remove_outdated(settings.output_dir, earlier)
    progress.end()


def _run_batch(batch: list[Job], settings: Settings, datasets: dict[str, Path], work: Path, progress: Progress) -> None:
    """Run a batch; when the pool of processes breaks, the recordings at work run alone and the rest together."""
    for _ in range(len(batch) + 1):  # each round but the first two needs another killed recording
        if not batch or run_workflow(init_batch_wf(batch, settings, datasets, work), settings, progress.on_event):
            return
        suspects = [job for job in batch if _stage(job[0], settings)]
        for suspect in suspects:
            intact = run_workflow(init_batch_wf([suspect], settings, datasets, work), settings, progress.on_event)
            if not intact:
                stage = _stage(suspect[0], settings)
                write_status(settings.output_dir, Status(suspect[0].name, FAILED, stage, KILLED))
                progress.failed(suspect[0].name)
        batch = [job for job in batch if _is_open(job[0], settings) and job not in suspects]


def init_batch_wf(batch: list[Job], settings: Settings, datasets: dict[str, Path], work: Path) -> Workflow:
    """Put the workflows of many recordings side by side."""
    workflow = Workflow(name=BATCH_NAME, base_dir=str(work))
    workflow.add_nodes(
        [
            init_recording_wf(recording, atlases, settings, datasets, fingerprint(recording, settings, atlases))
            for recording, atlases in batch
        ]
    )
    return workflow


def draw_workflow(job: Job, settings: Settings, datasets: dict[str, Path]) -> Path:
    """Write the graph of one recording to ``logs/workflow.dot``, and as SVG where graphviz is installed."""
    recording, atlases = job
    workflow = init_recording_wf(recording, atlases, settings, datasets, "")
    path = settings.output_dir / "logs" / "workflow.dot"
    if which("dot"):
        workflow.write_graph(dotfilename=str(path), graph2use="orig", format="svg", simple_form=True)
    else:
        lines = [f'  "{source.name}" -> "{target.name}";' for source, target in workflow._graph.edges()]
        write_text(path, "\n".join(["digraph recording {", *lines, "}"]) + "\n")
    return path


def is_done(job: Job, settings: Settings) -> bool:
    """Whether a recording was finished before, with the same inputs, atlases and choices."""
    recording, atlases = job
    return is_finished(settings.output_dir, recording.name, fingerprint(recording, settings, atlases))


def _is_open(recording: Recording, settings: Settings) -> bool:
    status = read_status(settings.output_dir, recording.name)
    return status is None or status.state == RUNNING


def why_open(recording: Recording, settings: Settings) -> str:
    """Say why a recording has no final status: what nipype noted, or that its process is gone, or never was."""
    noted = explain_step(settings.output_dir, workflow_name(recording))
    return noted or (VANISHED if _stage(recording, settings) else NOT_STARTED)


def _has_failed(recording: Recording, settings: Settings) -> bool:
    status = read_status(settings.output_dir, recording.name)
    return status is not None and status.state == FAILED


def _stage(recording: Recording, settings: Settings) -> str:
    """Return the step at which a recording is, or nothing when it is not at work."""
    status = read_status(settings.output_dir, recording.name)
    return status.stage if status is not None and status.state == RUNNING else ""
