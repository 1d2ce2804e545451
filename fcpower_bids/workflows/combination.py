"""The workflow that combines runs, after the runs themselves are done."""

from __future__ import annotations

from pathlib import Path

from nipype import Node, Workflow

from fcpower_bids.interfaces.combination import Combine
from fcpower_bids.outputs.combination import group_runs, whole_of
from fcpower_bids.outputs.status import (
    DONE,
    FAILED,
    RUNNING,
    SKIPPED,
    Status,
    fingerprint,
    is_finished,
    read_status,
    write_status,
)
from fcpower_bids.records import Recording
from fcpower_bids.settings import Settings
from fcpower_bids.workflows.batches import Job, why_open
from fcpower_bids.workflows.execution import run_workflow
from fcpower_bids.workflows.progress import Progress
from fcpower_bids.workflows.recording import workflow_name


def run_combinations(jobs: list[Job], settings: Settings, work: Path, progress: Progress) -> list[str]:
    """Combine the finished runs of every session and task, and return the names of the combinations.

    A single run is combined too, so that every session has a result under the same name.
    """
    finished = {recording: atlases for recording, atlases in jobs if _is_done(recording, settings)}
    workflow = Workflow(name="combinations", base_dir=str(work))
    wholes = []
    for every_run in group_runs(recording for recording, _ in jobs):
        whole, runs = whole_of(every_run), tuple(run for run in every_run if run in finished)
        wholes.append(whole)
        if not runs:
            reason = f"None of its {len(every_run)} runs passed, so there is nothing to combine."
            write_status(settings.output_dir, Status(whole.name, SKIPPED, Combine.stage, reason))
            continue
        mark = "|".join(fingerprint(run, settings, finished[run]) for run in runs)
        if not is_finished(settings.output_dir, whole.name, mark):
            step = Combine(
                recording=whole,
                runs=runs,
                atlases=finished[runs[0]],
                settings=settings.method_only(),
                output_dir=str(settings.output_dir),
                fingerprint=mark,
            )
            workflow.add_nodes([Node(step, name=workflow_name(whole), mem_gb=0.5)])
    if workflow.list_node_names():
        run_workflow(workflow, settings)
        for whole in wholes:
            status = read_status(settings.output_dir, whole.name)
            if status is None or status.state == RUNNING:
                write_status(settings.output_dir, Status(whole.name, FAILED, Combine.stage, why_open(whole, settings)))
        progress.say(f"{len(wholes)} combinations of runs ({settings.combine_runs})")
    return [whole.name for whole in wholes]


def _is_done(recording: Recording, settings: Settings) -> bool:
    status = read_status(settings.output_dir, recording.name)
    return status is not None and status.state == DONE
