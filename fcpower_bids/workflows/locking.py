"""Several runs on one output folder: each recording is the work of one of them, and the others wait for it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fcpower_bids.claims import CLAIMS, POLL_SECONDS, Claims, claims_in
from fcpower_bids.outputs.names import previews_of
from fcpower_bids.outputs.status import embedding_names, own_files, read_status, status_path
from fcpower_bids.settings import Settings
from fcpower_bids.store import sweep
from fcpower_bids.workflows.run_progress import Progress, say

if TYPE_CHECKING:
    from fcpower_bids.workflows.execution.batches import Job


def run_in_turn(jobs: list[Job], settings: Settings, datasets: dict[str, Path], work: Path, progress: Progress) -> None:
    """Run unclaimed items, then those that other processes have left unfinished."""
    from fcpower_bids.workflows.execution.batches import is_done, run_jobs  # loads nipype

    with claims_in(settings.output_dir / CLAIMS) as claims:
        names = claims.acquire(job[0].name for job in jobs if not is_done(job, settings))
        theirs = [job for job in jobs if job[0].name not in names and not is_done(job, settings)]
        _tell(theirs, claims, progress)
        others = {job[0].name for job in theirs}
        if mine := [job for job in jobs if job[0].name not in others]:
            run_jobs(mine, settings, datasets, work, progress)
            _sweep([job for job in mine if job[0].name in names], settings)
        claims.release()
        while theirs:
            if names := claims.acquire(job[0].name for job in theirs):
                free = [job for job in theirs if job[0].name in names]
                run_jobs(free, settings, datasets, work, Progress(len(free), settings))
                _sweep(free, settings)
                claims.release()
                theirs = [job for job in theirs if job[0].name not in names]
            else:
                time.sleep(POLL_SECONDS)
        claims.clear_stale()


@contextmanager
def one_at_a_time(name: str, settings: Settings) -> Iterator[None]:
    """Hold the lock of an output folder; another run waits, and names the holder."""
    with claims_in(settings.output_dir / CLAIMS) as claims:
        announced = False
        while not claims.acquire([name]):
            if not announced:
                say(f"Another run is at work on the same tables ({claims.owner(name)}); it is waited for.", settings)
                announced = True
            time.sleep(POLL_SECONDS)
        yield
        claims.clear_stale()


def _sweep(jobs: Iterable[Job], settings: Settings) -> None:
    """Remove what workers that were killed left half-written of recordings that are finished now, status included."""
    for recording, atlases in jobs:
        status = read_status(settings.output_dir, recording.name)
        if status is not None:
            written = [path for path in own_files(settings.output_dir, status.outputs) if path is not None]
            embedded = embedding_names(recording.name, [atlas.name for atlas in atlases], settings).values()
            statuses = [status_path(settings.output_dir, name) for name in (recording.name, *embedded)]
            sweep([*written, *previews_of(written), *statuses])


def _tell(jobs: list[Job], claims: Claims, progress: Progress) -> None:
    for recording, _ in jobs:
        who = claims.owner(recording.name)
        if who is not None:
            progress.say(f"{recording.name}: another run is at work on it ({who}); it is waited for.")
