"""The cohort of a group analysis, from the outputs of the participant level and the phenotype tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, compress, groupby
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.cohort.feature_choice import (
    check_alike,
    choose_connectomes,
    cleaning_of,
    would_take_part,
)
from fcpower_bids.cohort.inclusion import (
    NO_SESSION,
    PERSON,
    Connectome,
    Exclusion,
    Run,
    choose_parcels,
    fault_of,
    leave_out,
    name_some,
    read_quality,
)
from fcpower_bids.cohort.people import PERSON_ID, Scanned, load_phenotypes, match_ids, read_rows, without_zeros
from fcpower_bids.cohort.phenotype_columns import describe_sets, resolve_columns
from fcpower_bids.cohort.recordings import describe_nothing_left, selected_of
from fcpower_bids.cohort.scans import (
    assemble_edges,
    group_scans,
    read_edges,
    read_embeddings,
    read_parcel_facts,
    series_of,
    tabulate_scans,
)
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.data_checks import COPIED, NEITHER
from fcpower_bids.core.edges import correlations_from, vectorise_edges
from fcpower_bids.errors import DatasetError, Unfit
from fcpower_bids.inputs.sources import drop
from fcpower_bids.outputs.dataset import describe_without_folders, known_folders
from fcpower_bids.outputs.tables import read_matrix
from fcpower_bids.records import Cohort, label_order
from fcpower_bids.settings import Group, Settings

FEWEST_MATCHED = 0.5
"""Share of the people with scans and phenotypes below which the tables are of others, or the names are wrong."""
WITH = "with "
"""Before the name of a target: how many of the people in both have it."""


def describe_copies(runs: Sequence[Run], digests: Sequence[str]) -> Iterator[str]:
    """Say which of equal connectomes are left out, and why: of one person all but the first, of several all."""
    alike: dict[str, list[Connectome]] = {}
    for run, digest in zip(runs, digests, strict=True):
        alike.setdefault(digest, []).append(run.connectome)
    for connectome, digest in zip((run.connectome for run in runs), digests, strict=True):
        first = alike[digest][0]
        if other := next((copy for copy in alike[digest] if copy.participant != connectome.participant), None):
            at_site = f" of {other.site}" if other.site else ""
            yield (
                f"{COPIED} {other.recording}{at_site}, so one of the two names is wrong and {NEITHER}; reject the "
                "wrong one in exclude.tsv"
            )
        else:
            yield "" if first is connectome else f"{COPIED} {first.recording}; only that is used"


def load_cohort(settings: Settings) -> Cohort:
    """Assemble the cohort: recordings, scans, then parcels; all left out is in ``excluded``. Raises DatasetError."""
    runs, rows, notes = choose_recordings(settings)
    chosen = [run.connectome for run in runs]
    edges = read_edges([connectome.path for connectome in chosen], settings)
    folders = known_folders(settings.output_dir, *{connectome.root for connectome in chosen})
    why = [describe_without_folders(edges.unreadable.get(connectome.path, ""), folders) for connectome in chosen]
    runs = [replace(run, place=place) for place, run in enumerate(leave_out(runs, why, rows))]
    scans = group_scans(leave_out(runs, describe_copies(runs, edges.digests), rows), rows)
    for _, labels in groupby(
        sorted({run.connectome.session for run in chain(*scans)}, key=without_zeros), without_zeros
    ):
        if len(spellings := list(labels)) > 1:
            raise DatasetError(
                f"{' and '.join(spellings)} are one session in two spellings: rename the files of one, or choose with "
                "--session-label."
            )
    if not scans:
        raise DatasetError(f"No scan is left: {rows[-1].participant_id}, {rows[-1].reason}.")
    places = [(scan[0].connectome.participant, scan[0].connectome.session) for scan in scans]
    missing = np.stack([edges.missing[[run.place for run in scan]].any(axis=0) for scan in scans])
    kept_scans, kept_parcels, left_out = choose_parcels(missing, places, edges.parcels)
    rows += left_out
    scans = list(compress(scans, kept_scans))
    parcels = tuple(compress(edges.parcels, kept_parcels))
    table = tabulate_scans(scans)
    scanned = sessions_of(zip(table["participant_id"], table["session"], strict=True))
    people = list(scanned)
    phenotypes = load_phenotypes(settings, scanned)
    columns = resolve_columns(phenotypes, people, settings.group)
    folds, about_folds = load_folds(settings.group, people)
    facts = read_parcel_facts(chosen[0].root, chosen[0], parcels)
    embeddings, embedding_facts, without_embedding, about_embeddings = read_embeddings(scans)
    series, about_series = series_of(scans, parcels)
    rows += without_embedding
    # People with scans but without phenotypes, and the other way round.
    in_tables, there = set(phenotypes.frame.index), set(people)
    asked = {f"sub-{label.removeprefix('sub-')}" for label in settings.inputs.participant_label}
    identified = "takes part in identification, not in prediction"
    lost = {
        f"in no phenotype table: {identified}": there - in_tables if in_tables else (),
        f"in no fold of --folds-file: {identified}": () if folds is None else there & in_tables - {*folds[PERSON_ID]},
        "in the phenotype tables, but no scan is left or was made": (in_tables & asked if asked else in_tables) - there,
        "named with --participant-label, but has no FC": asked - in_tables - {scan.participant for scan in chosen},
    }
    rows += [Exclusion(who, NO_SESSION, PERSON, reason) for reason, some in lost.items() for who in sorted(some)]
    rows += columns.rows
    if several := sum(len(scan) > 1 for scan in scans):
        notes.append(f"Scans of several runs: {several}; their series are put end to end.")
    repeated = zip(table["participant_id"].duplicated(keep=False), scans, strict=True)
    of_several = (run.quality for is_repeated, scan in repeated if is_repeated for run in scan)
    if not all(quality.volumes > 0 or quality.seconds > 0 for quality in of_several):
        notes.append("Of people with several scans the length of some is not known: all of theirs weigh the same.")
    notes += [*facts.notes, *about_folds, *about_series, *about_embeddings]
    notes += [*phenotypes.notes, *columns.notes, *describe_sets(settings.group)]
    return Cohort(
        scans=table,
        edges=assemble_edges(scans, edges, kept_parcels, settings),
        contents=tuple(tuple(edges.contents[run.place] for run in scan) for scan in scans),
        paths=tuple(tuple(run.connectome.path for run in scan) for scan in scans),
        parcels=parcels,
        all_parcels=edges.parcels,
        networks=facts.networks,
        centroids=facts.centroids,
        phenotypes=columns.frame,
        phenotypes_at=partial(_phenotypes_at, settings=settings, targets=columns.defaults)
        if phenotypes.by_session
        else None,
        excluded=pd.DataFrame(list(dict.fromkeys(rows)), columns=list(Exclusion._fields)),  # as the rules were applied
        embeddings=embeddings,
        embedding_facts=embedding_facts,
        series=series,
        repetition_times=tuple(scan[0].quality.repetition_time for scan in scans),
        targets=columns.defaults,
        notes=tuple(dict.fromkeys(notes)),
        folds=folds,
        atlas=chosen[0].atlas_name,
        reference=_read_reference(parcels, settings.group.tangent_reference),
        cleaning=cleaning_of(chosen),
        joined=count_people(phenotypes.frame.index, people)
        | {f"{WITH}{name}": int(columns.frame[name].notna().sum()) for name in columns.defaults},
    )


def _phenotypes_at(sessions: Mapping[str, Sequence[str]], settings: Settings, targets: Sequence[str]) -> pd.DataFrame:
    """The phenotypes of people where these are the sessions of their scans. Raises DatasetError."""
    frame = resolve_columns(load_phenotypes(settings, sessions), list(sessions), settings.group).frame
    by_default = [name for name in targets if name in frame and not settings.group.targets]
    # a default target of all scans stays one: a word of some of them is no number
    return frame.assign(**{name: pd.to_numeric(frame[name], errors="coerce") for name in by_default})


def _read_reference(parcels: Sequence[str], path: Path | None) -> FloatArray | None:
    """Edges (E,) of the matrix of ``tangent_reference``, among the parcels of the cohort. Raises DatasetError."""
    if path is None:
        return None
    try:
        matrix, names = read_matrix(path)
    except DatasetError as error:
        raise DatasetError(
            f"tangent_reference {path} is no table of a mean FC with the names of its parcels."
        ) from error
    if lacking := [name for name in parcels if name not in names]:
        raise DatasetError(
            f"tangent_reference {path} lacks {len(lacking)} parcels of this cohort ({', '.join(lacking[:3])}): give "
            "the mean FC of other people under the same atlas."
        )
    place = [names.index(name) for name in parcels]
    try:
        edges = vectorise_edges(correlations_from(matrix[np.ix_(place, place)]), weighted=False)
        if np.isnan(edges).any():
            raise Unfit("a parcel has no value")
        if not np.allclose(np.diag(matrix), 1):
            raise Unfit("its diagonal is not 1")
        return np.asarray(edges, dtype=float)
    except (Unfit, IndexError) as error:
        raise DatasetError(f"tangent_reference {path} is no mean of correlations: {error}.") from error


def check_phenotypes(settings: Settings, scanned: Scanned) -> None:
    """Read the phenotype tables, and refuse those that do not fit the people who are scanned. Raises DatasetError."""
    phenotypes = load_phenotypes(settings, scanned)
    count_people(phenotypes.frame.index, scanned)
    resolve_columns(phenotypes, scanned, settings.group)


def count_people(tables: Collection[str], people: Collection[str]) -> dict[str, int]:
    """Count the people with scans, in the tables, and in both. Raises DatasetError."""
    named = {str(name) for name in tables}
    matched = len(named & set(people))
    if named and matched < FEWEST_MATCHED * min(len(people), len(named)):
        raise DatasetError(
            f"{len(people)} people have scans and {len(named)} are in the phenotype tables, but only {matched} are in "
            f"both (scans such as {min(set(people) - named)}, tables such as {min(named - set(people))}). Correct "
            "the participant_id."
        )
    return {"scanned": len(people), "phenotypes": len(named), "matched": matched}


def describe_join(counts: Mapping[str, int]) -> str:
    """``172 people with scans, 172 in the phenotype tables, 72 in both, 70 of them with age``."""
    known = {name: n for name, n in counts.items() if name.startswith(WITH)}
    fewer = [f"{n} of them {name}" for name, n in known.items() if n < counts["matched"]]
    word = "person" if counts["scanned"] == 1 else "people"
    people = f"{counts['scanned']} {word} with scans, {counts['phenotypes']} in the phenotype tables"
    return ", ".join([people, f"{counts['matched']} in both", *([name_some(fewer, 3)] if fewer else [])])


def sessions_of(scans: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Sessions of everyone's scans, in the order of people and sessions."""
    sessions: dict[str, list[str]] = {}
    for person, session in sorted(set(scans), key=lambda scan: (scan[0], label_order(scan[1]))):
        sessions.setdefault(person, []).append(session)
    return sessions


def choose_recordings(settings: Settings) -> tuple[list[Run], list[Exclusion], list[str]]:
    """Recordings that take part, that the user asks for and that pass the limits, before any connectome is read.

    Phenotype tables that do not fit the people of these are refused. Raises DatasetError.
    """
    door = selected_of(settings)
    chosen, notes = choose_connectomes(door.connectomes, settings)
    # Of what is left out, that which would be in this cohort if it were not.
    # a run of which another space takes part is not left out; without a space it is of all
    taking_part = {(run.site, *drop(run.entities, ("space", "res", "den"))) for run in chosen}
    of_kind = {key: {connectome.entity(key) for connectome in chosen} for key in ("task", "space")}
    rows = [
        recording.row()
        for recording in would_take_part(door.left_out, settings)
        if recording.atlas_name in ("", chosen[0].atlas_name)
        and ("space" in recording.labels or (recording.site, *recording.entities) not in taking_part)
        and all(key not in recording.labels or recording.labels[key] in there for key, there in of_kind.items())
    ]
    rows += door.absent
    runs = [Run(connectome, read_quality(connectome)) for connectome in chosen]
    runs = leave_out(runs, [fault_of(run, settings) for run in runs], rows)
    if not runs:
        raise DatasetError(describe_nothing_left(rows, settings.output_dir))
    notes += check_alike([run.connectome for run in runs])
    check_phenotypes(settings, sessions_of((run.connectome.participant, run.connectome.session) for run in runs))
    return runs, rows, notes


# --- Folds that a user brings ---------------------------------------------------------------------------------------


ROLES = ("test", "train", "excluded")
KEYS = ["repeat", "fold"]


def load_folds(settings: Group, people: Collection[str]) -> tuple[pd.DataFrame | None, list[str]]:
    """Read ``--folds-file``. Raises DatasetError."""
    path = settings.folds_file
    if path is None:
        return None, []
    table = read_rows(path).fillna("")
    if table.empty:
        raise DatasetError(f"{path} has a header and no people. Give one row per person.")
    table[PERSON_ID] = table[PERSON_ID].replace(match_ids(table[PERSON_ID].drop_duplicates().tolist(), people))
    frame = table if "role" in table.columns else _splits(table, path)
    if lacking := [name for name in KEYS if name not in frame.columns]:
        raise DatasetError(f"{path} has roles but no column {lacking[0]}. Give repeat, fold, {PERSON_ID}, role.")
    frame["role"] = frame["role"].str.casefold()
    if len(wrong := frame.loc[~frame["role"].isin(ROLES), "role"]):
        raise DatasetError(f"{path} has the role '{wrong.iloc[0]}'. Roles are {', '.join(ROLES)}.")
    for rows, keys, fault in (
        (frame, [*KEYS, PERSON_ID], "names {} twice in one fold. Keep one row."),
        (frame[frame["role"] == "test"], ["repeat", PERSON_ID], "tests {} twice in one repeat; label each repeat."),
    ):
        if (twice := rows.duplicated(keys)).any():
            raise DatasetError(f"{path} {fault.format(rows[PERSON_ID][twice].iloc[0])}")
    absent = sorted(set(table[PERSON_ID]) - set(people))
    if len(absent) == table[PERSON_ID].nunique():
        raise DatasetError(
            f"{path} names no person with a scan here (it names {absent[0]}). Correct {PERSON_ID} there."
        )
    inner = pd.to_numeric(frame["inner_fold"], errors="coerce").fillna(-1) if "inner_fold" in frame.columns else -1
    frame = frame.assign(inner_fold=inner).astype({"inner_fold": int})[[*KEYS, PERSON_ID, "role", "inner_fold"]]
    if "role" in table.columns:
        frame = frame.sort_values(KEYS, kind="stable", key=_ranks)
    return frame, [f"{len(absent)} people of {path.name} have no scan here, such as {absent[0]}."] if absent else []


def _ranks(labels: pd.Series) -> pd.Series:
    """What labels are sorted by: fold 2 comes before fold 10."""
    return labels.map(lambda label: tuple(label_order(label)))


TESTED = "the fold that tests a person"


def _splits(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """A person by split table: each further column is a repeat and names the fold that tests the person."""
    long = table.melt(PERSON_ID, var_name="repeat", value_name=TESTED)
    long[TESTED] = long[TESTED].mask(long[TESTED].str.casefold() == "train", "train")
    long = long[long[TESTED] != ""]
    folds = long.loc[long[TESTED] != "train", ["repeat", TESTED]].drop_duplicates().rename(columns={TESTED: "fold"})
    if folds.empty:
        raise DatasetError(f"{path} has no column of folds other than 'train'. Add one per repeat, with the test fold.")
    places = {name: place for place, name in enumerate(table.columns)}  # repeats are in the order of their columns
    folds = folds.sort_values("fold", kind="stable", key=_ranks)
    folds = folds.sort_values("repeat", kind="stable", key=lambda name: name.map(places))
    frame = folds.merge(long, on="repeat")
    return frame.assign(role=np.where(frame["fold"] == frame[TESTED], "test", "train"))
