"""One recording in one process (the only one that imports nipype): its nodes in turn, its errors as its status."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nipype import Node
from nipype.pipeline.engine.utils import topological_sort
from nipype.pipeline.plugins.base import PluginBase

from fcpower_bids.executors.nipype_plugin import configure_nipype
from fcpower_bids.imaging.atlas.described import open_atlas
from fcpower_bids.locks import LOCKS, lock
from fcpower_bids.outputs.recording import Written, conclude_recording
from fcpower_bids.outputs.status import (
    FAILED,
    RUNNING,
    Status,
    embedding_names,
    explain,
    forget_crashes,
    input_mark,
    is_finished,
    peak_megabytes,
    write_status,
)
from fcpower_bids.records import Recording
from fcpower_bids.settings import Settings
from fcpower_bids.workflows.recording import init_recording_wf, set_recording
from fcpower_bids.workflows.run_progress import ELSEWHERE, Outcome


class Serial(PluginBase):
    """Runs the nodes of a graph in this process; the first error ends it, and is raised as it was."""

    def __init__(self, before: Callable[[str], None]) -> None:
        super().__init__()
        self.before = before
        self.results: dict[str, Any] = {}

    def run(self, graph: Any, config: Any, updatehash: bool = False) -> None:
        """Run every node whose inputs have changed."""
        nodes: list[Node] = topological_sort(graph)[0]
        for node in nodes:
            self.before(node.name)
            try:
                self.results[node.name] = node.run(updatehash=updatehash)
            except Exception as error:
                raise getattr(node.interface, "error", None) or error from None


def process_recording(
    recording: Recording,
    atlases: Sequence[Path],
    settings: Settings,
    datasets: Mapping[str, Path],
    fingerprint: str,
    work: Path,
    keep: Path,
    wait: bool = True,
) -> Outcome:
    """Run the workflow of one recording and write its status; never raises what concerns the recording alone.

    Where another run is at work on it, that is waited for, or told without `wait`.
    """
    output, names = settings.output_dir, [open_atlas(path).name for path in atlases] if settings.encoder else []
    embedded = embedding_names(recording.name, names, settings)
    with lock(output / LOCKS / recording.name, wait) as is_free:
        if not is_free:
            return Outcome(recording.name, ELSEWHERE)
        if is_finished(output, recording.name, fingerprint, embedded.values()):
            return Outcome(recording.name)
        configure_nipype(output / "logs" / "crashes", settings.debug)
        started, stage = time.perf_counter(), [""]

        def note(state: str, reason: str = "") -> None:
            seconds, process = round(time.perf_counter() - started, 3), os.getpid() if state == RUNNING else 0
            status = Status(recording.name, state, stage[0], reason, seconds, peak_megabytes(), process=process)
            write_status(output, status)

        def before(node: str) -> None:
            stage[0] = node
            note(RUNNING)

        plugin = Serial(before)
        try:
            workflow = init_recording_wf(settings, output, datasets, work.name, keep, settings.dataset_name or "")
            workflow.base_dir = str(work.parent)
            set_recording(workflow, recording, atlases)
            workflow.run(plugin=plugin)
        except Exception as error:
            reason = explain(error, output, f"{recording.name}_{stage[0]}")
            with suppress(OSError):  # the disk may be full
                note(FAILED, reason)
            return Outcome(recording.name, stage[0])
        outputs = plugin.results["sink"].outputs
        written = Written(tuple(outputs.files), outputs.excluded, outputs.problems)
        seconds = round(time.perf_counter() - started, 3)
        conclude_recording(output, recording.name, written, fingerprint, seconds, embedded, input_mark(recording))
        forget_crashes(output, recording.name)
        if not settings.debug:
            shutil.rmtree(work, ignore_errors=True)
    return Outcome(recording.name)
