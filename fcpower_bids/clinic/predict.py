"""Saved models and written connectomes to tables of predictions: every scan has its row, whatever becomes of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import bdtr

from fcpower_bids.clinic.applying import NewScan, apply_model
from fcpower_bids.clinic.fit import REFERENCE, SEX, UNUSUAL, FinalModel, is_female
from fcpower_bids.clinic.folder import load_model, say_signed, scan_digest, telling_edges
from fcpower_bids.clinic.page import write_prediction_pages
from fcpower_bids.clinic.skill import SIGNIFICANT, refuse_without_skill, say_in_full, say_skill
from fcpower_bids.cohort.features import NO_SESSION, Connectome
from fcpower_bids.cohort.inclusion import CAUTION, SOUND, UNUSABLE, cautions_of, read_quality
from fcpower_bids.cohort.people import Source, load_people, tables_of
from fcpower_bids.cohort.preprocessing import differences, repetition_time
from fcpower_bids.cohort.recordings import describe_nothing_left, selected
from fcpower_bids.errors import DatasetError, FcPowerError, RecordingError
from fcpower_bids.inputs.discover import label_remedy
from fcpower_bids.inputs.roots import people_tables
from fcpower_bids.outputs.status import explain, group_alike
from fcpower_bids.outputs.tables import plain, read_json, read_series, read_table, write_declared, write_json
from fcpower_bids.schema import TABLES
from fcpower_bids.store import known_digest

KNOWN = "known"
"""The target, where the tables have it."""
Scans = Collection[tuple[str, str]]
"""Person and session."""


def read_people(
    output_dir: Path, phenotypes: Path | None, scans: Scans, target: str = ""
) -> dict[str, dict[tuple[str, str], float]]:
    """Return ``age``, ``female`` and the target at each scan, as far as they are known. Raises DatasetError."""
    found: dict[str, dict[tuple[str, str], float]] = {"age": {}, "female": {}, KNOWN: {}}
    if not scans:
        return found
    for dataset in dict.fromkeys(path.parent for path in people_tables(output_dir)):
        _add(found, tables_of(dataset), scans, target, dataset)
    if phenotypes is not None:
        names = _add(found, [Source(phenotypes, is_given=True)], scans, target)
        if "age" not in map(str.lower, names):
            raise DatasetError(f"{phenotypes} has no column 'age'. Columns: {', '.join(names)}.")
        if not any(scan in found["age"] for scan in scans):
            raise DatasetError(f"{phenotypes} has no number in its column 'age'. Correct it, or leave the table out.")
    return found


def _add(
    found: dict[str, dict[tuple[str, str], float]],
    sources: Sequence[Source],
    scans: Scans,
    target: str,
    dataset: Path | None = None,
) -> list[str]:
    """Add what tables say of the scans, and return their columns; no number is guessed to be a code: some are 77."""
    names: dict[str, None] = {}
    for session in {session: None for _, session in scans}:
        scanned = {person: (session,) for person, other in scans if other == session}
        people = load_people(sources, scanned, dataset, guess_codes=False)
        names |= dict.fromkeys(map(str, people.frame.columns))
        table = people.frame.drop(columns=[name for name in people.conflicts if name in people.frame])
        table = table.loc[[person for person in table.index if person in scanned]]
        values_of = {"age": _find(table, ("age",)), "female": is_female(_find(table, SEX))}
        values_of[KNOWN] = table[target] if target in table else pd.Series(np.nan, table.index)
        for key, values in values_of.items():
            numbers = pd.to_numeric(values, errors="coerce")
            found[key] |= {(str(who), session): float(value) for who, value in numbers.items() if np.isfinite(value)}
    return list(names)


def _find(table: pd.DataFrame, names: tuple[str, ...]) -> pd.Series:
    """The first column of one of these names in any case; of missing values where there is none."""
    columns = {str(column).lower(): table[column] for column in table.columns}
    return next((columns[name] for name in names if name in columns), pd.Series(np.nan, table.index))


COVERAGE = "Coverage"
"""Entry of the sidecar: how many known values lie in their intervals."""
COMPARED = "compared"
"""Rows of a scan in `UNUSUAL`, in addition to its own columns."""
DONE, REFUSED, BROKEN = "predicted", "refused", "failed"
WITHOUT_SCANS = "It has no connectome of the atlas here. Run the participant level, or correct --participant-label."

PREDICTED = TABLES["predicted/target-TARGET-REPRESENTATION"]


@dataclass(frozen=True)
class Request:
    """Request of a user besides the model."""

    output_dir: Path  # of the participant level
    participants: tuple[str, ...] = ()  # labels; all where empty
    # table with the age of the new people, and their sex; else that of the dataset is taken where it is there
    phenotypes: Path | None = None
    accept_no_skill: bool = False  # whether to use a model that does no better than a guess
    # from a person to what was asked in words, for the foot of their page
    command: Callable[[str], str] = lambda person: ""


@dataclass(frozen=True)
class Predictions:
    """Results of one model."""

    frame: pd.DataFrame  # `PREDICTED`
    path: Path  # where it was written
    facts: Mapping[str, Any]  # of the model
    broken: tuple[str, ...] = ()  # why people have no page
    # of all rows whose value the tables have: how many, how many in their interval, whether so many can be
    coverage: Mapping[str, Any] = field(default_factory=dict)


def predict_scans(path: Path, request: Request) -> Predictions:
    """Apply a model to every scan of its atlas in a folder and write the table. Raises DatasetError."""
    arrays, card, (reference,) = load_model(path, (REFERENCE,))
    model = FinalModel(arrays, card, reference)
    refuse_without_skill(model.facts, request.accept_no_skill)
    scans, outside = _choose(model.facts, request)
    people = read_people(request.output_dir, request.phenotypes, [(one.participant, one.session) for one in scans])
    rows = [_attempt(one, model, request, people) for one in scans]
    compared = pd.DataFrame(
        [{"scan": row["scan"], **each} for row in rows for each in row.pop(COMPARED, [])], columns=list(UNUSUAL.columns)
    )
    rows = sorted(rows + outside, key=lambda row: str(row["scan"]))
    frame = pd.DataFrame(rows, columns=list(PREDICTED.columns))
    name = path.name.removesuffix("_model")
    target = request.output_dir / "group" / "predicted" / f"{name}.tsv"
    beside = target.with_name(f"{target.stem}_reference.tsv")
    hidden = ("Parcels", "Networks", "Digests", "TrainingScans")
    about = {key: value for key, value in model.facts.items() if key not in hidden}
    about = json.loads(json.dumps(plain({**PREDICTED.describe(), "Model": path.name, **about})))
    sidecar = target.with_suffix(".json")
    before = read_json(sidecar) if sidecar.is_file() else {}
    before.pop(COVERAGE, None)
    merged, references = frame, compared
    if before == about and request.participants:  # who was predicted before, and is not asked for now
        earlier, asked = read_table(target), {f"sub-{label}" for label in request.participants}
        kept = earlier[~earlier["participant_id"].astype(str).isin(asked)]
        merged = pd.concat([kept, frame] if len(kept) else [frame], ignore_index=True)
        merged = merged.sort_values("scan", kind="stable", ignore_index=True)
        others = read_table(beside)
        others = others[others["scan"].isin(kept["scan"])]
        references = pd.concat([others, compared] if len(others) else [compared], ignore_index=True)
    coverage = _judge_coverage(merged, model.facts, request)
    write_declared(target, merged, PREDICTED)
    write_declared(beside, references, UNUSUAL)
    write_json(beside.with_suffix(".json"), UNUSUAL.describe())
    write_json(sidecar, about | ({COVERAGE: coverage} if coverage else {}))
    _, broken = write_prediction_pages(request.output_dir, name, frame, compared, model.facts, request.command)
    return Predictions(frame, target, model.facts, tuple(broken), coverage)


def _judge_coverage(frame: pd.DataFrame, facts: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """Hold the intervals of all rows against the values that the tables have; empty where there are none."""
    if facts["PositiveClass"] is not None or facts["Covariates"] or facts["CompositeOf"]:
        return {}
    rows = frame[(frame["state"] == DONE) & ~frame["in_training"].astype(str).str.lower().eq("true")]
    if rows.empty:
        return {}
    scans = list(zip(rows["participant_id"].astype(str), rows["session"].fillna(NO_SESSION).astype(str), strict=True))
    values = read_people(request.output_dir, request.phenotypes, scans, facts["Target"])[KNOWN]
    known = pd.Series([values.get(scan, math.nan) for scan in scans], index=rows.index, dtype=float)
    rows = rows[known.notna()]
    if rows.empty:
        return {}
    inside = int(((rows["low"] <= known[rows.index]) & (known[rows.index] <= rows["high"])).sum())
    chance = float(bdtr(inside, len(rows), facts["Interval"]["NominalCoverage"]))
    return {"Known": len(rows), "Inside": inside, "Holds": bool(chance >= SIGNIFICANT)}


def _choose(facts: Mapping[str, Any], request: Request) -> tuple[list[Connectome], list[dict[str, Any]]]:
    """Connectomes for the model, and a row for each recording that does not take part."""
    wanted = {f"sub-{label.removeprefix('sub-')}" for label in request.participants}
    door, atlases = selected(request.output_dir), facts["Preprocessing"]["atlas"]
    there = [one for one in door.connectomes if not wanted or one.participant in wanted]
    fitting = [one for one in there if one.atlas_name in atlases]
    if there and not fitting:
        raise DatasetError(
            f"None of the {len(there)} connectomes in {request.output_dir} is of the atlas of the model, "
            f"{', '.join(atlases)}. Run the participant level with that atlas."
        )
    rows = [
        _refused(one.recording, one.participant, one.session, one.why) | {"quality": UNUSABLE}
        for one in door.left_out
        if one.atlas in ("", *atlases) and (not wanted or one.participant in wanted)
    ]
    if not door.people:
        raise DatasetError(describe_nothing_left((), request.output_dir))
    known = {*(one.participant for one in fitting), *(row["participant_id"] for row in rows)}
    if not there and not rows:
        label, labels = min(wanted).removeprefix("sub-"), {person.removeprefix("sub-") for person in door.people}
        raise DatasetError(
            f"There are no connectomes of sub-{label} in {request.output_dir}: {label_remedy(label, labels)}"
        )
    rows += [_refused(person, person, NO_SESSION, WITHOUT_SCANS) for person in sorted(wanted - known)]
    return fitting, rows


def _refused(scan: str, person: str, session: str, reason: str, state: str = REFUSED) -> dict[str, Any]:
    return {"scan": scan, "participant_id": person, "session": session, "state": state, "reason": reason}


def _attempt(
    one: Connectome,
    model: FinalModel,
    request: Request,
    people: Mapping[str, Mapping[tuple[str, str], float]],
) -> dict[str, Any]:
    """Predict one scan; what is wrong with it is its row, and no business of the others."""
    scan = one.path.stem.removesuffix("_relmat")
    judged: dict[str, str] = {}
    try:
        judged = {"sha256": known_digest(one.path)}
        if (said := cautions_of(one)) is not None:
            judged |= {"quality": CAUTION if said else SOUND, "cautions": " ".join(said)}
        return judged | _predict(scan, one, model, request, people)
    except (FcPowerError, OSError) as error:
        return judged | _refused(scan, one.participant, one.session, str(error))
    except Exception as error:
        reason = explain(error, request.output_dir, f"predict_{scan}")
        return judged | _refused(scan, one.participant, one.session, reason, BROKEN)


def _predict(
    scan: str,
    one: Connectome,
    model: FinalModel,
    request: Request,
    people: Mapping[str, Mapping[tuple[str, str], float]],
) -> dict[str, Any]:
    grave, named = differences(one, model.facts["Preprocessing"])
    if grave:
        raise RecordingError(
            f"It was made otherwise than the scans of the model: {'; '.join(grave)}. Run the participant level as for "
            "the model."
        )
    quality = read_quality(one)
    if quality.fault:
        raise RecordingError(f"{quality.fault[0].upper()}{quality.fault[1:]}.")
    matrix, parcels = read_series(one.path)
    if matrix.shape != (len(parcels), len(parcels)):
        raise RecordingError(f"{one.path} is no square matrix: it is damaged. Make it again.")
    seen = scan_digest(model.facts["Salt"], telling_edges(matrix)) in model.facts["TrainingScans"]
    about = NewScan(
        quality.seconds,
        quality.mean_fd,
        quality.degrees_of_freedom,
        repetition_time(one),
        people["age"].get((one.participant, one.session), math.nan),
        people["female"].get((one.participant, one.session), math.nan),
        seen,
    )
    found = apply_model(model, matrix, parcels, about)
    alarm = "" if model.facts["Skill"]["Found"] else f"{say_skill(model.facts)} "
    warning = f"Treat with caution: {'; '.join(found.warnings)}." if found.warnings else ""
    return {
        "scan": scan,
        "participant_id": one.participant,
        "session": one.session,
        "state": DONE,
        "warning": f"{alarm}{warning}".rstrip(),
        "reason": "",
        **{key: getattr(found, key) for key in ("prediction", "low", "high", "similarity")},
        "classes": " or ".join(found.classes),
        "inside_range": not found.warnings,
        "in_training": seen,
        "minutes": quality.seconds / 60,
        "mean_fd": quality.mean_fd,
        "differences": "; ".join(named),
        COMPARED: list(found.compared),
    }


def say_predictions(found: Predictions, say: Callable[[str], None]) -> None:
    """Print notes for a reader, warnings before results."""
    say(f"{say_in_full(found.facts)}. {say_signed(found.facts)}")
    noted = [(str(row.scan), note) for row in found.frame.itertuples() for note in _notes(row, found.facts)]
    for (scan, note), *others in group_alike(noted, itemgetter(1)):
        say(f"{f'{1 + len(others)} scans, the first is ' * bool(others)}{scan}: {note}")
    interval, done = found.facts["Interval"], int((found.frame["state"] == DONE).sum())
    if found.facts["PositiveClass"] is None:
        say(
            f"Intervals of +/-{interval['Radius']:.3g} hold for {interval['HoldsFor']}, in "
            f"{100 * interval['NominalCoverage']:.0f} of 100 cases (measured on what was held out: "
            f"{100 * interval['MeasuredCoverage']:.0f} of 100)."
        )
    if coverage := found.coverage:
        known = f"{coverage['Known']} scans with a known {found.facts['Target']}"
        said = f"{coverage['Inside']} of {known} lie in their intervals"
        say(f"{said}{'.' if coverage['Holds'] else ': here the intervals do not hold.'}")
    say(
        f"{done} of {len(found.frame)} scans predicted: {found.path}. Research use only: a prediction is not a "
        "diagnosis. Not a medical device."
    )


def _notes(row: Any, facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is to be said of one scan; what is said once for all scans is not said again."""
    warning = str(row.warning or "").removeprefix(say_skill(facts)).strip()
    if row.state != DONE:
        yield f"not predicted. {row.reason!s}"
    elif warning:
        yield warning
    if row.quality == CAUTION:
        yield f"the scan itself calls for caution. {row.cautions!s}"
