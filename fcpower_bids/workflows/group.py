"""The group level: assemble the cohort, run the analyses, write their tables and the page."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import pandas as pd

from fcpower_bids.analyses import ALL, ANALYSES, OF_COHORTS, analyses_to_run, check_choices
from fcpower_bids.analyses.engine.connectomes import sharing_spectra
from fcpower_bids.analyses.engine.study import FEWEST_PEOPLE
from fcpower_bids.analyses.pretraining_overlap import EMBEDDED_PEOPLE, tabulate_people
from fcpower_bids.cohort.assembly import check_names
from fcpower_bids.cohort.features import NO_SESSION
from fcpower_bids.cohort.inclusion import EXCLUDED_TABLE, PERSON, RECORDING
from fcpower_bids.cohort.phenotype_columns import describe_sets, name_columns
from fcpower_bids.cohort.recordings import selected_of, write_recordings
from fcpower_bids.cohort.scans import SCANS
from fcpower_bids.errors import DatasetError, Incomplete, NotInCohort, Unfit, UsageError
from fcpower_bids.executors import executing
from fcpower_bids.executors.pool import describe_memory
from fcpower_bids.inputs.roots import SITE, check_input_folder, output_folders
from fcpower_bids.inputs.selection import label_remedy
from fcpower_bids.locks import LOCKS, lock, sweep_shared, write_shared
from fcpower_bids.ondisk import remove_abandoned
from fcpower_bids.outputs.dataset import note_command
from fcpower_bids.outputs.group import LEFT_OUT, FinishedAnalyses, analysis_key, write_group_tables
from fcpower_bids.outputs.status import MOST_ALIKE, group_alike, write_status_table
from fcpower_bids.records import Cohort, Table
from fcpower_bids.registry import load
from fcpower_bids.resources import memory_limit
from fcpower_bids.settings import Settings
from fcpower_bids.settings.command import command_of
from fcpower_bids.settings.group import PERMUTE
from fcpower_bids.settings.levels import describe_unread
from fcpower_bids.store import leftovers, sweep
from fcpower_bids.transforms import TRANSFORMS
from fcpower_bids.transforms.connectomes import describe_unread_remedy
from fcpower_bids.workflows.cohorts import import_sources, open_cohorts, untouched
from fcpower_bids.workflows.embedding import embed_stored
from fcpower_bids.workflows.run_progress import CHECK, INDEX, PAGE, Attempts, say

WITHOUT_TARGETS = frozenset({"fingerprinting", "qc_fc", "spectrum_geometry"})
PERMUTATIONS = "Permutations"
"""Fact of a sidecar: how many, and why so many."""
OUTDATED = "not asked for this time; its tables in this folder are of other people, data or choices"


SCREENS = frozenset({"transform_screen", "spectral_controls"})
"""Analyses that go through all transforms."""


def run_group(settings: Settings) -> int:
    """Check the cohort, run the analyses, return the exit code; one stops no other. Raises DatasetError, Incomplete."""
    if not settings.reports_only:
        check_input_folder(settings.bids_dir)
        if settings.site_column is None and len(output_folders(settings, settings.output_dir)) > 1:
            settings = dataclasses.replace(settings, site_column=SITE)
        if settings.sites != PERMUTE and settings.site_column is None:
            raise UsageError(f"--sites {settings.sites} needs the column of sites. Give --site-column.")
        settings = dataclasses.replace(settings, targets=name_columns(settings))
        for line in describe_sets(settings):
            say(line, settings)
        _refuse_other_question(settings)
    elif next(settings.results.glob("*.tsv*"), None) is None:
        there = sorted(path.parent.name for path in (settings.output_dir / "group").glob(f"*/{SCANS.name}.tsv"))
        named = f" There are: {', '.join(there)}." if there else ""
        raise UsageError(
            f"{settings.results} holds no results, so there is nothing to report: leave out --reports-only, or correct "
            f"--name.{named}"
        )
    for line in (*describe_unused(settings), describe_memory(settings.mem_mb)):
        if line:
            say(line, settings)
    if settings.dry_run:
        return _dry_run(settings)
    folder, attempts = settings.results, Attempts(settings)
    if not settings.reports_only:
        import_sources(settings)
        try:
            embed_stored(settings)
        except Incomplete as error:  # the others have their embedding
            attempts.fail("embedding", str(error), error)
        with memory_limit(settings.mem_mb, settings.work / "shared"):
            cohort, by_atlas = open_cohorts(settings)
        _describe_left_out(cohort, settings)
        _describe_absent(settings)
        with ExitStack() as held, executing(settings, settings.work / "shared"):
            path = settings.output_dir / LOCKS / f"group_{settings.name}"
            if not held.enter_context(lock(path, wait=False)):
                say("Another run is at work on the same tables; it is waited for.", settings)
                held.enter_context(lock(path))
            _write_tables(cohort, by_atlas, attempts)
    from fcpower_bids.reports.cohort.page import write_group_report  # only the end of a run needs it
    from fcpower_bids.reports.person.index import write_index  # only the end of a run needs it

    sweep_shared(settings.output_dir)
    _, answers = attempts.run(PAGE, partial(write_group_report, settings)) or (None, [])
    attempts.run(INDEX, partial(write_index, settings.output_dir))
    say("\n".join([*answers, f"Tables: {folder}  Page: {settings.results_page}"]), settings)
    attempts.tell()
    return 0


def describe_unused(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each choice that nothing of what is asked for reads."""
    analyses = analyses_to_run(settings)
    yield from describe_unread(settings, analyses)
    yield from describe_unread_remedy(
        settings.representations if SCREENS.isdisjoint(analyses) else TRANSFORMS, settings
    )


def _dry_run(settings: Settings) -> int:
    """Say what the analyses would see, and refuse what a run refuses before the first of them."""
    with untouched(settings) as own, memory_limit(settings.mem_mb):
        import_sources(own)
        cohort, by_atlas = open_cohorts(own)
        names = () if settings.check else analyses_to_run(settings)
        left_out = _check_choices(names, cohort, by_atlas, own)
        _describe_absent(own)
        _describe_left_out(cohort, own)
        for line in (describe_cohort(cohort), *cohort.notes):
            say(line, settings)
        for name, reason in left_out.items():
            say(f"{name}: would be left out. {reason}", settings)
    return 0


def _describe_left_out(cohort: Cohort, settings: Settings) -> None:
    """Say who is missing and why, before any table: one line each, or for all with the same reason."""
    rows = cohort.excluded[cohort.excluded["what"].isin((RECORDING, PERSON))]
    most = len(rows) if settings.verbose else MOST_ALIKE
    for first, *others in group_alike(list(rows.itertuples()), lambda row: str(row.reason), most):
        session = "" if first.session == NO_SESSION else f" {first.session}"
        who = f"{1 + len(others)} in all, the first is {first.participant_id}" if others else first.participant_id
        say(f"Left out: {who}{session}: {first.reason}", settings)


def _describe_absent(settings: Settings) -> None:
    """Name a participant of the command line without a connectome, and how the label may be meant."""
    if not settings.participant_label:
        return
    labels = {person.removeprefix("sub-") for person in selected_of(settings).people}
    if absent := sorted({label.removeprefix("sub-") for label in settings.participant_label} - labels):
        say(f"No connectome of sub-{absent[0]}: {label_remedy(absent[0], labels)}", settings)


def _write_tables(cohort: Cohort, by_atlas: Mapping[str, Cohort], attempts: Attempts) -> None:
    """Write who is in the cohort, check it, run the analyses and save models."""
    settings, folder = attempts.settings, attempts.settings.results
    remove_abandoned(settings.work / "shared")
    if (settings.output_dir / "logs" / "status").is_dir():
        write_status_table(settings.output_dir)  # the page leads to the table, and who is left out is left out by it
    if "" in output_folders(settings, settings.output_dir):
        write_recordings(settings.output_dir)
    if not settings.check:
        _check_choices(analyses_to_run(settings), cohort, by_atlas, settings)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"Nothing can be written to {folder} ({error.strerror}). Move what is there, or choose another --name."
        ) from error
    for place in (folder, folder / "models"):
        sweep(place / name for name in leftovers(place))  # of a run that was killed: no other run is at work here
    write_shared(settings.output_dir, settings.results_record, settings.as_toml())
    named = f"{settings.level}_{settings.name}" if settings.name else settings.level
    note_command(settings.output_dir, named, command_of(settings.as_dict(), whole=True))
    write_group_tables(folder, _describe_people(cohort), settings)
    with sharing_spectra(cohort.edges):
        check = load("fcpower_bids.slices.check.workflow:check_first")
        cohort = attempts.run(CHECK, partial(check, cohort, settings)) or cohort
        by_atlas = {name: dataclasses.replace(each, alike=cohort.alike) for name, each in by_atlas.items()}
        if not settings.check:
            _run_analyses(cohort, by_atlas, attempts)
    if not settings.check:
        load("fcpower_bids.slices.clinic.folder:save_models")(cohort, attempts)


def _refuse_other_question(settings: Settings) -> None:
    """Refuse to replace the answer to another question without being asked to. Raises UsageError."""
    finished, now = FinishedAnalyses(settings.results), settings.question()
    for name in set(finished.names) & set(analyses_to_run(settings)) - WITHOUT_TARGETS:
        before = finished.question(name)
        other = [each for each in before if each in now and _in_words(before[each]) != _in_words(now[each])]
        if other and not settings.replace:
            check_names(settings)  # a slip of the pen is no other question
            changes = "; ".join(
                f"--{one.replace('_', '-')} {_in_words(before[one])}, now {_in_words(now[one])}" for one in other
            )
            raise UsageError(
                f"{settings.results} holds results of another question ({changes}). Give this run"
                f" {'another' if settings.name else 'a'} --name to keep both, or --replace."
            )


def _in_words(value: Any) -> str:
    """A choice in words; the order of a list does not matter."""
    if isinstance(value, bool):
        return "given" if value else "not given"
    return " ".join(sorted(map(str, value)) if isinstance(value, list) else [str(value or "")]) or "not given"


def _run_analyses(cohort: Cohort, by_atlas: Mapping[str, Cohort], attempts: Attempts) -> None:
    """Run analyses one by one and write their tables; those of the same cohort and choices are not done again."""
    settings = attempts.settings
    folder = settings.results
    finished, keys = FinishedAnalyses(folder), _keys(cohort, by_atlas, settings)
    names = analyses_to_run(settings)
    _check_choices(names, cohort, by_atlas, settings)  # again: the check may have made one family of two people
    for name in names:
        key, given = keys[name in OF_COHORTS], by_atlas if name in OF_COHORTS else cohort
        if finished.has(name, key):
            attempts.finish(name)
            say(f"{name}: unchanged, tables kept", settings)
            continue
        say(f"{name} ...", settings)
        started = time.monotonic()
        work = partial(_run_analysis, name, given, key, finished, settings)
        tables = attempts.run(name, work, partial(_may_leave_out, name, settings))
        if tables is not None:
            say(f"{name}: {len(tables)} tables in {time.monotonic() - started:.0f} s", settings)
            for note in dict.fromkeys(
                each.facts[PERMUTATIONS] for each in tables.values() if PERMUTATIONS in each.facts
            ):
                say(f"{name}: permutations: {note}", settings)
    few = cohort.scans["participant_id"].nunique() < FEWEST_PEOPLE
    if not few or settings.analyses or settings.targets:  # few people are described, which the check and the page do
        attempts.describe_if_nothing_can_be_done()
    outdated = {}
    for name in (each for each in finished.names if each in ANALYSES):
        if (
            name not in names
            and (by_atlas or name not in OF_COHORTS)
            and not finished.has(name, keys[name in OF_COHORTS])
        ):
            outdated[name] = OUTDATED
            say(f"{name}: {OUTDATED}", settings)
    states = {"left out": attempts.left_out | attempts.refused, "failed": attempts.failed, "outdated": outdated}
    rows = [(name, state, reason) for state, each in states.items() for name, reason in each.items()]
    left_out = Table(pd.DataFrame(rows, columns=list(LEFT_OUT.columns)), LEFT_OUT)
    write_group_tables(folder, {LEFT_OUT.name: left_out}, settings)


def _check_choices(
    names: Sequence[str], cohort: Cohort, by_atlas: Mapping[str, Cohort], settings: Settings
) -> dict[str, str]:
    """End the run before the first analysis where one that was named, or a choice, is not possible.

    Returns the analyses that the cohort does not allow and that may be left out, with the reason.
    """
    left_out = {}
    for name in names:
        try:
            check_choices(name, by_atlas if name in OF_COHORTS else cohort, settings)
        except Unfit as error:
            if not _may_leave_out(name, settings, error):
                raise DatasetError(f"{name}: {error}") from error
            left_out[name] = str(error)
        except Exception:
            # Met again, and noted with its traceback, when the analysis runs.
            continue
    return left_out


def _run_analysis(
    name: str, given: Cohort | Mapping[str, Cohort], key: str, finished: FinishedAnalyses, settings: Settings
) -> Mapping[str, Table]:
    tables: Mapping[str, Table] = ANALYSES[name](given, settings)
    write_group_tables(finished.folder, tables, settings)
    finished.add(name, key, tables, settings.question())
    return tables


def _keys(cohort: Cohort, by_atlas: Mapping[str, Cohort], settings: Settings) -> tuple[str, str]:
    """Keys of the analyses of one cohort, and of those of one cohort per atlas."""
    return analysis_key({"": cohort}, settings), analysis_key(by_atlas, settings)


def _may_leave_out(name: str, settings: Settings, error: Unfit) -> bool:
    """Whether the others may go on: never without one that was named, nor by default after a mistake of the user."""
    if name in settings.analyses:
        return False
    return ALL in settings.analyses or (not settings.analyses and isinstance(error, NotInCohort))


def _describe_people(cohort: Cohort) -> dict[str, Table]:
    """Who is in the cohort, and who and what was left out."""
    facts = {"Description": "The scans of the cohort, in the order of the analyses", "Cleaning": cohort.cleaning}
    facts |= {"CohortNotes": list(cohort.notes)} if cohort.notes else {}
    tables = {
        EXCLUDED_TABLE.name: Table(cohort.excluded, EXCLUDED_TABLE),
        SCANS.name: Table(cohort.scans, SCANS, facts),
    }
    if cohort.embeddings:
        tables[EMBEDDED_PEOPLE.name] = Table(tabulate_people(cohort), EMBEDDED_PEOPLE)
    return tables


def describe_cohort(cohort: Cohort) -> str:
    """Return what the analyses would see, in a few lines."""
    people = cohort.scans["participant_id"].nunique()
    sessions = cohort.scans["session"].value_counts().to_dict()
    return (
        f"{people} people, {len(cohort.scans)} scans ({', '.join(f'{k}: {v}' for k, v in sessions.items())}), "
        f"{len(cohort.parcels)} parcels, phenotypes: {', '.join(map(str, cohort.phenotypes.columns)) or 'none'}; "
        f"{len(cohort.excluded)} exclusions"
    )
