"""The participant level: find recordings, run those that are not finished, report the status of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fcpower_bids._version import __version__
from fcpower_bids.cohort.features import list_connectomes
from fcpower_bids.cohort.recordings import FILE as RECORDINGS
from fcpower_bids.cohort.recordings import (
    cleaning_choices,
    describe_choices,
    other_cleanings,
    source_of,
    write_recordings,
)
from fcpower_bids.errors import NO_ROOM, DatasetError, Incomplete, UsageError
from fcpower_bids.executors.pool import WorkerDied, run_calls
from fcpower_bids.inputs.roots import derivative_roots
from fcpower_bids.locks import sweep_shared, write_shared
from fcpower_bids.outputs.dataset import (
    copy_atlas,
    name_inputs,
    note_command,
    prepare_dataset,
)
from fcpower_bids.outputs.status import (
    embedding_names,
    forget_embeddings,
    forget_found,
    status_rows,
    write_status,
    write_status_table,
)
from fcpower_bids.settings import Settings
from fcpower_bids.settings.command import command_of
from fcpower_bids.store import make_folder
from fcpower_bids.transforms.connectomes import describe_unread_remedy
from fcpower_bids.workflows.execution import FOR_PAGES, processes
from fcpower_bids.workflows.execution.batches import Job, run_jobs
from fcpower_bids.workflows.preflight.plan import ALL_FAILED, SOME_FAILED, Plan, describe_plan, exit_code, plan_run
from fcpower_bids.workflows.run_progress import Progress, say

PAGES = 8
"""Participants, at most, whose pages are made in one call of a process."""
WRITE_PAGES = "fcpower_bids.reports.person.page:write_pages"
WRITE_INDEX = "fcpower_bids.reports.person.index:try_index"
PAGES_KILLED = (
    "Not all pages were made. {} while it made them. Give more memory, and run the same command again with "
    "--reports-only."
)
FEW = 100
"""Recordings with which a job for named participants still renews the index of all; with more it leaves that out."""


def run_participants(settings: Settings) -> int:
    """Process every recording asked for; return the exit code. Raises UsageError, DatasetError, Incomplete."""
    try:
        return _run_participants(settings)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise UsageError(
            f"{error.strerror} in {settings.output_dir} or {settings.work}: make room or choose other folders, and run "
            "the same command again. What is finished is kept."
        ) from error


def _run_participants(settings: Settings) -> int:
    for line in describe_unread_remedy(settings.transforms, settings):
        say(line, settings)
    if settings.dry_run:
        return _dry_run(settings)
    plan = plan_run(settings, settings.work / "atlases")
    _refuse_another(plan.jobs, settings)
    datasets = prepare_dataset(settings, derivative_roots(settings))
    if not (settings.reports_only and settings.record.is_file()):  # it holds the choices that made the outputs
        write_shared(settings.output_dir, settings.record, settings.as_toml())
        note_command(settings.output_dir, settings.level, command_of(settings.as_dict(), whole=True))
    mark = hashlib.sha256(str(settings.output_dir.absolute()).encode()).hexdigest()[:8]
    # of the nodes of this version and output folder: nipype knows nothing of changes of the code
    work = settings.work / f"fcpower_{__version__.replace('.', '_')}_{mark}"
    make_folder(work)
    jobs = plan.jobs
    _note(plan, settings)
    progress = Progress(len(jobs), settings)
    if jobs and not settings.reports_only:
        run_jobs(jobs, settings, datasets, work, progress)
    names = [recording.name for recording, _ in jobs] + [status.recording for status in plan.refused]
    return _finish([*names, *_embeddings(jobs, settings)], work, progress)


def _refuse_another(jobs: Sequence[Job], settings: Settings) -> None:
    """Refuse to put outputs of two datasets, or of two ways of cleaning, into one folder. Raises UsageError."""
    out = settings.output_dir
    written = [] if settings.replace or settings.reports_only else list_connectomes(out)
    if settings.participant_label and len(written) > FEW:  # a job of many reads what it touches, and some of the rest
        people = {f"sub-{label}" for label in settings.participant_label}
        written = [one for one in written if one.participant in people] + written[:: len(written) // FEW]
    datasets, asked = name_inputs(derivative_roots(settings), out), {recording.name for recording, _ in jobs}
    sources = {one: source for one in written if (source := source_of(one))}
    others = [one for one, source in sources.items() if source not in datasets]
    if another := [one for one in others if one.recording in asked] or (others if len(others) == len(sources) else []):
        raise UsageError(
            f"{out} holds {len(another)} recordings of another dataset, {sources[another[0]]} in "
            f"dataset_description.json; the first is {another[0].recording}. Give each dataset an output folder of its "
            "own (group reads several: -d one=OUT1 two=OUT2), or --replace."
        )
    now = settings.cleaning()
    cleaned = [(one, before) for one in written if (before := cleaning_choices(one)) and before != now]
    if cleaned:
        one, before = cleaned[0]
        changes = describe_choices(before, now)
        raise UsageError(
            f"{out} holds {len({each.recording for each, _ in cleaned})} recordings that were cleaned otherwise "
            f"({changes}); the first is {one.recording}. Give another output folder, or --replace to make those anew "
            "that this command asks for."
        )


def _embeddings(jobs: Iterable[Job], settings: Settings) -> Iterator[str]:
    """Names of the statuses of the embeddings that are asked for."""
    for recording, atlases in jobs:
        yield from embedding_names(recording.name, [atlas.name for atlas in atlases], settings).values()


def _dry_run(settings: Settings) -> int:
    """Say what a run would do, and return the exit code that it would."""
    with TemporaryDirectory(prefix="fcpower_bids-") as folder:
        plan = plan_run(settings, Path(folder))
        print(describe_plan(plan, settings))  # noqa: T201
    _refuse_another(plan.jobs, settings)
    return plan.exit_code()


def _note(plan: Plan, settings: Settings) -> None:
    """Write the status of what is not processed, and the atlases of what is."""
    if not settings.reports_only:
        names = [recording.name for recording, _ in plan.jobs]
        forget_embeddings(settings.output_dir, set(names), set(_embeddings(plan.jobs, settings)))
        forget_found(settings.output_dir, names, [status.recording for status in plan.refused])
    for status in plan.refused:
        write_status(settings.output_dir, status)
    for atlas in {atlas for _, atlases in plan.jobs for atlas in atlases}:
        copy_atlas(settings.output_dir, atlas)


def _finish(names: list[str], work: Path, progress: Progress) -> int:
    """Write the table of statuses and the pages, and remove what is no longer needed."""
    settings = progress.settings
    table = status_rows(settings.output_dir, names)
    whole = write_status_table(settings.output_dir)
    progress.summarise(table, settings.output_dir)
    incomplete = _report(table["recording"], settings, not settings.participant_label or len(whole) <= FEW)
    with suppress(OSError):
        work.rmdir()  # only when empty: each recording removes its own when it is done
    code = exit_code(table["state"].tolist())
    if incomplete is not None:
        incomplete.exit_code = ALL_FAILED if code == ALL_FAILED else SOME_FAILED
        raise incomplete
    return code


def _report(names: Iterable[str], settings: Settings, with_index: bool) -> Incomplete | None:
    """Make pages and the index in processes of their own, and say what of them could not be made."""
    subjects = sorted({name.partition("_")[0].removeprefix("sub-") for name in names if name.startswith("sub-")})
    size = max(1, min(PAGES, -(-len(subjects) // processes(settings))))
    parts = [subjects[start : start + size] for start in range(0, len(subjects), size)]
    failures: list[str] = []
    atlases: set[Any] = set()
    sweep_shared(settings.output_dir)
    at_once = with_index and len(parts) == 1  # a process less is a twentieth of what one recording costs
    try:
        calls = ((settings, part, at_once) for part in parts)
        for written in run_calls(WRITE_PAGES, calls, processes(settings), FOR_PAGES):
            failures += written.failures
            atlases |= set(written.atlases)
        alone = [(settings.output_dir,)] if with_index and not at_once else []
        for said in run_calls(WRITE_INDEX, alone, 1, FOR_PAGES):
            failures += said
    except WorkerDied as error:
        failures.append(PAGES_KILLED.format(error.cause))
    try:
        if with_index:
            write_recordings(settings.output_dir)
        else:
            (settings.output_dir / RECORDINGS).unlink(missing_ok=True)
    except DatasetError as error:  # a file of decisions that cannot be read is no business of the recordings
        failures.append(f"There is no new recordings.tsv. {error}")
    if not with_index:  # it would be out of date
        settings.index.unlink(missing_ok=True)
    from fcpower_bids.reports.kit.methods import write_methods  # only the end of a run needs it

    others = other_cleanings(settings.output_dir, settings.cleaning()) if with_index else []
    write_methods(settings, atlases, others)
    return Incomplete("\n".join(sorted(failures))) if failures else None
