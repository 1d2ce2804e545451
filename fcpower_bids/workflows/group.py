"""The group level: assemble the cohort with its embeddings, run the analyses, write their tables and the page."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses import ALL, OF_COHORTS, analyses_to_run
from fcpower_bids.analyses.catalogue import ANALYSES, FIRST_LOOKS
from fcpower_bids.analyses.features import FC, FC_POWER, has_series, join_whole, sharing_spectra
from fcpower_bids.analyses.study import FEWEST_PEOPLE
from fcpower_bids.check import check_first
from fcpower_bids.cohort.assembly import choose_recordings
from fcpower_bids.cohort.inclusion import DECISION, EXCLUDED_TABLE, NO_SESSION, PERSON, RECORDING
from fcpower_bids.cohort.phenotype_columns import name_columns
from fcpower_bids.cohort.recordings import selected_of, write_recordings
from fcpower_bids.cohort.scans import IDENTITY, OWN_ATLAS, SCANS
from fcpower_bids.elsewhere.imports import bring_sources
from fcpower_bids.encoders import embedding_label, open_encoder
from fcpower_bids.errors import DatasetError, Incomplete, NotInCohort, RecordingError, Unfit, UsageError
from fcpower_bids.imaging.atlas_files import declared_atlases
from fcpower_bids.inputs.discover import label_remedy
from fcpower_bids.inputs.roots import check_input_folder, output_folders
from fcpower_bids.notebook import open_cohort
from fcpower_bids.outputs.group import (
    CHECK,
    INDEX,
    LEFT_OUT,
    PAGE,
    Attempts,
    FinishedAnalyses,
    analysis_key,
    write_group_tables,
)
from fcpower_bids.outputs.status import (
    MOST_ALIKE,
    group_alike,
    write_status_table,
)
from fcpower_bids.parallel import executing, say
from fcpower_bids.records import SITE, Cohort, Table, join
from fcpower_bids.settings import Method, Settings, options
from fcpower_bids.settings.options import HOLD_OUT, PERMUTE
from fcpower_bids.store import LOCKS, lock, sweep, sweep_shared, write_shared
from fcpower_bids.workflows.stored import embed_stored

WITHOUT_TARGETS = frozenset({"fingerprinting", "qc_fc", "spectrum_geometry"})
PERMUTATIONS = "Permutations"
"""Fact of a sidecar: how many, and why so many."""


def run_group(settings: Settings) -> int:
    """Check the cohort, run the analyses, return the exit code; one stops no other. Raises DatasetError, Incomplete."""
    settings = _settle(settings)
    names = analyses_to_run(settings)
    attempts = Attempts(settings, [PAGE] * settings.run.reports_only + [CHECK] * (not names))
    shared = settings.work / "shared"
    if not settings.run.reports_only:
        with executing(settings.run, shared):
            bring_sources(settings)
        try:
            embed_stored(settings)
        except Incomplete as error:  # the others have their embedding
            attempts.fail("embedding", str(error), error)
        with executing(settings.run, shared):
            cohort, by_atlas = open_cohorts(settings)
        _describe_cohort(cohort, settings)
        with ExitStack() as held, executing(settings.run, shared):
            path = settings.output_dir / LOCKS / f"group_{settings.group.name}"
            if not held.enter_context(lock(path, wait=False)):
                say("Another run is at work on the same tables; it is waited for.", settings)
                held.enter_context(lock(path))
                _refuse_other_question(settings)  # which the other has answered
            with sharing_spectra(cohort.edges):
                cohort, by_atlas = _write_cohort(cohort, by_atlas, settings, attempts)
                finished = FinishedAnalyses(settings.results)
                besides = {name: analysis_key(by_atlas, settings) for name in OF_COHORTS if by_atlas}
                if cohort.reference is not None:
                    besides["transform_screen"] = hashlib.sha256(cohort.reference.tobytes()).hexdigest()
                for name in names:
                    if finished.has(name, besides.get(name, "")):  # of the same cohort and choices
                        attempts.finish(name)
                        say(f"{name}: unchanged, tables kept", settings)
                        continue
                    say(f"{name} ...", settings)
                    started = time.monotonic()
                    with attempts.at(name, partial(_may_leave_out, name, settings)):
                        tables = ANALYSES[name](by_atlas if name in OF_COHORTS else cohort, settings)
                        write_group_tables(finished.folder, tables, settings)
                        question = {} if name in WITHOUT_TARGETS else settings.question()
                        finished.add(name, tables, besides.get(name, ""), question)
                        say(f"{name}: {len(tables)} tables in {time.monotonic() - started:.0f} s", settings)
                        notes = (table.facts[PERMUTATIONS] for table in tables.values() if PERMUTATIONS in table.facts)
                        for note in dict.fromkeys(notes):
                            say(f"{name}: permutations: {note}", settings)
                _conclude(cohort, settings, attempts)
            if settings.group.save_models and analyses_to_run(settings):
                from fcpower_bids.clinic.fit import save_models  # most runs need no models

                save_models(cohort, settings, attempts)
    from fcpower_bids.reports.cohort.page import write_group_report  # only the end of a run needs it
    from fcpower_bids.reports.person import write_index  # only the end of a run needs it

    sweep_shared(settings.output_dir)
    _, answers = attempts.run(PAGE, partial(write_group_report, settings)) or (None, [])
    attempts.run(INDEX, partial(write_index, settings.output_dir))
    say("\n".join([*answers, f"Tables: {settings.results}  Page: {settings.results_page}"]), settings)
    attempts.tell()
    return 0


def _settle(settings: Settings) -> Settings:
    """Complete the choices that hang on the folder, and refuse what cannot be run. Raises DatasetError, UsageError."""
    if not settings.run.reports_only:
        check_input_folder(settings.bids_dir)
        if settings.group.site_column is None and len(output_folders(settings, settings.output_dir)) > 1:
            settings = settings.changed(site_column=SITE)
        if settings.group.sites != PERMUTE and settings.group.site_column is None:
            raise UsageError(f"--sites {settings.group.sites} needs the column of sites. Give --site-column.")
        settings = settings.changed(targets=name_columns(settings))
        _refuse_other_question(settings)
    elif next(settings.results.glob("*.tsv*"), None) is None:
        there = sorted(path.parent.name for path in (settings.output_dir / "group").glob(f"*/{SCANS.name}.tsv"))
        named = f" There are: {', '.join(there)}." if there else ""
        raise UsageError(
            f"{settings.results} holds no results, so there is nothing to report: leave out --reports-only, or correct "
            f"--name.{named}"
        )
    else:
        say("The page is made of the tables that are there, whatever else is asked for.", settings)
    group = settings.group
    if group.folds_file and (group.folds or group.repeats):
        say(f"{group.folds_file.name} has the folds: other --folds and --repeats are not used.", settings)
    elif group.sites == HOLD_OUT and group.folds:
        say("--folds is not used: every site is held out in turn.", settings)
    if settings.group.save_models and {FC, FC_POWER}.isdisjoint(settings.group.representations):
        say(f"--save-models makes no model: models are made of {FC} and {FC_POWER}, see --representations.", settings)
    return settings


def _describe_cohort(cohort: Cohort, settings: Settings) -> None:
    """Say who is missing and why, before any table (one line each, or for all with the same reason), and all notes.

    Also a participant of the command line without a connectome, and how the label may be meant.
    """
    for note in cohort.notes:
        say(note, settings)
    rows = cohort.excluded[cohort.excluded["what"].isin((RECORDING, PERSON, DECISION))]
    most = len(rows) if settings.run.verbose else MOST_ALIKE
    for first, *others in group_alike(list(rows.itertuples()), lambda row: str(row.reason), most):
        session = "" if first.session == NO_SESSION else f" {first.session}"
        who = f"{1 + len(others)} in all, the first is {first.participant_id}" if others else first.participant_id
        say(f"{'' if first.what == DECISION else 'Left out: '}{who}{session}: {first.reason}", settings)
    if settings.inputs.participant_label:
        labels = {person.removeprefix("sub-") for person in selected_of(settings).people}
        if absent := sorted({label.removeprefix("sub-") for label in settings.inputs.participant_label} - labels):
            say(f"No connectome of sub-{absent[0]}: {label_remedy(absent[0], labels)}", settings)


def _write_cohort(
    cohort: Cohort, by_atlas: dict[str, Cohort], settings: Settings, attempts: Attempts
) -> tuple[Cohort, dict[str, Cohort]]:
    """Write who is in the cohort, check it, and return it (and that of each atlas) with what the check has found."""
    folder, output = settings.results, settings.output_dir
    if (output / "logs" / "status").is_dir():
        write_status_table(output)  # the page leads to the table, and who is left out is left out by it
    if "" in output_folders(settings, output):
        write_recordings(output)
    _check_choices(analyses_to_run(settings), cohort, by_atlas, settings)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"Nothing can be written to {folder} ({error.strerror}). Move what is there, or choose another --name."
        ) from error
    for place in (folder, folder / "models"):
        sweep(place)  # of a run that was killed: no other run is at work here
    finished, key = FinishedAnalyses(folder), analysis_key({"": cohort}, settings)
    lost = sorted(set(finished.names) - {CHECK, *analyses_to_run(settings)}) if key != finished.key else []
    if lost and not settings.run.replace:
        raise UsageError(
            f"{folder} holds {', '.join(lost)} of other people, data or choices, which this run would remove: ask for "
            f"them too, give this run {'another' if settings.group.name else 'a'} --name, or --replace."
        )
    if others := set(finished.begin(key)) - {CHECK}:
        say(f"Tables of other people, data or choices are removed: {', '.join(sorted(others))}.", settings)
        if not settings.group.save_models and any((folder / "models").glob("*_model")):
            say(f"The models in {folder / 'models'} stay, and are of those people, data and choices.", settings)
    write_shared(output, settings.results_record, settings.as_toml())
    facts = {"Description": "The scans of the cohort, in the order of the analyses", "Cleaning": cohort.cleaning}
    facts |= {"CohortNotes": list(cohort.notes)} if cohort.notes else {}
    people = [Table(cohort.excluded, EXCLUDED_TABLE), Table(cohort.scans, SCANS, facts)]
    _note([], settings)
    write_group_tables(folder, {table.spec.name: table for table in people}, settings)
    cohort = attempts.run(CHECK, partial(check_first, cohort, settings)) or cohort
    if cohort.alike:  # the check has made one family of two people
        by_atlas = {name: replace(of_atlas, alike=cohort.alike) for name, of_atlas in by_atlas.items()}
        _check_choices(analyses_to_run(settings), cohort, by_atlas, settings)
    return cohort, by_atlas


def _refuse_other_question(settings: Settings) -> None:
    """Refuse to replace the answer to another question without being asked to. Raises UsageError."""
    finished, now = FinishedAnalyses(settings.results), settings.question()
    before = finished.question
    other = [option for option in before if option in now and _in_words(before[option]) != _in_words(now[option])]
    if other and not settings.run.replace:
        if all(options()[name].section != "selection" for name in other):  # else of recordings that may not be here yet
            choose_recordings(settings)  # a slip of the pen is no other question
        changes = "; ".join(
            f"--{option.replace('_', '-')} {_in_words(before[option])}, now {_in_words(now[option])}"
            for option in other
        )
        raise UsageError(
            f"{settings.results} holds results of another question ({changes}). Give this run"
            f" {'another' if settings.group.name else 'a'} --name to keep both, or --replace."
        )


def _in_words(value: Any) -> str:
    """A choice in words; the order of a list does not matter."""
    if isinstance(value, bool):
        return "given" if value else "not given"
    return " ".join(sorted(map(str, value)) if isinstance(value, list) else [str(value or "")]) or "not given"


def _conclude(cohort: Cohort, settings: Settings, attempts: Attempts) -> None:
    """Write why analyses are not there. Raises DatasetError where none could be done."""
    few = cohort.scans["participant_id"].nunique() < FEWEST_PEOPLE
    reasons = attempts.left_out | attempts.refused
    # few people are described, which the check and the page do
    if (
        reasons
        and not (attempts.done or attempts.failed)
        and (not few or settings.group.analyses or settings.group.targets)
    ):
        raise DatasetError("\n".join(f"{name}: {reason}" for name, reason in reasons.items()))
    rows = [(name, "left out", reason) for name, reason in reasons.items()]
    rows += [(name, "failed", reason) for name, reason in attempts.failed.items()]
    _note(rows, settings)


def _note(rows: Sequence[tuple[str, str, str]], settings: Settings) -> None:
    """Write why analyses are not there."""
    table = Table(pd.DataFrame(rows, columns=list(LEFT_OUT.columns)), LEFT_OUT)
    write_group_tables(settings.results, {LEFT_OUT.name: table}, settings)


def _check_choices(names: Sequence[str], cohort: Cohort, by_atlas: Mapping[str, Cohort], settings: Settings) -> None:
    """End the run before the first analysis where one that was named, or a choice, is not possible."""
    for name in names:
        try:
            FIRST_LOOKS[name](by_atlas if name in OF_COHORTS else cohort, settings)
        except Unfit as error:
            if not _may_leave_out(name, settings, error):
                raise DatasetError(f"{name}: {error}") from error
        except Exception:
            # Met again, and noted with its traceback, when the analysis runs.
            continue


def _may_leave_out(name: str, settings: Settings, error: Unfit) -> bool:
    """Whether the others may go on: never without one that was named, nor by default after a mistake of the user."""
    if name in settings.group.analyses:
        return False
    return ALL in settings.group.analyses or (not settings.group.analyses and isinstance(error, NotInCohort))


# Input of the analyses


def open_cohorts(settings: Settings) -> tuple[Cohort, dict[str, Cohort]]:
    """Load the cohort of the analyses, and one per atlas for comparisons."""
    asked = set(analyses_to_run(settings))
    if "transform_screen" not in asked:  # the others have no use for these recordings
        settings = settings.changed(tangent_reference=None)
    if not OF_COHORTS & asked:
        return complete_cohort(open_cohort(settings), settings), {}
    atlases = list(dict.fromkeys(settings.method.atlas))
    if settings.method.atlas == Method.atlas:
        default = join(declared_atlases()[Method.atlas[0]].entities)
        there = {connectome.atlas_name for connectome in selected_of(settings).connectomes}
        atlases = sorted(there, key=lambda name: (name != default, name))
    if not atlases:
        return open_cohort(settings), {}
    choices = {name: settings.changed(atlas=(name,), tangent_reference=None) for name in atlases}
    choices[atlases[0]] = settings.changed(atlas=(atlases[0],))
    cohorts = {name: open_cohort(chosen) for name, chosen in choices.items()}
    return complete_cohort(cohorts[atlases[0]], choices[atlases[0]]), cohorts


def complete_cohort(cohort: Cohort, settings: Settings) -> Cohort:
    """Add what the sidecars say of the embeddings, and the encoder of ``--encoder`` where an analysis embeds again."""
    if not cohort.embeddings and settings.method.encoder is None:
        return cohort
    label, asked, facts = embedding_label(settings.method), analyses_to_run(settings), cohort.embedding_facts
    leaks = tuple(
        f"The cohort statistics of the embedding '{name}' were {about['statistics']}, "
        "which may be of people who are tested here (a leak)."
        for name, about in facts.items()
        if about.get("statistics")
    )
    encoders, embeddings, several = {}, dict(cohort.embeddings), np.flatnonzero(cohort.scans["n_runs"] > 1)
    own_atlas = facts.get(label, {}).get(OWN_ATLAS, True)  # else its series are not those of the cohort
    notes = [f"Embeddings of {len(several)} scans are means over their runs; --encoder reads these as one sequence."]
    given = settings.method.encoder_weights is not None or settings.method.encoder == "random-init"
    of_sites = "" not in output_folders(settings, settings.output_dir)  # whose embeddings may be by other weights
    wanted = given and ("learning_curves" in asked or of_sites or len(several) > 0)
    if label in cohort.embeddings and own_atlas and wanted:
        embed, apart = load_series_encoder(cohort.all_parcels or cohort.parcels, settings, facts[label]), 0
        encoders = {label: embed} if "learning_curves" in asked else {}
        if has_series(cohort):  # the runs of a session are one sequence, as in the paper
            embeddings[label] = np.array(embeddings[label])
            for scan in [scan for scan in several if np.isfinite(embeddings[label][scan]).all()]:
                try:
                    embeddings[label][scan] = embed(join_whole(cohort, scan), cohort.repetition_times[scan])
                except RecordingError:  # one of its runs has no embedding
                    apart += 1
            notes = [f"Of {len(several) - apart} scans '{label}' has read the runs as one sequence."]
            if others := ", ".join(f"'{name}'" for name in embeddings if name != label):
                notes.append(f"The embeddings {others} of these are means over the runs: they do not compare with it.")
                means = {name: {**about, "read": f"{about.get('read')}, mean of runs"} for name, about in facts.items()}
                facts = means | {label: facts[label]}
            if apart:
                notes.append(
                    f"Of {apart} scans the runs lack different parcels, or a run has no embedding: theirs is the mean "
                    "over the runs that have one."
                )
    notes = [*cohort.notes, *leaks, *(notes if len(several) and cohort.embeddings else [])]
    cohort = dataclasses.replace(cohort, encoders=encoders, embeddings=embeddings, embedding_facts=facts)
    return dataclasses.replace(cohort, notes=tuple(notes))


def load_series_encoder(
    parcels: tuple[str, ...], settings: Settings, stored: Mapping[str, Any]
) -> Callable[[np.ndarray, float], np.ndarray]:
    """Load ``--encoder`` as a function of a series (T, P) and its repetition time. Raises FcPowerError.

    `stored`: what the sidecars say of the embeddings that its own stand beside, which must be of the same weights.
    """
    encoder = open_encoder(settings.method, parcels)
    about = encoder.provenance(settings.method.encoder_read)
    names = [name for name in IDENTITY if name in stored and not (name == "weights" and stored.get("sha256"))]
    if unlike := [name for name in names if stored[name] != about.get(name)]:
        raise UsageError(
            f"The stored embeddings by {settings.method.encoder} are of other weights or were read otherwise "
            f"({unlike[0]}): give those with --encoder-weights, or embed anew in the output folder of every site."
        )

    def embed(series: np.ndarray, repetition_time: float) -> np.ndarray:
        vectors: np.ndarray = encoder.embed([series], parcels, repetition_time, settings.method.encoder_read)
        return vectors[0]

    return embed
