"""Connectomes of output folders, and who and what stays of them: status, quality, missing parcels."""

from __future__ import annotations

import csv
import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.sources import drop
from fcpower_bids.outputs.dataset import (
    ATLAS_KEYS,
    CONNECTIVITY,
    QUALITY,
    TIMESERIES,
    parse_name,
    path_of,
    short_name,
)
from fcpower_bids.outputs.status import DONE, EXCLUDED, FAILED, RUNNING
from fcpower_bids.outputs.tables import is_cut_short, read_json, series_file
from fcpower_bids.records import Entities, Output, join, label_order, space_of
from fcpower_bids.schema import MISSING, TABLES
from fcpower_bids.settings import Settings

POWER = re.compile(r"power[0-9p]+")
NO_SESSION = "n/a"
CLEANED = (*("NuisanceStrategy", "NuisanceParameters", "SoftwareFilters", "CensoringThresholdMillimetres"),)
"""Entries of sidecars in which what is made of one series agrees."""
KINDS = (".tsv", "_relmat.npy", "_timeseries.npy")
"""A table, or the array of an FC: next to its table, or in its place; of a source of series, their arrays alone."""


def person_at(person: str, site: str) -> str:
    """Return the name of a person: of their label, and of their site where there are several."""
    label = person.removeprefix("sub-")
    return f"sub-{site}+{label}" if site else f"sub-{label}"


COUNTED = RECORDING, PERSON, PARCEL, VALUE, TARGET = "recording", "person", "parcel", "value", "target"
NOT_DONE = (EXCLUDED, FAILED, RUNNING)
NOWHERE = Path()


class Exclusion(NamedTuple):
    """One row of ``excluded.tsv``."""

    participant_id: str
    session: str
    what: str
    reason: str


@dataclass(frozen=True)
class Connectome:
    """A recording under one atlas: its FC file and the companion files; why it takes no part, where it does not."""

    # ``..._stat-pearsoncorrelation_relmat.tsv``, or ``.npy``, or ``..._timeseries.npy``, where that is all there is;
    # `NOWHERE` of a recording without an FC
    path: Path
    entities: Entities  # those of its recording, or of its person or session where nothing of these could be used
    atlas: Entities  # those of its atlas; none where it is without an FC under every one
    powers: tuple[str, ...] = ()  # ``desc`` labels of its FC^alpha files
    # ``desc`` label and atlas of the embeddings of its recording: under its own atlas, else under the first that has
    # one, since encoders have atlases of their own
    embeddings: tuple[tuple[str, Entities], ...] = ()
    site: str = ""  # where there are several, that of its output folder
    state: str = DONE
    reason: str = ""  # why it is in another state

    def entity(self, key: str) -> str | None:
        """Return one label, or None."""
        return dict(self.entities).get(key)

    @property
    def participant(self) -> str:
        """``sub-01``, or ``sub-SITE+01`` where there are several sites."""
        return person_at(str(self.entity("sub")), self.site)

    @property
    def labels(self) -> dict[str, str]:
        """Its labels by entity; that of the person has the site where there are several."""
        return {**dict(self.entities), "sub": self.participant.removeprefix("sub-")}

    @property
    def session(self) -> str:
        """``ses-a``, or ``n/a`` where there are no sessions."""
        return f"ses-{self.entity('ses')}" if self.entity("ses") else NO_SESSION

    @property
    def recording(self) -> str:
        """Name of the recording, as in ``logs/status.tsv``."""
        return join(self.entities)

    @property
    def why(self) -> str:
        """Why it does not take part, and who says so."""
        return f"{self.state} at participant level: {self.reason}" if self.state in NOT_DONE else self.reason

    def row(self) -> Exclusion:
        """Return its row of ``excluded.tsv``."""
        what = RECORDING if "task" in self.labels else PERSON
        return Exclusion(self.participant, self.session, what, f"{self.recording}: {self.why}")

    @property
    def atlas_name(self) -> str:
        """``atlas-Schaefer2018_seg-7n_scale-400``."""
        return join(self.atlas)

    @property
    def space(self) -> str:
        """Template space."""
        return space_of(dict(self.entities)) or "unknown"

    @property
    def root(self) -> Path:
        """The output folder that it is in."""
        return self.path.parents[3 if self.entity("ses") else 2]

    @property
    def encoders(self) -> tuple[str, ...]:
        """``desc`` labels of the embeddings."""
        return tuple(label for label, _ in self.embeddings)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The sidecar of the FC; empty where there is none."""
        sidecar = self.path.with_suffix(".json")
        return read_json(sidecar) if sidecar.is_file() else {}

    def beside(self, output: Output) -> Path:
        """Return where another output of this recording and atlas is."""
        path = path_of(self.root, self.entities, () if output is QUALITY else self.atlas, output)
        return self.path.with_name(path.name)  # its folder may have been renamed

    def embedding(self, label: str) -> Path:
        """Return where an embedding of this recording is."""
        output = Output("embedding", (("desc", label),))
        return self.path.with_name(path_of(self.root, self.entities, dict(self.embeddings)[label], output).name)

    def is_embedding_outdated(self, label: str) -> bool:
        """Whether an embedding is of a series that was cleaned otherwise than the FC of its atlas is now."""
        fc = path_of(self.root, self.entities, dict(self.embeddings)[label], CONNECTIVITY)
        sidecars = self.path.with_name(fc.name).with_suffix(".json"), self.embedding(label).with_suffix(".json")
        now, then = (read_json(path) if path.is_file() else {} for path in sidecars)
        return any(now[key] != then[key] for key in CLEANED if key in now and key in then)


def list_connectomes(output_dir: Path, site: str = "") -> list[Connectome]:
    """List the FC files in ``sub-*/[ses-*/]func``, sorted by participant, session and name."""
    everything = (connectome for folder in _func_folders(output_dir) for connectome in _in_folder(folder, site))
    return sorted(
        everything,
        key=lambda connectome: (connectome.participant, label_order(connectome.session), connectome.path.name),
    )


def list_quality_sidecars(output_dir: Path) -> list[tuple[Entities, Path]]:
    """List the sidecars of the quality tables, with the entities of their recordings."""
    end = f"_{join(QUALITY.entities)}_{QUALITY.suffix}.json"
    names = (entry.path for folder in _func_folders(output_dir) for entry in _entries(folder))
    paths = (Path(name) for name in sorted(names) if name.endswith(end))
    return [(drop(parse_name(path.name)[0], ("desc",)), path) for path in paths]


def _func_folders(output_dir: Path) -> list[Path]:
    return [
        holder / "func" for subject in _folders(output_dir, "sub-") for holder in (subject, *_folders(subject, "ses-"))
    ]


def _folders(parent: Path, prefix: str) -> list[Path]:
    return [Path(entry.path) for entry in _entries(parent) if entry.name.startswith(prefix) and entry.is_dir()]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Content of a folder, empty where there is none; a closed one stops the run on every Python."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _in_folder(folder: Path, site: str) -> list[Connectome]:
    there = {entry.name for entry in _entries(folder) if entry.name.startswith("sub-") and entry.name.endswith(KINDS)}
    names = [name for name in there if f"{name.removesuffix('.npy')}.tsv" not in there]
    connectomes, series = list[tuple[str, Entities]](), list[tuple[str, Entities]]()
    powers: dict[Entities, list[str]] = defaultdict(list)
    embeddings: dict[Entities, list[tuple[str, Entities]]] = defaultdict(list)
    for name in sorted(names):
        try:
            entities, suffix, _ = parse_name(name)
        except ValueError:
            continue  # not one of our files
        labels = dict(entities)
        stem = tuple(pair for pair in entities if pair[0] not in ("stat", "desc"))
        if suffix == "relmat" and "desc" not in labels and ("stat", labels.get("stat")) in CONNECTIVITY.entities:
            connectomes.append((name, stem))
        elif suffix == "timeseries" and name.endswith(".npy"):
            series.append((name, stem))
        elif suffix == "relmat" and POWER.fullmatch(labels.get("desc", "")):
            powers[stem].append(labels["desc"])
        elif suffix == "embedding" and "desc" in labels:
            recording, atlas = _divide(stem)
            embeddings[recording].append((labels["desc"], atlas))
    listed, with_fc = [], {stem for _, stem in connectomes}
    for name, stem in (*connectomes, *(pair for pair in series if pair[1] not in with_fc)):
        recording, atlas = _divide(stem)
        candidates = [(of_atlas != atlas, label, of_atlas) for label, of_atlas in embeddings[recording]]
        nearest: dict[str, Entities] = {}
        for _, label, of_atlas in sorted(candidates):
            nearest.setdefault(label, of_atlas)
        known = tuple(sorted(powers[stem])), tuple(sorted(nearest.items()))
        listed.append(Connectome(folder / name, recording, atlas, *known, site))
    return listed


def _divide(stem: Entities) -> tuple[Entities, Entities]:
    """Divide entities into those of the recording and those of the atlas."""
    return (
        tuple(pair for pair in stem if pair[0] not in ATLAS_KEYS),
        tuple(pair for pair in stem if pair[0] in ATLAS_KEYS),
    )


EMBEDDING = "embedding"
"""That of a scan, which the other representations do not miss."""
CODE, DECISION = "code", "decision"
"""What leaves nobody out: a value that was read as missing, and a row of ``exclude.tsv`` about who is not here."""
FEWEST_PARCELS = 3
MOST_MISSING = 0.1
"""Share of the scans that may lack a parcel, and of the others that a scan may lack."""
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


@dataclass(frozen=True)
class Quality:
    """Figures of one recording, NaN where unknown; its unreadable files; cautions, None where nothing was measured."""

    seconds: float
    volumes: float
    mean_fd: float
    degrees_of_freedom: float
    fault: str = ""
    cautions: tuple[str, ...] | None = None

    @property
    def repetition_time(self) -> float:
        """Seconds between volumes; the quotient is exact to rounding, so the last digits are dropped."""
        return round(self.seconds / self.volumes, 9) if self.volumes > 0 else math.nan

    @property
    def verdict(self) -> str | None:
        """``ok`` or ``caution``; None where nothing was measured."""
        return None if self.cautions is None else CAUTION if self.cautions else SOUND


@dataclass(frozen=True, eq=False)
class Run:
    """One included recording."""

    connectome: Connectome  # its FC file
    quality: Quality  # its figures
    place: int = -1  # its position among the `Edges`


def read_quality(connectome: Connectome) -> Quality:
    """Read the quality of a recording from its table, and where that is missing from the sidecar of the FC."""
    table, sidecar = connectome.beside(QUALITY), connectome.path.with_suffix(".json").name
    try:
        rows, facts = quality_rows(table), connectome.facts
        row = next((row for row in rows if row.get("atlas") == connectome.atlas_name), {})
        if row and not facts:  # a table alone is of ours, and says nothing of how the FC was made
            raise DatasetError(f"{sidecar} is missing; run the participant level again.")
        if lacking := [column for column in JUDGED if row and column not in row]:
            raise DatasetError(f"{table.name} has no column {lacking[0]}; {REMEDY}.")
    except DatasetError as error:
        fault = str(error).replace(f"{connectome.path.parent}{os.sep}", "").removesuffix(".")
        return Quality(math.nan, math.nan, math.nan, math.nan, fault=fault)
    texts = {column: row[column] if column in row else facts.get(fact) for column, fact in FIGURES.items()}
    texts |= {column: row[column] for column in JUDGED if row}
    numbers = {column: number_of(text) for column, text in texts.items()}
    known = (column for column, text in texts.items() if text is not None and text not in MISSING)
    fault, strange = "", next((column for column in known if not math.isfinite(numbers[column])), None)
    if strange:
        name = table.name if strange in row else sidecar
        fault = f"{name} has '{texts[strange]}' for {strange}, which is no number; {REMEDY}"
    cautions = None
    if row or "Notes" in facts:
        empty = [str(node) for key in WITHOUT_VALUE for node in facts.get(key) or []]
        judged = {**numbers, "mask_dice": number_of(row.get("mask_dice"))} if row else {}  # known in template space
        notes = [str(note) for note in facts.get("Notes") or []]
        cautions = None if fault else tuple(find_cautions({connectome.atlas_name: empty}, judged, notes))
    seconds, volumes, mean_fd, degrees_of_freedom = (numbers[column] for column in FIGURES)
    return Quality(seconds, volumes, mean_fd, degrees_of_freedom, fault, cautions)


def quality_rows(path: Path) -> list[dict[str, str]]:
    """The rows of all atlases, none where there is no table; read without pandas, for speed. Raises DatasetError."""
    if not path.is_file() and not os.path.lexists(path):
        return []
    try:
        if not path.is_file():
            raise OSError("a folder, a pipe or a link that leads to no file")
        with path.open(encoding="utf-8", newline="") as file:
            rows: list[dict[str, str]] = list(csv.DictReader(file, **DIALECT))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path} cannot be read ({error}): {REMEDY}.") from error
    if not rows or any(None in row or None in row.values() for row in rows):
        raise DatasetError(f"{path} is cut short: {REMEDY}.")
    return rows


def name_some(names: Sequence[str], most: int = 5) -> str:
    """``a, b and 3 more``: the tables have all."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


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
        f"{len(parcels)} of the parcels of {short_name(atlas)} without a value: {name_some(parcels, MOST_NAMED)}."
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


def leave_out(runs: Sequence[Run], reasons: Iterable[str], rows: list[Exclusion]) -> list[Run]:
    """Return the runs that have no reason to be left out, and add a row for each of the others."""
    kept = list[Run]()
    for run, reason in zip(runs, reasons, strict=True):
        whose = run.connectome
        if reason:
            rows.append(Exclusion(whose.participant, whose.session, RECORDING, f"{whose.recording}: {reason}"))
        else:
            kept.append(run)
    return kept


def fault_of(run: Run, settings: Settings) -> str:
    """Why a recording is not whole, or does not pass ``min_time`` and ``max_mean_fd``; empty where it does."""
    its, limit = run.quality, settings.group.max_mean_fd
    if its.fault:
        return its.fault
    if its.seconds < settings.method.min_time:
        return f"{its.seconds:.0f} s are left, less than --min-time {settings.method.min_time:g} s"
    if limit is not None and math.isnan(its.mean_fd):
        return "its mean framewise displacement is not known, and --max-mean-fd asks for it"
    if limit is not None and its.mean_fd > limit:
        return f"mean framewise displacement {its.mean_fd:.3f} mm, more than --max-mean-fd {limit:g} mm"
    path = series_file(run.connectome.beside(TIMESERIES))  # without it nobody has analyses of scan length
    try:
        return f"{path.name} is cut short: {REMEDY}" if path.is_file() and is_cut_short(path) else ""
    except OSError as error:
        return f"{path.name} cannot be read ({error.strerror}): {REMEDY}"


def choose_parcels(
    missing: NDArray[np.bool_], scans: Sequence[tuple[str, str]], parcels: Sequence[str]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], list[Exclusion]]:
    """Choose scans (n,) and parcels (P,): what many scans lack, who lacks many, what one still lacks; missing (n, P).

    Raises DatasetError.
    """
    common = missing.mean(axis=0) <= MOST_MISSING
    lacking = missing[:, common].mean(axis=1) if common.any() else np.zeros(len(missing))
    kept_scans = lacking <= MOST_MISSING
    kept_parcels = common & ~missing[kept_scans].any(axis=0)
    if not kept_scans.any() or kept_parcels.sum() < FEWEST_PARCELS:
        raise DatasetError(
            f"Missing parcels leave {int(kept_scans.sum())} scans and {int(kept_parcels.sum())} parcels. Use another "
            "atlas, or leave out the recordings that lack most (--exclude-file)."
        )
    rows = []
    for name, share, seldom, kept in zip(parcels, missing.mean(axis=0), ~common, kept_parcels, strict=True):
        if not kept:
            why = f"more than {100 * MOST_MISSING:g} %" if seldom else "and what a scan lacks is not filled in"
            reason = f"{name}: {100 * share:.1f} % of the scans lack it, {why}"
            rows.append(Exclusion(NO_SESSION, NO_SESSION, PARCEL, reason))
    for (participant, session), share, kept in zip(scans, lacking, kept_scans, strict=True):
        if not kept:
            reason = f"lacks {100 * share:.1f} % of the parcels, more than {100 * MOST_MISSING:g} %"
            rows.append(Exclusion(participant, session, RECORDING, reason))
    return kept_scans, kept_parcels, rows
