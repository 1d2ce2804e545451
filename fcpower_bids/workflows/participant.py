"""The participant level: find recordings, run those that are not finished, report the status of each."""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tqdm import tqdm

from fcpower_bids.cohort.inclusion import list_connectomes, list_quality_sidecars
from fcpower_bids.cohort.recordings import FILE as RECORDINGS
from fcpower_bids.cohort.recordings import describe_choices, making_in, write_recordings
from fcpower_bids.errors import DatasetError, Incomplete, UsageError
from fcpower_bids.inputs.roots import dataset_names, derivative_root, people_beside
from fcpower_bids.inputs.sources import GRID_KEYS, drop
from fcpower_bids.outputs.dataset import (
    QUALITY,
    copy_atlas,
    files_of,
    folders_of,
    is_file_of,
    name_inputs,
    parse_name,
    path_of,
    prepare_dataset,
)
from fcpower_bids.outputs.status import (
    DONE,
    EMBEDDING,
    FAILED,
    RUNNING,
    Status,
    describe_reasons,
    embedding_names,
    forget_embeddings,
    forget_found,
    input_mark,
    is_finished,
    read_status,
    recorded,
    status_path,
    write_status,
    write_status_table,
)
from fcpower_bids.parallel import WorkerDied, processes, run_calls, say, track
from fcpower_bids.records import Entities, join
from fcpower_bids.resources import unsearched
from fcpower_bids.settings import Settings
from fcpower_bids.store import LOCKS, lock, make_folder, sweep, sweep_shared, write_shared
from fcpower_bids.workflows.plan import (
    ALL_FAILED,
    ELSEWHERE,
    FINISHED,
    OTHERWISE,
    Job,
    describe_notes,
    describe_plan,
    exit_code,
    plan_run,
)

PAGES = 8
"""Participants, at most, whose pages are made in one call of a process."""
FEW = 100
"""Recordings with which a job for named participants still renews the index of all; with more it leaves that out."""
VANISHED = (
    "The process that worked on it ended without a word, as when it is killed, memory runs out or a cluster ends the "
    "job: see logs/crashes and the log of the scheduler or of the system, and run the same command again."
)
MOST_FRUITLESS = 3
"""So often processes may be killed before they have begun anything, until there is no sense in trying again."""
SELECTING = ("participant_label", "session_label", "task_id", "space", "bids_filter_file")
"""Options without which a run sees all that is there."""
MEANWHILE = "Another run has made it with other choices in the meantime: give this run an output folder of its own."
NOT_STARTED = "The run ended before its turn came. Run the same command again."


def _run_of(name: str) -> Entities:
    return drop(parse_name(f"{name}_bold.tsv")[0], GRID_KEYS)


def run_participants(settings: Settings) -> int:
    """Process every recording asked for; return the exit code. Raises UsageError, DatasetError, Incomplete."""
    if settings.run.dry_run:
        with TemporaryDirectory(prefix="fcpower_bids-") as folder:
            plan = plan_run(settings, Path(folder))
            _find_others(plan.jobs, settings)
            print(describe_plan(plan, settings))  # noqa: T201
        return plan.exit_code
    plan = plan_run(settings, settings.work / "atlases")
    others = _find_others(plan.jobs, settings)
    output, jobs = settings.output_dir, plan.jobs
    if settings.run.reports_only and not (recorded(output) or list_connectomes(output)):
        raise UsageError(
            f"{output} holds no recording, so there is nothing to report: leave out --reports-only, or correct the "
            "output folder."
        )
    name, root = derivative_root(settings)
    datasets = prepare_dataset(settings, {name: root}, people_beside(settings.bids_dir, root))
    if not (settings.run.reports_only and settings.record.is_file()):  # it holds the choices that made the outputs
        write_shared(output, settings.record, settings.as_toml())
    mark = hashlib.sha256(str(output.absolute()).encode()).hexdigest()[:8]
    work = make_folder(settings.work / f"fcpower_{mark}")  # of this output folder
    names, refused = [job.recording.name for job in jobs], [status.recording for status in plan.refused]
    embedded = (embedding_names(job.recording.name, job.atlases, settings.method) for job in jobs)
    embeddings = [name for by_atlas in embedded for name in by_atlas.values()]
    for line in describe_notes(plan.discovery.notes, settings.run.verbose):
        say(line, settings)
    apart = list[str]()
    if not settings.run.reports_only:  # pages change nothing of what they are made of
        forget_embeddings(output, set(names), set(embeddings))
        everything = not any(settings[name] for name in SELECTING)
        forget_found(output, names, refused, everything)
        runs = {_run_of(name) for name in (*names, *refused)}
        before = [name for name in recorded(output) if everything and not name.endswith(EMBEDDING)]
        others_done = (name for name in before if _run_of(name) not in runs)
        if gone := [name for name in others_done if (status := read_status(output, name)) and status.state == DONE]:
            say(
                f"{len(gone)} of the recordings in {output} are not among those that a run finds in {root} now, such "
                f"as {gone[0]}: they take part until exclude.tsv rejects them, or their files are removed.",
                settings,
            )
        for atlas in {atlas for job in jobs for atlas in job.atlases}:
            copy_atlas(output, atlas)
        apart = _run(jobs, others, settings, datasets, work) if jobs else []
        for status in plan.refused:  # after what is made otherwise is removed
            write_status(output, status)
    whole = write_status_table(output)
    table = whole[whole["recording"].isin([*names, *refused, *embeddings])]
    states = _summarise(table.to_dict("records"), settings)
    failures = [f"{name}: {MEANWHILE}" for name in apart]
    failures += _report(table["recording"], settings, not settings.inputs.participant_label or len(whole) <= FEW)
    pages = {
        output / name
        for name in ("index.html", *(f"{recording.partition('_')[0]}.html" for recording in table["recording"]))
    }
    first = "  ".join(map(str, sorted(path for path in pages if path.is_file())[:2]))
    say(f"Status: {output}/logs/status.tsv  Pages: {first or 'none'}", settings)
    with suppress(OSError):  # only when empty: each recording removes its own when it is done
        work.rmdir()
        if settings.run.work_dir is None:
            settings.work.rmdir()
    code = exit_code(states)
    if failures:
        raise Incomplete("\n".join(sorted(failures)), everything=code == ALL_FAILED)
    return code


def _find_others(jobs: Sequence[Job], settings: Settings) -> list[Entities]:
    """Return recordings of another dataset or made otherwise, which the run removes. Raises UsageError.

    Without ``--replace`` they are refused: an output folder has one dataset, one cleaning, one set of atlases and
    transforms.
    """
    out, replaces = settings.output_dir, settings.run.replace and not settings.run.reports_only
    there = [] if replaces and not jobs else list_quality_sidecars(out)
    # a job of many reads what it touches, and some of the rest
    if settings.inputs.participant_label and len(there) > FEW and not replaces:
        people = set(settings.inputs.participant_label)
        there = [pair for pair in there if dict(pair[0])["sub"] in people] + there[:: len(there) // FEW]
    now = _choices(jobs, settings)
    others = {entities: why for entities, sidecar in there if (why := _differs(sidecar, now))}
    if not others:
        return []
    if not replaces:
        first, why = next(iter(others.items()))
        raise UsageError(
            f"{out} holds {len(others)} recordings {why}; the first is {join(first)}. Give this run an output folder "
            "of its own, or --replace, which removes them."
        )
    people = {dict(entities)["sub"] for entities in others}
    say(f"--replace removes {len(others)} recordings of {len(people)} participants that were made otherwise.", settings)
    return list(others)


Choices = tuple[Mapping[str, Path], list[dict[str, Any]]]
"""The datasets of a run, and all choices that its recordings are made with: one for each set of atlases."""


def _choices(jobs: Sequence[Job], settings: Settings) -> Choices:
    names = dict.fromkeys(tuple(sorted(atlas.name for atlas in job.atlases)) for job in jobs)
    cleaning = settings.method.cleaning()
    datasets = name_inputs(dict([derivative_root(settings)]), settings.output_dir)
    made = [{**cleaning, **settings.method.connectomes(atlases)} for atlases in names]
    return datasets, made or [cleaning]  # without a recording that can be made no atlas is loaded


def _differs(sidecar: Path, choices: Choices) -> str:
    """Say in what a recording differs from those of the run, by the sidecar of its quality table."""
    (datasets, now), made = choices, making_in(sidecar)
    words = {word for root in datasets.values() for word in dataset_names(root).split()}
    # in containers every study has the same path
    if made.source and (made.source not in datasets or (made.words and words and not made.words & words)):
        several = "group reads several output folders: -d one=OUT1 two=OUT2"
        return f"of another dataset, {made.source} in dataset_description.json ({several})"
    before = {**made.cleaning, **made.connectomes} if "atlas" in now[0] else made.cleaning
    return f"that were made otherwise ({describe_choices(before, now[0])})" if before and before not in now else ""


def _make_way(others: Iterable[Entities], jobs: Sequence[Job], settings: Settings) -> None:
    """Remove recordings that are made otherwise, but those that another run is making or has made anew since.

    Of those that are made now, the status.
    """
    output, now, removed = settings.output_dir, _choices(jobs, settings), set[str]()
    for entities in others:
        name, sidecar = join(entities), path_of(output, entities, (), QUALITY).with_suffix(".json")
        with lock(output / LOCKS / name, wait=False) as is_free:
            if is_free and _differs(sidecar, now):
                (output / f"sub-{dict(entities)['sub']}.html").unlink(missing_ok=True)
                status_path(output, name).unlink(missing_ok=True)
                for path in sorted(files_of(output, entities), key=lambda path: path == sidecar):  # by that it is known
                    path.unlink(missing_ok=True)
                removed.add(name)
    forget_embeddings(output, removed, ())
    dataset = dataset_names(settings.bids_dir)
    for job in jobs:
        if not job.finished:
            _forget(job, settings, dataset)


def _run(
    jobs: Sequence[Job], others: Sequence[Entities], settings: Settings, datasets: dict[str, Path], work: Path
) -> list[str]:
    """Run every job that is not finished, on this machine or on a cluster.

    A process that is killed costs its recording; the others go on in new ones. Returns the recordings that another run
    has made otherwise in the meantime.
    """
    todo = {job.recording.name: job for job in jobs if not job.finished}
    before = f", {len(jobs) - len(todo)} of them finished before" * (len(todo) < len(jobs))
    say(f"{len(jobs)} recording{'s' * (len(jobs) != 1)}{before}", settings)
    if not todo:
        _make_way(others, jobs, settings)
        _conclude(jobs, settings)
        return []
    with unsearched():
        from fcpower_bids.workflows import recording as steps  # loads nipype
    # before anything is removed, since it may be refused
    runner = None if settings.run.use_plugin is None else steps.make_runner(settings.run.use_plugin)
    _make_way(others, jobs, settings)
    names, theirs, ended, apart, wait, fruitless = list(todo), list[str](), set[str](), list[str](), False, 0
    if runner is not None:
        steps.configure_nipype(settings.output_dir / "logs" / "crashes", settings.run.debug)
        calls = ((job.recording, job.atlases, settings, datasets, work) for job in todo.values())
        names = steps.run_on_cluster(calls, runner, work, settings.run.debug)
    while names:
        given = [(todo[name].recording, todo[name].atlases, settings, datasets, work, wait) for name in names]
        try:
            with closing(run_calls(steps.process_recording, given, processes(settings), steps.LAZY)) as ends:
                for name, end in track(ends, "recordings", settings, len(names)):
                    if end == ELSEWHERE:
                        theirs.append(name)
                        continue
                    ended.add(name)
                    apart += [name] if end == OTHERWISE else []
                    if end != FINISHED or settings.run.verbose:
                        say(f"{name}: {end}", settings)
            names = []
        except WorkerDied as error:
            attempted = [name for name in names if name not in theirs]
            names = _note_killed(attempted, error, settings)
            fruitless = fruitless + 1 if names == attempted else 0  # killed before the first of them had begun
            names = [] if fruitless == MOST_FRUITLESS else names
        if not names and not wait:
            names, theirs, wait = theirs, [], True
            for name in names:
                say(f"{name}: another run is at work on it; it is waited for.", settings)
    for name in todo:
        status = read_status(settings.output_dir, name)
        if name not in ended and (status is None or status.state == RUNNING):  # else another run does it once more
            reason = NOT_STARTED if status is None else VANISHED
            write_status(settings.output_dir, Status(name, FAILED, status.stage if status else "", reason))
    _conclude(jobs, settings)
    return apart


def _conclude(jobs: Sequence[Job], settings: Settings) -> None:
    """Remove what killed workers left half-written, statuses included."""
    output = settings.output_dir
    for recording in (job.recording for job in jobs):
        with lock(output / LOCKS / recording.name, wait=False) as is_free:
            if is_free:
                for folder in folders_of(output, recording.entities):
                    sweep(folder, partial(is_file_of, recording=recording.entities))
                sweep(status_path(output, recording.name).parent, re.compile(re.escape(recording.name)).match)


def _forget(job: Job, settings: Settings, dataset: str) -> None:
    """Remove the status of a recording, and where its input has changed all that was made of the former."""
    recording, output = job.recording, settings.output_dir
    earlier = read_status(output, recording.name)
    with lock(output / LOCKS / recording.name, wait=False) as is_free:
        # else another run is at work on it, or has finished it since
        if is_free and not is_finished(output, recording, job.atlases, settings.method, dataset):
            status_path(output, recording.name).unlink(missing_ok=True)
            if earlier is not None and earlier.inputs not in ("", input_mark(recording)):
                old = [path for path in files_of(output, recording.entities) if path.is_file()]
                for path in old:
                    path.unlink(missing_ok=True)
                former = f"the {len(old)} files that were made before are removed"
                say(f"{recording.name}: its input is another than before: {former}.", settings)


def _note_killed(names: Iterable[str], error: WorkerDied, settings: Settings) -> list[str]:
    """Write the status of the recordings whose process was killed; return those to go on with, if there are any."""
    output, at_work = settings.output_dir, []
    for name in names:
        status = read_status(output, name)
        with lock(output / LOCKS / name, wait=False) as is_free:
            if is_free and status is not None and status.state == RUNNING:  # of this run: its workers have ended
                at_work.append(status)
    remedy = "Give more memory, and run the same command again."
    for status in [status for status in at_work if status.process in error.processes] or at_work:
        write_status(output, replace(status, state=FAILED, reason=f"{error.cause}. {remedy}", process=0))
        say(f"{status.recording}: failed", settings)
    states = {name: read_status(output, name) for name in names}
    return [name for name, status in states.items() if status is None or status.state == RUNNING]


def _summarise(rows: Sequence[dict[Any, Any]], settings: Settings) -> list[str]:
    """Say how the recordings ended, with the reason of each that is not done, and return their states."""
    ends = [Status(row["recording"], row["state"], row["stage"], row["reason"]) for row in rows]
    failed = [status for status in ends if status.state == FAILED]
    for line in describe_reasons(
        [status for status in ends if status.state not in ("done", FAILED)], settings.run.verbose
    ):
        say(line, settings)
    for line in describe_reasons(failed, settings.run.verbose):
        tqdm.write(line, file=sys.stderr)  # an error is printed with --quiet too
    of_embeddings, of_recordings = (
        Counter(status.state for status in ends if status.recording.endswith(EMBEDDING) is embedded)
        for embedded in (True, False)
    )
    say(", ".join(f"{number} {state}" for state, number in of_recordings.most_common()) or "nothing to do", settings)
    if of_embeddings:
        parts = (f"{number} {state}" for state, number in of_embeddings.most_common())
        say(f"Embeddings that were not made: {', '.join(parts)}", settings)
    return [status.state for status in ends]


def _report(names: Iterable[str], settings: Settings, with_index: bool) -> list[str]:
    """Make pages and the index in processes of their own, and say what of them could not be made."""
    with unsearched():
        from fcpower_bids.reports.methods import write_methods  # only the end of a run needs it
        from fcpower_bids.reports.person import try_index, write_pages
    output = settings.output_dir
    subjects = sorted({name.partition("_")[0].removeprefix("sub-") for name in names if name.startswith("sub-")})
    size = max(1, min(PAGES, -(-len(subjects) // processes(settings))))
    parts = [subjects[start : start + size] for start in range(0, len(subjects), size)]
    failures: list[str] = []
    atlases: set[Any] = set()
    sweep_shared(output)
    try:
        if with_index:
            write_recordings(output)
        else:  # they would be out of date
            (output / RECORDINGS).unlink(missing_ok=True)
            settings.index.unlink(missing_ok=True)
    except DatasetError as error:  # a file of decisions that cannot be read is no business of the recordings
        failures.append(f"There is no new recordings.tsv. {error}")
    at_once = with_index and len(parts) == 1  # a process less is a twentieth of what one recording costs
    try:
        for shown, lines in run_calls(write_pages, ((settings, part, at_once) for part in parts), processes(settings)):
            failures += lines
            atlases |= set(shown)
        for lines in run_calls(try_index, [(output,)] if with_index and not at_once else [], 1):
            failures += lines
    except WorkerDied as error:
        failures.append(
            f"Not all pages were made. {error.cause} while it made them. Give more memory, and run the same command "
            "again with --reports-only."
        )
    write_methods(settings, atlases)
    return failures
