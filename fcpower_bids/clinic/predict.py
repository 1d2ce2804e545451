"""Saved models and written connectomes to tables of predictions: every scan has its row, whatever becomes of it."""

from __future__ import annotations

import glob
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import bdtr

from fcpower_bids.analyses.features import FC, FC_POWER
from fcpower_bids.clinic.fit import FinalModel, load_model, refuse_without_skill, scan_digest, telling_edges
from fcpower_bids.clinic.page import (
    DONE,
    ends_of,
    possible_classes,
    say_skill,
    say_trust,
    write_prediction_pages,
)
from fcpower_bids.cohort.feature_choice import ACQUISITION_KEYS, differences
from fcpower_bids.cohort.inclusion import (
    CAUTION,
    NO_SESSION,
    SOUND,
    UNUSABLE,
    Connectome,
    Exclusion,
    Quality,
    Run,
    name_some,
    read_quality,
)
from fcpower_bids.cohort.people import Source, load_people, tables_of
from fcpower_bids.cohort.recordings import describe_nothing_left, selected
from fcpower_bids.cohort.scans import group_scans, run_weights, tabulate_scans
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome import spectral_power
from fcpower_bids.core.data_checks import COPIED
from fcpower_bids.core.differences import SIGNIFICANT
from fcpower_bids.core.edges import vectorise_edges
from fcpower_bids.core.probe import predict_from_arrays
from fcpower_bids.errors import DatasetError, FcPowerError, RecordingError, Unfit
from fcpower_bids.inputs.roots import people_tables
from fcpower_bids.outputs.dataset import CONNECTIVITY
from fcpower_bids.outputs.status import explain, group_alike
from fcpower_bids.outputs.tables import read_connectome, read_json, write_json, write_table
from fcpower_bids.records import PLACE
from fcpower_bids.schema import TABLES
from fcpower_bids.store import known_digest

UNLIKE = -2.33
"""Similarity in standard deviations below which a scan is unlike the training scans: 1 of 100 of a normal law."""
ROUNDING = 1e-9
"""Of a sum of shares."""
REFUSED, BROKEN = "refused", "failed"
PREDICTED = TABLES["predicted/target-TARGET-REPRESENTATION"]
HIDDEN = ("Parcels", "Digests", "TrainingScans")
"""Facts of the model that are not repeated in the sidecar."""
COVERAGE, OF_PEOPLE = "Coverage", "PhenotypeTable"
"""Entry of the sidecar: how many known values lie in their intervals."""
KNOWN = "known"
"""The target, where the tables have it."""
Known = dict[str, dict[tuple[str, str], float]]
"""Age and the target, by person and session."""


# --- One scan -------------------------------------------------------------------------------------------------------


def apply_model(
    model: FinalModel,
    connectome: ArrayLike,
    parcels: Sequence[str],
    quality: Quality,
    age: float = math.nan,
    seen: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """Predict the target of one scan from its Pearson FC (P, P).

    `seen`: whether the model was fitted on this very connectome. Returns cells of its row in the unit of the target
    (two classes have a score between 0 and 1), and what is outside of the training, the gravest first. Raises Unfit.
    """
    facts, fc = model.facts, np.asarray(connectome, dtype=float)
    wanted, place = facts["Parcels"], {name: i for i, name in enumerate(parcels)}
    if all(map(PLACE.fullmatch, parcels)) and len(parcels) != facts["ParcelsOfScans"]:
        raise Unfit(
            f"Its {len(parcels)} parcels have no names, and those of the model were {facts['ParcelsOfScans']}: which "
            "are the same cannot be told. Give the parcels of both names, in a header or as 'parcels' of a .npz."
        )
    if unknown := [name for name in wanted if name not in place]:
        raise Unfit(f"The model needs {len(unknown)} parcels that are not in this atlas: {name_some(unknown)}.")
    order = [place[name] for name in wanted]
    fc = fc[np.ix_(order, order)]
    _refuse_uncovered(fc, wanted, wanted)
    matrix = spectral_power(fc, float(facts["Alpha"])) if facts["Representation"] == FC_POWER else fc
    if np.ptp(matrix[np.triu_indices(len(fc), 1)]) == 0:
        raise Unfit("All correlations of the scan are equal, so it says nothing; check the series.")
    predicted, likeness = predict_from_arrays(
        model.arrays, vectorise_edges(matrix, facts["Representation"] != FC)[None]
    )
    prediction, similarity = float(predicted[0, 0]), float(likeness[0])
    low, high = ends_of(prediction, facts)
    row: dict[str, Any] = {"prediction": prediction, "low": low, "high": high, "similarity": similarity}
    row["classes"] = " or ".join(possible_classes(prediction, facts))
    mean, sd = facts.get("Similarity") or (similarity, 1.0)
    far = (similarity - mean) / sd if sd > 0 else 0.0
    warnings = list(_warnings(quality, age, seen, far, prediction, facts))
    return row, warnings


def _refuse_uncovered(fc: FloatArray, parcels: Sequence[str], wanted: Collection[str]) -> None:
    values = zip(parcels, np.diag(fc), strict=True)
    if empty := [name for name, value in values if name in wanted and not np.isfinite(value)]:
        raise Unfit(
            f"{len(empty)} parcels of the model have no value in the scan, which does not cover them: "
            f"{name_some(empty)}."
        )


def _warnings(
    quality: Quality, age: float, seen: bool, far: float, prediction: float, facts: Mapping[str, Any]
) -> Iterator[str]:
    """Properties outside of the model's training, the gravest first; `far`: z of the similarity."""
    if seen:
        yield "the model was fitted on this very scan, so the prediction tests nothing"
    low, high = facts["AgeRange"] or (-math.inf, math.inf)
    if age < low or age > high:
        yield f"the person is {age:g} years old, the training people {low:g} to {high:g}: the interval does not hold"
    if (far if facts.get("Kernel") != "linear" else -far) < UNLIKE:
        yield "the scan is unlike those of the training people"
    for value, name, key, per, unit in (
        (quality.seconds, "series of", "SecondsRange", 60, "minutes"),
        (quality.repetition_time, "a repetition time of", "RepetitionTimeRange", 1, "s"),
        (quality.mean_fd, "mean motion of", "MeanFDRange", 1, "mm"),
    ):
        least, most = facts.get(key) or (-math.inf, math.inf)
        if value < least * 0.99 or value > most * 1.01:
            yield f"it has {name} {value / per:.3g} {unit}, the training scans {least / per:.3g} to {most / per:.3g}"
    least, most = facts["TargetRange"] if facts["PositiveClass"] is None else (-math.inf, math.inf)
    if not least <= prediction <= most:
        yield f"the prediction lies outside the values of '{facts['Target']}' that the model was trained on"


# --- All scans of a folder ------------------------------------------------------------------------------------------


class Predictions(NamedTuple):
    """Results of one model."""

    frame: pd.DataFrame  # `PREDICTED`
    path: Path  # where it was written
    facts: Mapping[str, Any]  # of the model
    broken: Sequence[str]  # why people have no page
    # of all rows whose value the tables have: how many, how many in their interval, whether so many can be
    coverage: Mapping[str, Any]
    notes: Sequence[str] = ()  # for a reader of the results


def predict_scans(
    path: Path,
    output_dir: Path,
    phenotypes: Path | None = None,
) -> Predictions:
    """Apply a model to every scan of its atlas in outputs of the participant level, and write the table.

    `phenotypes`: table with the age of the new people; else that of the dataset is taken where it is there. Raises
    DatasetError.
    """
    model = load_model(path)
    facts = model.facts
    refuse_without_skill(facts)  # earlier versions wrote such models
    scans, outside = _choose(facts, output_dir)
    sessions = [(runs[0].participant, runs[0].session) for runs in scans]
    notes = list[str]()
    people = read_people(output_dir, phenotypes, sessions, facts["Target"], facts["MissingValues"], notes)
    attempts = [row for runs in scans for row in _attempt(runs, model, output_dir, people)]
    rows = sorted([*attempts, *outside], key=lambda row: str(row["scan"]))
    frame = pd.DataFrame(rows, columns=list(PREDICTED.columns))
    name = path.name.removesuffix("_model")
    target = output_dir / "group" / "predicted" / f"{name}.tsv"
    sidecar = target.with_suffix(".json")
    with suppress(DatasetError):  # of a damaged one nothing is lost
        if sidecar.is_file() and read_json(sidecar).get("Salt") != facts["Salt"]:
            notes.append(f"{target.name} of another model is replaced: rename the folder of one model to keep both.")
    about = {key: value for key, value in facts.items() if key not in HIDDEN}
    coverage = _judge_coverage(frame, facts, people[KNOWN])
    write_table(target, frame, PREDICTED)
    of_run = {COVERAGE: coverage, OF_PEOPLE: phenotypes.name if phenotypes else ""}
    of_run = {key: value for key, value in of_run.items() if value}
    write_json(sidecar, {**PREDICTED.describe(), "Model": path.name, **about, **of_run})
    broken = write_prediction_pages(output_dir, name, frame, facts)[1]
    for page in output_dir.glob(f"sub-*_{glob.escape(name)}.html"):  # of people who are not there any more
        person, _, of = page.stem.partition("_")
        if of == name and person not in set(frame["participant_id"]):
            page.unlink()
    return Predictions(frame, target, facts, broken, coverage, notes)


def _choose(facts: Mapping[str, Any], output_dir: Path) -> tuple[list[list[Connectome]], list[dict[str, Any]]]:
    """Connectomes for the model, those of the runs of a scan together; a row of each that does not take part."""
    door, atlases = selected(output_dir), facts["Preprocessing"]["atlas"]
    fitting = [scan for scan in door.connectomes if scan.atlas_name in atlases]
    if door.connectomes and not fitting:
        raise DatasetError(
            f"None of the {len(door.connectomes)} connectomes in {output_dir} is of the atlas of the model, "
            f"{', '.join(atlases)}. Run the participant level with that atlas, in an output folder of its own."
        )
    rows = [
        _refused(scan.recording, scan.participant, scan.session, scan.why) | {"quality": UNUSABLE}
        for scan in door.left_out
        if scan.atlas_name in ("", *atlases)
    ]
    if not fitting and not rows:
        raise DatasetError(describe_nothing_left((), output_dir))
    scans: dict[Hashable, list[Connectome]] = {}
    for connectome in fitting:  # runs of one session and one version of its acquisitions, such as a space
        version = tuple(pair for pair in connectome.entities if pair[0] not in ACQUISITION_KEYS)
        scans.setdefault((connectome.participant, connectome.session, version), []).append(connectome)
    for place, runs in scans.items():  # of several tasks those of the model alone make the scan
        known = [run for run in runs if (run.entity("task") or "not stated") in facts["Preprocessing"].get("task", ())]
        scans[place] = known or runs
        for run in (run for run in runs if known and run not in known):
            reason = (
                f"Its task is {run.entity('task')}, and the model is of {' and '.join(facts['Preprocessing']['task'])}."
            )
            rows.append(_refused(run.recording, run.participant, run.session, reason))
    return list(scans.values()), rows


def _refused(scan: str, person: str, session: str, reason: str, state: str = REFUSED) -> dict[str, Any]:
    return {"scan": scan, "participant_id": person, "session": session, "state": state, "reason": reason}


def _attempt(runs: Sequence[Connectome], model: FinalModel, output_dir: Path, people: Known) -> list[dict[str, Any]]:
    """Predict one scan, its runs put end to end: its row, and one of each run that cannot be used."""
    person, session = runs[0].participant, runs[0].session
    names = [run.beside(CONNECTIVITY).stem.removesuffix("_relmat") for run in runs]
    rows, read, facts = list[dict[str, Any]](), list[tuple[Run, FloatArray]](), list[dict[str, Any]]()

    def failed(name: str, error: Exception) -> dict[str, Any]:
        if isinstance(error, (FcPowerError, OSError)):
            return _refused(name, person, session, str(error))
        return _refused(name, person, session, explain(error, output_dir, f"predict_{name}"), BROKEN)

    for name, run in zip(names, runs, strict=True):
        known: dict[str, Any] = {}
        try:
            quality = read_quality(run)
            known |= {"sha256": known_digest(run.path), "cautions": quality.cautions}
            if same := next((other for other in facts if other["sha256"] == known["sha256"]), None):
                raise RecordingError(f"{COPIED[0].upper()}{COPIED[1:]} {'_'.join(same['parts'])}; only that is used.")
            grave, known["differences"] = differences(run, model.facts["Preprocessing"])
            if grave:
                raise RecordingError(
                    f"It was made otherwise than the scans of the model: {'; '.join(grave)}. Run the participant level "
                    "as for the model."
                )
            if quality.fault:
                raise RecordingError(f"{quality.fault[0].upper()}{quality.fault[1:]}.")
            matrix, parcels = read_connectome(run.path)
            _refuse_uncovered(matrix, parcels, set(model.facts["Parcels"]))
            telling = telling_edges(matrix, parcels, model.facts["Parcels"])
            known["seen"] = scan_digest(model.facts["Salt"], telling) in model.facts["TrainingScans"]
        except Exception as error:  # what is wrong with it is no business of the others
            rows.append(_known_of([known]) | failed(name, error))
        else:
            read.append((Run(run, quality, len(read)), matrix))
            facts.append(known | {"parts": name.split("_")})
    if not read:
        return rows
    row = _known_of(facts)
    name = "_".join(part for part in facts[0]["parts"] if all(part in known["parts"] for known in facts))
    seen = any(known["seen"] for known in facts)
    try:
        scans = group_scans([run for run, _ in read], left_out := list[Exclusion]())
        if left_out:
            raise RecordingError(f"{left_out[0].reason[0].upper()}{left_out[0].reason[1:]}.")
        whole = tabulate_scans(scans).iloc[0]
        quality = Quality(whole["seconds"], whole["volumes"], whole["mean_fd"], whole["degrees_of_freedom"])
        matrix = np.tensordot(run_weights(scans[0]), [matrix for _, matrix in read], 1)
        age = people["age"].get((person, session), math.nan)
        applied, warnings = apply_model(model, matrix, parcels, quality, age, seen)
    except Exception as error:
        return [*rows, row | failed(name, error)]
    row |= _refused(name, person, session, "", DONE) | applied
    row |= {"warning": f"Treat with caution: {'; '.join(warnings)}." if warnings else "", "inside_range": not warnings}
    row |= {"in_training": seen, "minutes": quality.seconds / 60, "mean_fd": quality.mean_fd}
    return [*rows, row]


def _known_of(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is known of the runs of a scan before it is predicted, as cells of its row."""
    row = {"sha256": " ".join(known["sha256"] for known in runs if "sha256" in known)}
    row["differences"] = "; ".join(dict.fromkeys(text for known in runs for text in known.get("differences", ())))
    measured = [known["cautions"] for known in runs if known.get("cautions") is not None]
    if measured:
        cautions = dict.fromkeys(sentence for sentences in measured for sentence in sentences)
        row |= {"quality": CAUTION if cautions else SOUND, "cautions": " ".join(cautions)}
    return row


# --- What is known of the people ------------------------------------------------------------------------------------


def read_people(
    output_dir: Path,
    phenotypes: Path | None,
    scans: Collection[tuple[str, str]],
    target: str,
    missing_values: Sequence[str],
    notes: list[str],
) -> Known:
    """Return ``age`` and the target at each scan (person, session), as far as known. Raises DatasetError."""
    known: Known = {"age": {}, KNOWN: {}}
    if not scans:
        return known
    datasets = dict.fromkeys(path.parent for path in people_tables(output_dir, notes))
    tables = [(list(map(Source, tables_of(dataset))), [("", dataset)]) for dataset in datasets]
    tables += [([Source(phenotypes, is_given=True)], [])] if phenotypes is not None else []
    names: dict[str, None] = {}
    for sources, whose in tables:
        names = {}  # of the last, which is that of the user where one is given
        for session in {session: None for _, session in scans}:
            scanned = {person: (session,) for person, other in scans if other == session}
            people = load_people(sources, scanned, whose, missing_values)
            names |= dict.fromkeys(map(str, people.frame.columns))
            table = people.frame.drop(columns=[name for name in people.conflicts if name in people.frame])
            table = table.loc[[person for person in table.index if person in scanned]]
            unknown, columns = pd.Series(np.nan, table.index), {str(name).lower(): table[name] for name in table}
            notes += [why for name, why in people.conflicts.items() if name == target or name.casefold() == "age"]
            for key, values in (("age", columns.get("age", unknown)), (KNOWN, table.get(target, unknown))):
                numbers = pd.to_numeric(values, errors="coerce").dropna()
                words = values.dropna().drop(index=numbers.index)
                if key == "age" and len(words):
                    notes.append(f"The age of {words.index[0]} is '{words.iloc[0]}', no number: it is not compared.")
                known[key] |= {
                    (str(who), session): float(value) for who, value in numbers.items() if np.isfinite(value)
                }
    notes[:] = dict.fromkeys(notes)  # each session may have said it
    if phenotypes is not None and "age" not in map(str.lower, names):
        raise DatasetError(f"{phenotypes} has no column 'age'. Columns: {', '.join(names)}.")
    if phenotypes is not None and not any(scan in known["age"] for scan in scans):
        raise DatasetError(
            f"{phenotypes} has no number in its one column 'age' for a person of {output_dir}, such as "
            f"{min(person for person, _ in scans)}. Correct it, or leave the table out."
        )
    return known


def _judge_coverage(
    frame: pd.DataFrame, facts: Mapping[str, Any], values: Mapping[tuple[str, str], float]
) -> dict[str, Any]:
    """Hold the intervals of all rows against the values that the tables have; empty where there are none."""
    if facts["PositiveClass"] is not None or facts["Covariates"] or facts["CompositeOf"]:
        return {}
    rows = frame[(frame["state"] == DONE) & ~frame["in_training"].astype(str).str.lower().eq("true")]
    scans = list(zip(rows["participant_id"].astype(str), rows["session"].fillna(NO_SESSION).astype(str), strict=True))
    known = pd.Series([values.get(scan, math.nan) for scan in scans], index=rows.index, dtype=float)
    rows = rows[known.notna()]
    if rows.empty:
        return {}
    inside = (rows["low"] <= known[rows.index]) & (known[rows.index] <= rows["high"])
    shares = inside.groupby(rows["participant_id"]).mean()  # scans of one person are right or wrong together
    chance = float(bdtr(int(shares.sum() + ROUNDING), len(shares), facts["Interval"]["NominalCoverage"]))
    return {"Known": len(rows), "Inside": int(inside.sum()), "Holds": bool(chance >= SIGNIFICANT)}


# --- What is said ---------------------------------------------------------------------------------------------------


def say_predictions(predictions: Predictions, say: Callable[[str], None]) -> None:
    """Print notes for a reader, warnings before results; what holds of all scans is said once."""
    facts, frame = predictions.facts, predictions.frame
    say(f"{say_skill(facts)}.")
    for note in predictions.notes:
        say(note)
    noted: list[tuple[str, str]] = []
    for row in frame.itertuples():
        warning = [str(row.warning)] if row.warning else []
        notes = [f"not predicted. {row.reason!s}"] if row.state != DONE else warning
        notes += [f"the scan itself calls for caution. {row.cautions!s}"] if row.quality == CAUTION else []
        noted += [(str(row.scan), note) for note in notes]
    for (scan, note), *others in group_alike(noted, itemgetter(1)):
        say(f"{f'{1 + len(others)} scans, the first is ' * bool(others)}{scan}: {note}")
    done = int((frame["state"] == DONE).sum())
    say(say_trust(facts))
    if coverage := predictions.coverage:
        known = f"{coverage['Known']} scans with a known {facts['Target']}"
        sentence = f"{coverage['Inside']} of {known} lie in their intervals"
        say(f"{sentence}{'.' if coverage['Holds'] else ': here the intervals do not hold.'}")
    say(
        f"{done} of {len(frame)} scans predicted: {predictions.path}. Research use only: a prediction is not a "
        "diagnosis. Not a medical device."
    )
