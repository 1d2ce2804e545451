"""The group level: assemble the cohort with its embeddings, run the analyses, write their tables and the page."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids import transforms
from fcpower_bids.analyses import ALL, OF_COHORTS, analyses_to_run
from fcpower_bids.analyses.catalogue import ANALYSES, FIRST_LOOKS
from fcpower_bids.analyses.features import EMBEDDED_PEOPLE, has_series, join_runs, sharing_spectra, tabulate_people
from fcpower_bids.analyses.study import FEWEST_PEOPLE
from fcpower_bids.check import check_first
from fcpower_bids.cohort.assembly import check_names
from fcpower_bids.cohort.feature_choice import OWN_ATLAS, asked_for, read_embedding_facts
from fcpower_bids.cohort.inclusion import EXCLUDED_TABLE, NO_SESSION, PERSON, RECORDING, Connectome
from fcpower_bids.cohort.phenotype_columns import describe_sets, name_columns
from fcpower_bids.cohort.recordings import selected_of, write_recordings
from fcpower_bids.cohort.scans import SCANS
from fcpower_bids.elsewhere.imports import are_named, bring_sources
from fcpower_bids.encoders import embed_recording, embedding_label, open_encoder
from fcpower_bids.errors import DatasetError, FcPowerError, Incomplete, NotInCohort, RecordingError, Unfit, UsageError
from fcpower_bids.imaging.atlas_files import declared_atlases
from fcpower_bids.inputs.discover import label_remedy
from fcpower_bids.inputs.roots import SITE, check_input_folder, dataset_identity, output_folders
from fcpower_bids.inputs.sources import join
from fcpower_bids.notebook import open_cohort
from fcpower_bids.outputs.dataset import TIMESERIES, bids_uri, move_links, note_command
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
    FAILED,
    MOST_ALIKE,
    Status,
    embedding_name,
    forget_embeddings,
    group_alike,
    status_path,
    write_status,
    write_status_table,
)
from fcpower_bids.outputs.tables import column_names, describe_files, read_json, read_series, series_file, write_matrix
from fcpower_bids.parallel import executing, say
from fcpower_bids.records import Cohort, Output, Table
from fcpower_bids.resources import memory_limit
from fcpower_bids.settings import Method, Settings, command_of
from fcpower_bids.settings.options import PERMUTE
from fcpower_bids.store import LOCKS, known_digest, leftovers, lock, sweep, sweep_shared, write_shared
from fcpower_bids.transforms.connectomes import describe_unread_remedy

WITHOUT_TARGETS = frozenset({"fingerprinting", "qc_fc", "spectrum_geometry"})
PERMUTATIONS = "Permutations"
"""Fact of a sidecar: how many, and why so many."""
OUTDATED = "not asked for this time; its tables in this folder are of other people, data or choices"
SCREENS = frozenset({"transform_screen", "spectral_controls"})
"""Analyses that go through all transforms."""


def run_group(settings: Settings) -> int:
    """Check the cohort, run the analyses, return the exit code; one stops no other. Raises DatasetError, Incomplete."""
    if not settings.run.reports_only:
        check_input_folder(settings.bids_dir)
        if settings.group.site_column is None and len(output_folders(settings, settings.output_dir)) > 1:
            settings = settings.changed(site_column=SITE)
        if settings.group.sites != PERMUTE and settings.group.site_column is None:
            raise UsageError(f"--sites {settings.group.sites} needs the column of sites. Give --site-column.")
        settings = settings.changed(targets=name_columns(settings))
        for line in describe_sets(settings.group):
            say(line, settings)
        _refuse_other_question(settings)
    elif next(settings.results.glob("*.tsv*"), None) is None:
        there = sorted(path.parent.name for path in (settings.output_dir / "group").glob(f"*/{SCANS.name}.tsv"))
        named = f" There are: {', '.join(there)}." if there else ""
        raise UsageError(
            f"{settings.results} holds no results, so there is nothing to report: leave out --reports-only, or correct "
            f"--name.{named}"
        )
    asked = settings.group.representations if SCREENS.isdisjoint(analyses_to_run(settings)) else transforms.NAMES
    for line in describe_unread_remedy(asked, settings.method):
        say(line, settings)
    if settings.run.dry_run:
        return _dry_run(settings)
    attempts = Attempts(settings, [PAGE] * settings.run.reports_only + [CHECK] * (not analyses_to_run(settings)))
    shared = settings.work / "shared"
    if not settings.run.reports_only:
        with executing(settings.run, shared):
            bring_sources(settings)
        try:
            embed_stored(settings)
        except Incomplete as error:  # the others have their embedding
            attempts.fail("embedding", str(error), error)
        with memory_limit(settings.run.mem_mb):
            cohort, by_atlas = open_cohorts(settings)
        _describe_cohort(cohort, settings)
        with ExitStack() as held, executing(settings.run, shared):
            path = settings.output_dir / LOCKS / f"group_{settings.group.name}"
            if not held.enter_context(lock(path, wait=False)):
                say("Another run is at work on the same tables; it is waited for.", settings)
                held.enter_context(lock(path))
            with sharing_spectra(cohort.edges):
                cohort = _write_cohort(cohort, by_atlas, settings, attempts)
                _run_analyses(cohort, by_atlas, settings, attempts)
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


def _dry_run(settings: Settings) -> int:
    """Say what the analyses would see, and refuse what a run refuses before the first of them."""
    with untouched(settings) as choices, memory_limit(settings.run.mem_mb):
        bring_sources(choices)
        cohort, by_atlas = open_cohorts(choices)
        left_out = _check_choices(analyses_to_run(settings), cohort, by_atlas, choices)
        _describe_cohort(cohort, choices)
    sessions = ", ".join(f"{name}: {count}" for name, count in cohort.scans["session"].value_counts().items())
    columns = ", ".join(map(str, cohort.phenotypes.columns)) or "none"
    say(
        f"{cohort.scans['participant_id'].nunique()} people, {len(cohort.scans)} scans ({sessions}), "
        f"{len(cohort.parcels)} parcels, phenotypes: {columns}; {len(cohort.excluded)} exclusions",
        settings,
    )
    for name, reason in left_out.items():
        say(f"{name}: would be left out. {reason}", settings)
    return 0


def _describe_cohort(cohort: Cohort, settings: Settings) -> None:
    """Say who is missing and why, before any table (one line each, or for all with the same reason), and all notes.

    Also a participant of the command line without a connectome, and how the label may be meant.
    """
    for note in cohort.notes:
        say(note, settings)
    rows = cohort.excluded[cohort.excluded["what"].isin((RECORDING, PERSON))]
    most = len(rows) if settings.run.verbose else MOST_ALIKE
    for first, *others in group_alike(list(rows.itertuples()), lambda row: str(row.reason), most):
        session = "" if first.session == NO_SESSION else f" {first.session}"
        who = f"{1 + len(others)} in all, the first is {first.participant_id}" if others else first.participant_id
        say(f"Left out: {who}{session}: {first.reason}", settings)
    if settings.inputs.participant_label:
        labels = {person.removeprefix("sub-") for person in selected_of(settings).people}
        if absent := sorted({label.removeprefix("sub-") for label in settings.inputs.participant_label} - labels):
            say(f"No connectome of sub-{absent[0]}: {label_remedy(absent[0], labels)}", settings)


def _write_cohort(cohort: Cohort, by_atlas: Mapping[str, Cohort], settings: Settings, attempts: Attempts) -> Cohort:
    """Write who is in the cohort, check it, and return it with what the check has found."""
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
        sweep(place / name for name in leftovers(place))  # of a run that was killed: no other run is at work here
    write_shared(output, settings.results_record, settings.as_toml())
    named = f"{settings.level}_{settings.group.name}" if settings.group.name else settings.level
    note_command(output, named, command_of(settings.as_dict(), whole=True))
    facts = {"Description": "The scans of the cohort, in the order of the analyses", "Cleaning": cohort.cleaning}
    facts |= {"CohortNotes": list(cohort.notes)} if cohort.notes else {}
    people = [Table(cohort.excluded, EXCLUDED_TABLE), Table(cohort.scans, SCANS, facts)]
    people += [Table(tabulate_people(cohort), EMBEDDED_PEOPLE)] if cohort.embeddings else []
    write_group_tables(folder, {table.spec.name: table for table in people}, settings)
    return attempts.run(CHECK, partial(check_first, cohort, settings)) or cohort


def _refuse_other_question(settings: Settings) -> None:
    """Refuse to replace the answer to another question without being asked to. Raises UsageError."""
    finished, now = FinishedAnalyses(settings.results), settings.question()
    for name in set(finished.names) & set(analyses_to_run(settings)) - WITHOUT_TARGETS:
        before = finished.question(name)
        other = [option for option in before if option in now and _in_words(before[option]) != _in_words(now[option])]
        if other and not settings.run.replace:
            check_names(settings)  # a slip of the pen is no other question
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


def _run_analyses(cohort: Cohort, by_atlas: Mapping[str, Cohort], settings: Settings, attempts: Attempts) -> None:
    """Run analyses one by one and write their tables; those of the same cohort and choices are not done again."""
    names = analyses_to_run(settings)
    finished = FinishedAnalyses(settings.results)
    by_atlas = {name: replace(of_atlas, alike=cohort.alike) for name, of_atlas in by_atlas.items()}
    if cohort.alike:  # once more: the check has made one family of two people
        _check_choices(names, cohort, by_atlas, settings)
    keys = [analysis_key({"": cohort}, settings), analysis_key(by_atlas, settings)]
    for name in names:
        if finished.has(name, keys[name in OF_COHORTS]):
            attempts.finish(name)
            say(f"{name}: unchanged, tables kept", settings)
            continue
        say(f"{name} ...", settings)
        started = time.monotonic()
        with attempts.at(name, partial(_may_leave_out, name, settings)):
            tables: Mapping[str, Table] = ANALYSES[name](by_atlas if name in OF_COHORTS else cohort, settings)
            write_group_tables(finished.folder, tables, settings)
            finished.add(name, keys[name in OF_COHORTS], tables, settings.question())
            say(f"{name}: {len(tables)} tables in {time.monotonic() - started:.0f} s", settings)
            notes = (table.facts[PERMUTATIONS] for table in tables.values() if PERMUTATIONS in table.facts)
            for note in dict.fromkeys(notes):
                say(f"{name}: permutations: {note}", settings)
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
    for name in finished.names:
        asked = name in names or name not in ANALYSES or (name in OF_COHORTS and not by_atlas)
        if not asked and not finished.has(name, keys[name in OF_COHORTS]):
            rows.append((name, "outdated", OUTDATED))
            say(f"{name}: {OUTDATED}", settings)
    left_out = Table(pd.DataFrame(rows, columns=list(LEFT_OUT.columns)), LEFT_OUT)
    write_group_tables(finished.folder, {LEFT_OUT.name: left_out}, settings)


def _check_choices(
    names: Sequence[str], cohort: Cohort, by_atlas: Mapping[str, Cohort], settings: Settings
) -> dict[str, str]:
    """End the run before the first analysis where one that was named, or a choice, is not possible.

    Returns the analyses that the cohort does not allow and that may be left out, with the reason.
    """
    left_out = {}
    for name in names:
        try:
            FIRST_LOOKS[name](by_atlas if name in OF_COHORTS else cohort, settings)
        except Unfit as error:
            if not _may_leave_out(name, settings, error):
                raise DatasetError(f"{name}: {error}") from error
            left_out[name] = str(error)
        except Exception:
            # Met again, and noted with its traceback, when the analysis runs.
            continue
    return left_out


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
    label, asked = embedding_label(settings.method), analyses_to_run(settings)
    facts = read_embedding_facts(cohort.embeddings, settings)
    leaks = tuple(
        f"The cohort statistics of the embedding '{name}' were {about['statistics']}, "
        "which may be of people who are tested here (a leak)."
        for name, about in facts.items()
        if about.get("statistics")
    )
    encoders, embeddings, several = {}, dict(cohort.embeddings), np.flatnonzero(cohort.scans["n_runs"] > 1)
    own_atlas = facts.get(label, {}).get(OWN_ATLAS, True)  # else its series are not those of the cohort
    notes = [f"Embeddings of {len(several)} scans are means over their runs; --encoder reads these as one sequence."]
    if label in cohort.embeddings and own_atlas and (len(several) or "learning_curves" in asked):
        embed = load_series_encoder(cohort.parcels, settings)
        encoders = {label: embed} if "learning_curves" in asked else {}
        if has_series(cohort):  # the runs of a session are one sequence, as in the paper
            embeddings[label] = np.array(embeddings[label])
            for scan in [scan for scan in several if np.isfinite(embeddings[label][scan]).all()]:
                embeddings[label][scan] = embed(join_runs(cohort.series[scan]), cohort.repetition_times[scan])
            notes = [f"Of {len(several)} scans '{label}' has read the runs as one sequence."]
    notes = [*cohort.notes, *leaks, *(notes if len(several) and cohort.embeddings else [])]
    return dataclasses.replace(
        cohort, encoders=encoders, embeddings=embeddings, embedding_facts=facts, notes=tuple(notes)
    )


def load_series_encoder(parcels: tuple[str, ...], settings: Settings) -> Callable[[np.ndarray, float], np.ndarray]:
    """Load ``--encoder`` as a function of a series (T, P) and its repetition time. Raises FcPowerError."""
    encoder = open_encoder(settings.method, parcels)

    def embed(series: np.ndarray, repetition_time: float) -> np.ndarray:
        vectors: np.ndarray = encoder.embed([series], parcels, repetition_time, settings.method.encoder_read)
        return vectors[0]

    return embed


@contextmanager
def untouched(settings: Settings) -> Iterator[Settings]:
    """Settings with a copy of the output folder that may be written to, if sources come in. Raises FcPowerError."""
    if not are_named(settings):
        yield settings
        return
    with TemporaryDirectory(prefix="fcpower_bids-") as folder:
        copy = Path(folder, "out")
        if settings.output_dir.is_dir():  # links are replaced by what is written, not written through
            without = shutil.ignore_patterns("work", "group", "locks")
            shutil.copytree(settings.output_dir.absolute(), copy, ignore=without, copy_function=os.symlink)
            move_links(settings.output_dir, copy)
        try:
            yield settings.changed(output_dir=copy, work_dir=Path(folder, "work"))
        except FcPowerError as error:
            raise type(error)(str(error).replace(str(copy), str(settings.output_dir))) from error


# Series that are stored already: of other programs, or cleaned before there was an encoder

OF_SERIES = "SeriesSha256"
"""Entry of the sidecar of an embedding: the file that it was made from."""
OF_DATASET = "DatasetName"
"""Another: the dataset whose people were looked for among those of the encoder's training."""
INHERITED = ("NuisanceStrategy", "SecondsUsed", "NumberOfVolumesUsed", "RepetitionTime", "Atlas")


def embed_stored(settings: Settings) -> None:
    """Embed the stored series that lack this embedding. Raises CheckpointError, DatasetError, Incomplete."""
    if settings.method.encoder is None:
        return
    label, output = embedding_label(settings.method), settings.output_dir
    folders = output_folders(settings, output)
    of_sites = "" not in folders  # which are read and not written to
    if of_sites or not (settings.method.encoder_weights or settings.method.encoder == "random-init"):
        if not any(label in connectome.encoders for connectome in selected_of(settings).connectomes):
            remedy = "Run the group level with --encoder in each of them" if of_sites else "Give --encoder-weights"
            raise UsageError(
                f"There is no embedding by --encoder {settings.method.encoder} in "
                f"{' and '.join(map(str, folders.values()))}. {remedy}, or leave it out."
            )
        return
    there = asked_for(selected_of(settings).connectomes, settings)
    with_series = [connectome for connectome in there if series_file(connectome.beside(TIMESERIES)).is_file()]
    if there and not with_series and not any(label in connectome.encoders for connectome in there):
        raise DatasetError(
            f"{output} holds no series, so there is nothing to embed: matrices do not say how a scan went on in time. "
            "Give the series, or leave out --encoder."
        )
    # without an embedding of this label, or with one of their own that may be outdated
    lacking = [
        connectome
        for connectome in with_series
        if label not in connectome.encoders or dict(connectome.embeddings)[label] == connectome.atlas
    ]
    names = {run: embedding_name(run.recording, run.atlas_name, settings.method) for run in lacking}
    forget_embeddings(output, {connectome.recording for connectome in lacking}, set(names.values()))
    done, failed = _embed_all(lacking, names, label, settings)
    if done:
        say(f"{label}: {done} stored series embedded", settings)
    if failed:
        raise Incomplete(
            f"{len(failed)} of {len(lacking)} stored series could not be embedded ({', '.join(failed[:3])}): the "
            "reasons are in logs/status.tsv."
        )


def _embed_all(
    lacking: Sequence[Connectome], names: Mapping[Connectome, str], label: str, settings: Settings
) -> tuple[int, list[str]]:
    """Embed the series of these scans; return how many were, and the recordings of which there is none."""
    output = settings.output_dir
    done, failed, others = 0, list[str](), dict[Connectome, str]()
    named = sorted(
        ((tuple(column_names(connectome.path)), connectome) for connectome in lacking),
        key=lambda pair: (pair[0], pair[1].path),
    )
    for parcels, of_parcels in groupby(named, key=lambda pair: pair[0]):  # an encoder is loaded once for each
        scans = [connectome for _, connectome in of_parcels]
        try:
            encoder = open_encoder(settings.method, parcels)
        except UsageError as error:  # it is for other parcels than those of these scans
            if len(others) + len(scans) == len(lacking):
                raise
            others |= dict.fromkeys(scans, str(error))
            continue
        if getattr(encoder, "needs_statistics", False) and encoder.statistics is None:
            continue  # it is fitted to the training people of every fold where encoders are compared
        for connectome in scans:
            try:
                done += _embed(connectome, encoder, label, settings)
                status_path(output, names[connectome]).unlink(missing_ok=True)  # of an earlier failure
            except (RecordingError, DatasetError) as error:
                connectome.beside(Output("embedding", (("desc", label),))).unlink(missing_ok=True)
                write_status(output, Status(names[connectome], FAILED, "embed", str(error)))
                failed.append(connectome.recording)
    for connectome, reason in others.items():
        write_status(output, Status(names[connectome], FAILED, "embed", reason))
        failed.append(connectome.recording)
    return done, failed


def _embed(connectome: Connectome, encoder: Any, label: str, settings: Settings) -> bool:
    """Embed one series and write vector and sidecar, unless they are there: made by this encoder from this series."""
    series = series_file(connectome.beside(TIMESERIES))
    target = connectome.beside(Output("embedding", (("desc", label),)))
    person = dataset_identity(settings.bids_dir, settings.inputs.dataset_name), connectome.participant
    stated = {OF_SERIES: known_digest(series), OF_DATASET: person[0]}  # which a node does not state
    about = {**encoder.provenance(settings.method.encoder_read), **stated}
    if target.is_file() and target.with_suffix(".json").is_file():
        known = {**stated, **read_json(target.with_suffix(".json"))}
        plain = json.loads(json.dumps(about))
        if {name: known.get(name) for name in plain} == plain and not (
            label in connectome.encoders and connectome.is_embedding_outdated(label)
        ):
            return False
    values, parcels = read_series(series)
    facts = read_json(series.with_suffix(".json"))
    time = float(facts.get("RepetitionTime", math.nan))
    vector, training = embed_recording(encoder, values, tuple(parcels), time, settings.method.encoder_read, person)
    write_matrix(target, vector[None], [f"dim{number:04d}" for number in range(len(vector))])
    inherited = {key: facts[key] for key in INHERITED if key in facts}
    sources = [bids_uri(series, {"": settings.output_dir})]
    describe_files({"Sources": sources, **inherited, **about, **training}, target)
    return True
