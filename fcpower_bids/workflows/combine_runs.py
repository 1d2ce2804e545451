"""The combination of runs, after the runs themselves are done."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fcpower_bids.claims import CLAIMS, POLL_SECONDS, Claims, claims_in
from fcpower_bids.errors import DatasetError
from fcpower_bids.executors.pool import WorkerDied, run_calls
from fcpower_bids.outputs.combine_runs import combine_runs, group_runs, whole_of
from fcpower_bids.outputs.names import CONNECTIVITY, output_path
from fcpower_bids.outputs.status import (
    COMBINED,
    DONE,
    FAILED,
    RUNNING,
    SKIPPED,
    Status,
    explain,
    fingerprint,
    is_finished,
    own_files,
    peak_megabytes,
    read_status,
    remove_outputs,
    status_path,
    write_status,
)
from fcpower_bids.outputs.tables import read_json
from fcpower_bids.records import Atlas, Recording
from fcpower_bids.settings import Settings
from fcpower_bids.store import DIGESTS
from fcpower_bids.workflows.execution import processes
from fcpower_bids.workflows.execution.batches import Job, why_open
from fcpower_bids.workflows.run_progress import Progress

COMBINE = "fcpower_bids.workflows.combine_runs:combine"
RUN = re.compile("_run-[^_]+")
MOST_NAMED = 3
"""Combinations that are named when they are removed."""
SOURCES = "#"
"""Begins, in the fingerprint of a combination, the list of the connectomes that it is made of."""


def run_combinations(jobs: list[Job], settings: Settings, progress: Progress) -> list[str]:
    """Combine the finished runs of every session and task, and return the names of the combinations."""
    finished = {recording: atlases for recording, atlases in jobs if _is_done(recording, settings)}
    names: list[str] = []
    calls: list[tuple[Any, ...]] = []
    for every_run in group_runs(recording for recording, _ in jobs):
        whole, runs = whole_of(every_run), tuple(run for run in every_run if run in finished)
        names.append(whole.name)
        if not runs:
            reason = nothing_to_combine(len(every_run))
            remove_outputs(settings.output_dir, whole.name)
            write_status(settings.output_dir, Status(whole.name, SKIPPED, COMBINED, reason))
            continue
        mark = "|".join(fingerprint(run, settings, finished[run]) for run in runs)
        mark += SOURCES + ";".join(_sources(settings.output_dir, runs, finished[runs[0]]))
        if not is_finished(settings.output_dir, whole.name, mark):
            calls.append((whole, runs, finished[runs[0]], settings, mark))
    if calls:
        with claims_in(settings.output_dir / CLAIMS) as claims:
            _combine_in_turn(calls, claims, settings)
        progress.say(f"{len(names)} combinations of runs ({settings.combine_runs})")
    return names


def skip_combinations(jobs: list[Job], refused: Sequence[Status], settings: Settings) -> list[str]:
    """Remove combinations of which no run can be processed any more, and return their names."""
    there = {whole_of(runs).name for runs in group_runs(recording for recording, _ in jobs)}
    runs = Counter(RUN.sub("", status.recording) for status in refused if RUN.search(status.recording))
    names = []
    for name, number in runs.items():
        status = None if name in there else read_status(settings.output_dir, name)
        if status is not None and (status.stage, status.state) == (COMBINED, DONE):
            remove_outputs(settings.output_dir, name)
            write_status(settings.output_dir, Status(name, SKIPPED, COMBINED, nothing_to_combine(number)))
            names.append(name)
    return names


def remove_outdated_combinations(jobs: list[Job], settings: Settings, progress: Progress) -> None:
    """Remove combinations of runs that were made anew, or excluded, by a run that does not combine them."""
    outdated = []
    for runs in group_runs(recording for recording, _ in jobs):
        whole = whole_of(runs).name
        status = read_status(settings.output_dir, whole)
        sources = status.fingerprint.partition(SOURCES)[2] if status is not None and status.state == DONE else ""
        if any(not _is_source(settings.output_dir, source) for source in sources.split(";") if source):
            remove_outputs(settings.output_dir, whole)
            status_path(settings.output_dir, whole).unlink()
            outdated.append(whole)
    if outdated:
        progress.say(
            f"Removed, because their runs were made anew: {', '.join(outdated[:MOST_NAMED])}"
            f"{' and others' * (len(outdated) > MOST_NAMED)}. --combine-runs combines them again."
        )


def _sources(output_dir: Path, runs: Sequence[Recording], atlases: Sequence[Atlas]) -> Iterator[str]:
    """Yield the connectomes of runs, each as its path and what its sidecar says of its bytes."""
    for run in runs:
        for atlas in atlases:
            path = output_path(output_dir, run, CONNECTIVITY, atlas).with_suffix(".json")
            yield f"{path.relative_to(output_dir).as_posix()}={_digests(path)}"


def _is_source(output_dir: Path, source: str) -> bool:
    """Whether the connectome of a run is as it was when it was combined."""
    name, _, digests = source.rpartition("=")
    return any(path is not None and _digests(path) == digests for path in own_files(output_dir, [name]))


def _digests(sidecar: Path) -> str:
    with suppress(DatasetError):
        return ",".join(map(str, read_json(sidecar).get(DIGESTS, {}).values()))
    return ""


def nothing_to_combine(n_runs: int) -> str:
    """Say why there is no combination."""
    return f"None of its {n_runs} runs passed, so there is nothing to combine."


def _combine_in_turn(calls: list[tuple[Any, ...]], claims: Claims, settings: Settings) -> None:
    """Combine unclaimed runs, then those that other processes have left unfinished."""
    while calls:
        names = claims.acquire(whole.name for whole, *_ in calls)
        mine = [call for call in calls if call[0].name in names]
        _combine_all([call for call in mine if not is_finished(settings.output_dir, call[0].name, call[-1])], settings)
        claims.release()
        calls = [call for call in calls if call[0].name not in names]
        if calls and not names:
            time.sleep(POLL_SECONDS)


def _combine_all(calls: list[tuple[Any, ...]], settings: Settings) -> None:
    killed = ""
    try:
        for _ in run_calls(COMBINE, calls, processes(settings)):
            pass
    except WorkerDied as error:
        killed = f"{error.cause}. Give more memory, and run the same command again."
    for whole, *_ in calls:
        status = read_status(settings.output_dir, whole.name)
        if status is None or status.state == RUNNING:
            write_status(settings.output_dir, Status(whole.name, FAILED, COMBINED, killed or why_open(whole, settings)))


def combine(
    whole: Recording, runs: Sequence[Recording], atlases: tuple[Atlas, ...], settings: Settings, fingerprint: str
) -> None:
    """Combine what was written of the runs of one session and task, and write the status of their combination."""
    output_dir, started = settings.output_dir, time.perf_counter()

    def note(state: str, reason: str = "", outputs: tuple[str, ...] = ()) -> None:
        seconds = round(time.perf_counter() - started, 3)
        mark = fingerprint if state == DONE else ""
        write_status(output_dir, Status(whole.name, state, COMBINED, reason, seconds, peak_megabytes(), mark, outputs))

    note(RUNNING)
    try:
        paths = combine_runs(output_dir, runs, atlases, settings.method_only())
    except Exception as error:
        reason = explain(error, output_dir, f"{whole.name}_{COMBINED}")
        with suppress(OSError):  # the disk may be full
            note(FAILED, reason)
        return
    note(DONE, outputs=tuple(path.relative_to(output_dir).as_posix() for path in paths))


def _is_done(recording: Recording, settings: Settings) -> bool:
    status = read_status(settings.output_dir, recording.name)
    return status is not None and status.state == DONE
