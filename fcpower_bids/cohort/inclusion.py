"""Who and what stays in the cohort, and why not: status, quality, the user's list, duplicates, missing parcels."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.cohort.features import NO_SESSION, Connectome
from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.spreadsheets import MISSING
from fcpower_bids.outputs.names import QUALITY, TIMESERIES, short_name
from fcpower_bids.outputs.tables import is_cut_short, series_file
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Group, Settings

RECORDING, PERSON, PARCEL, VALUE, TARGET = "recording", "person", "parcel", "value", "target"
FEWEST_PARCELS = 3
FIGURES = {
    "seconds_kept": "SecondsUsed",
    "kept_volumes": "NumberOfVolumesUsed",
    "mean_fd": "",
    "degrees_of_freedom": "EffectiveDegreesOfFreedom",
}
"""Columns of the quality table, and what the sidecar of the FC calls the same, if it has it."""
SOUND, CAUTION, UNUSABLE = "ok", "caution", "stop"
"""Verdicts on a scan."""
MANY_CENSORED = 0.3
"""Share of censored volumes above which a recording gets a caution."""
LOW_DICE = 0.8
"""Dice coefficient of mask and template below which a recording gets a caution: fMRIPrep's masks have .9 or more."""
FEW_DEGREES = 20
"""Effective degrees of freedom below which a correlation is so uncertain that a recording gets a caution."""
JUDGED = ("censored_volumes", "volumes", "dummy_volumes", "degrees_of_freedom")
WITHOUT_VALUE = ("UncoveredNodes", "FlatNodes", "StrayNodes")
"""Entries of sidecars that name parcels without a value: not covered, without any variance, or no signal."""
MOST_NAMED = 8
REMEDY = "remove the file and run the participant level again"
DIALECT: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}


EXCLUDED_TABLE = TABLES["excluded"]


class Exclusion(NamedTuple):
    """One row of ``excluded.tsv``."""

    participant_id: str
    session: str
    what: str
    reason: str


@dataclass(frozen=True)
class Quality:
    """Figures of one recording, NaN where unknown; its unreadable files."""

    seconds: float
    volumes: float
    mean_fd: float
    degrees_of_freedom: float
    fault: str = ""

    @property
    def repetition_time(self) -> float:
        """Seconds between volumes; the quotient is exact to rounding, so the last digits are dropped."""
        return round(self.seconds / self.volumes, 9) if self.volumes > 0 else math.nan


def read_quality(connectome: Connectome) -> Quality:
    """Read the quality of a recording from its table, and where that is missing from the sidecar of the FC."""
    try:
        row, facts = quality_row(connectome), connectome.facts
        if row and not facts:  # a table alone is of ours, and says nothing of how the FC was made
            raise DatasetError(
                f"{connectome.path.with_suffix('.json').name} is missing; run the participant level again."
            )
    except DatasetError as error:
        fault = str(error).replace(f"{connectome.path.parent}{os.sep}", "").removesuffix(".")
        return Quality(math.nan, math.nan, math.nan, math.nan, fault=fault)
    figures = {column: row[column] if column in row else facts.get(fact) for column, fact in FIGURES.items()}
    known = {column: value for column, value in figures.items() if value is not None and value not in MISSING}
    strange = [column for column, value in known.items() if not math.isfinite(number_of(value))]
    fault = ""
    if strange:
        name = connectome.beside(QUALITY).name if strange[0] in row else connectome.path.with_suffix(".json").name
        fault = f"{name} has '{figures[strange[0]]}' for {strange[0]}, which is no number; {REMEDY}"
    seconds, volumes, mean_fd, degrees_of_freedom = map(number_of, figures.values())
    return Quality(seconds, volumes, mean_fd, degrees_of_freedom, fault)


def quality_row(connectome: Connectome) -> dict[str, str]:
    """The row of the atlas, empty where there is no table; read without pandas, for speed. Raises DatasetError."""
    path = connectome.beside(QUALITY)
    if not path.is_file() and not os.path.lexists(path):
        return {}
    try:
        if not path.is_file():
            raise OSError("a folder, a pipe or a link that leads to no file")
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, **DIALECT))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path} cannot be read ({error}): {REMEDY}.") from error
    if not rows or any(None in row or None in row.values() for row in rows):
        raise DatasetError(f"{path} is cut short: {REMEDY}.")
    return next((row for row in rows if row.get("atlas") == connectome.atlas_name), {})


def number_of(text: Any) -> float:
    """The number that a text is, else NaN."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return math.nan


def find_cautions(
    uncovered: Mapping[str, Sequence[str]], quality: Mapping[str, Any], notes: Sequence[str]
) -> list[str]:
    """Say what calls for caution with a recording: the one verdict for its page, the index, the cohort and models.

    ``uncovered`` names the parcels without a value under each atlas, ``quality`` is a row of the quality table, empty
    where there is none, ``notes`` are those of its cleaning.
    """
    cautions = [
        f"{len(parcels)} of the parcels of {short_name(atlas)} without a value: {', '.join(parcels[:MOST_NAMED])}"
        + (f" and {len(parcels) - MOST_NAMED} more." if len(parcels) > MOST_NAMED else ".")
        for atlas, parcels in uncovered.items()
        if parcels
    ]
    if quality:
        share = quality["censored_volumes"] / max(quality["volumes"] - quality["dummy_volumes"], 1)
        if share > MANY_CENSORED:
            cautions.append(f"{100 * share:.0f} % of the volumes were censored because of motion.")
        if quality["degrees_of_freedom"] < FEW_DEGREES:
            cautions.append(f"Only {quality['degrees_of_freedom']:.0f} degrees of freedom are left; FC is uncertain.")
        if quality["mask_dice"] < LOW_DICE:
            cautions.append(
                f"The brain mask and the template overlap little (Dice coefficient {quality['mask_dice']:.2f}): look "
                "at the outlines on its page; the registration may have failed, or much of the brain was not scanned."
            )
    return [*cautions, *notes]


def cautions_of(connectome: Connectome) -> list[str] | None:
    """Say what calls for caution with the scan of an FC; None where nothing was measured. Raises DatasetError."""
    row, facts = quality_row(connectome), connectome.facts
    if not row and "Notes" not in facts:
        return None
    name, numbers = connectome.beside(QUALITY).name, dict[str, float]()
    for key in JUDGED if row else ():
        if key not in row:
            raise DatasetError(f"{name} lacks the column {key}: run the participant level again.")
        try:
            numbers[key] = math.nan if row[key] in MISSING else float(row[key])
        except ValueError:
            raise DatasetError(
                f"{name} has '{row[key]}' for {key}, which is no number: run the participant level again."
            ) from None
    if row:
        numbers["mask_dice"] = number_of(row.get("mask_dice"))  # of scans alone that are in the template's space
    empty = [str(node) for key in WITHOUT_VALUE for node in facts.get(key, [])]
    return find_cautions({connectome.atlas_name: empty}, numbers, [str(note) for note in facts.get("Notes", [])])


def bare(label: str, key: str) -> str:
    """Return a label without its key, a run without leading zeros."""
    text = str(label).removeprefix(f"{key}-")
    return text.lstrip("0") or text if key == "run" else text


def exclude_by_quality(
    connectomes: Sequence[Connectome], quality: Sequence[Quality], settings: Settings
) -> tuple[list[bool], list[Exclusion]]:
    """Say which recordings have whole files and pass ``min_time`` and ``max_mean_fd``, and why the others do not."""

    def fault(connectome: Connectome, its: Quality) -> str:
        limit = settings.group.max_mean_fd
        if its.fault:
            return its.fault
        if its.seconds < settings.method.min_time:
            return f"{its.seconds:.0f} s are left, less than --min-time {settings.method.min_time:g} s"
        if limit is not None and math.isnan(its.mean_fd):
            return "its mean framewise displacement is not known, and --max-mean-fd asks for it"
        if limit is not None and its.mean_fd > limit:
            return f"mean framewise displacement {its.mean_fd:.3f} mm, more than --max-mean-fd {limit:g} mm"
        path = series_file(
            connectome.beside(TIMESERIES)
        )  # one that is not there only keeps analyses of scan length from all
        try:
            return f"{path.name} is cut short: {REMEDY}" if path.is_file() and is_cut_short(path) else ""
        except OSError as error:
            return f"{path.name} cannot be read ({error.strerror}): {REMEDY}"

    return exclude(connectomes, list(map(fault, connectomes, quality)))


def exclude(connectomes: Sequence[Connectome], reasons: Sequence[str]) -> tuple[list[bool], list[Exclusion]]:
    """Say which recordings have no reason to be left out, and give a row for each of the others."""
    rows = [
        Exclusion(connectome.participant, connectome.session, RECORDING, f"{connectome.recording}: {reason}")
        for connectome, reason in zip(connectomes, reasons, strict=True)
        if reason
    ]
    return [not reason for reason in reasons], rows


def choose_parcels(
    missing: NDArray[np.bool_], scans: Sequence[tuple[str, str]], parcels: Sequence[str], settings: Group
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], list[Exclusion]]:
    """Choose scans (n,) and parcels (P,) by the rules of docs/phenotypes.md; missing (n, P). Raises DatasetError."""
    common = missing.mean(axis=0) <= settings.drop_parcels_missing_in
    lacking = missing[:, common].mean(axis=1) if common.any() else np.zeros(len(missing))
    kept_scans = lacking <= settings.drop_people_missing
    kept_parcels = common & ~missing[kept_scans].any(axis=0)
    if not kept_scans.any() or kept_parcels.sum() < FEWEST_PARCELS:
        raise DatasetError(
            f"Missing parcels leave {int(kept_scans.sum())} scans and {int(kept_parcels.sum())} parcels. Raise "
            "drop_parcels_missing_in or lower drop_people_missing, or use another atlas."
        )
    rows = []
    for name, share, seldom, kept in zip(parcels, missing.mean(axis=0), ~common, kept_parcels, strict=True):
        if not kept:
            why = f"more than drop_parcels_missing_in {100 * settings.drop_parcels_missing_in:g} %"
            why = why if seldom else "and what a scan lacks is not filled in"
            reason = f"{name}: {100 * share:.1f} % of the scans lack it, {why}"
            rows.append(Exclusion(NO_SESSION, NO_SESSION, PARCEL, reason))
    for (participant, session), share, kept in zip(scans, lacking, kept_scans, strict=True):
        if not kept:
            reason = (
                f"lacks {100 * share:.1f} % of the parcels, more than drop_people_missing "
                f"{100 * settings.drop_people_missing:g} %"
            )
            rows.append(Exclusion(participant, session, RECORDING, reason))
    return kept_scans, kept_parcels, rows


def tabulate_exclusions(rows: Iterable[Exclusion]) -> pd.DataFrame:
    """Return the table of exclusions, in the order in which the rules were applied; no row twice."""
    return pd.DataFrame(list(dict.fromkeys(rows)), columns=list(Exclusion._fields))
