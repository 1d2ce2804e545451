"""Written facts about a participant and what they mean: status, tables and sidecars of every recording."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fcpower_bids.cohort.inclusion import WITHOUT_VALUE, find_cautions, quality_rows
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.dataset import describe_without_folders, known_folders, short_name
from fcpower_bids.outputs.recording import QUALITY_TABLE as QUALITY
from fcpower_bids.outputs.recording import VOLUMES
from fcpower_bids.outputs.status import (
    DONE,
    EMBEDDING,
    EXCLUDED,
    FAILED,
    RUNNING,
    SKIPPED,
    Status,
    read_status,
)
from fcpower_bids.outputs.tables import MISSING, read_json, read_table
from fcpower_bids.reports.page import count
from fcpower_bids.schema import TableSpec
from fcpower_bids.store import stored_path

JUDGED_BY = ("bold", "timeseries")
"""Tables of an atlas whose sidecars hold what is wrong with a recording."""


class Parcellation(NamedTuple):
    """The parcels of an atlas copy in ``sourcedata/atlases``."""

    networks: list[str]  # of each parcel, in the order of the outputs
    order: np.ndarray  # parcels sorted by network, networks in the order of their first parcel
    citation: str  # from the description of the atlas; "n/a" without one


def network_order(networks: Sequence[str]) -> np.ndarray:
    """Return the stable permutation that puts the parcels of a network side by side."""
    place = {name: rank for rank, name in enumerate(dict.fromkeys(networks))}
    return np.argsort([place[name] for name in networks], kind="stable")


@lru_cache(maxsize=16)
def read_parcellation(output_dir: Path, atlas: str, space: str) -> Parcellation:
    """Load the copy of the atlas that the numbers were made with."""
    table = stored_path(output_dir, f"sourcedata/atlases/tpl-{space}/tpl-{space}_{atlas}_dseg.tsv")
    try:
        links = read_json(table.parents[1] / f"{atlas.split('_')[0]}_description.json").get("ReferencesAndLinks", [])
    except DatasetError:
        links = []
    networks = read_table(table)["network"].astype(object).fillna("n/a").astype(str).tolist()
    return Parcellation(networks, network_order(networks), "; ".join(map(str, links)) or "n/a")


@dataclass(frozen=True, eq=False)
class View:
    """One recording seen through one atlas."""

    about: Mapping[str, Any]  # facts about the atlas from the sidecars: ``Name``, ``Space``, ``Source``, ``License``
    sidecars: dict[str, dict[str, Any]] = field(default_factory=dict)  # of the tables, by suffix
    tables: dict[str, Path] = field(default_factory=dict)  # by suffix: ``bold``, ``timeseries``, ``eigenvalues``
    connectomes: list[Path] = field(default_factory=list)  # FC first, then its transforms
    embeddings: list[Path] = field(default_factory=list)

    @property
    def atlas(self) -> str:
        """The atlas in one string, as in file names."""
        return str(self.about["Name"])


@dataclass(frozen=True, eq=False)
class Account:
    """Everything written about one recording."""

    status: Status  # its status
    tables: dict[str, Path]  # by suffix: ``design``, ``outliers``
    views: list[View]  # one per atlas
    # rows of the quality table, one per atlas; none for a failed recording or a combination
    quality: list[dict[str, Any]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # which of its files are missing or cannot be read

    @property
    def name(self) -> str:
        """The recording in one string."""
        return self.status.recording

    @cached_property
    def entities(self) -> dict[str, str]:
        """Entities in the name, as far as it has any."""
        return dict(part.split("-", 1) for part in self.name.split("_") if "-" in part)  # type: ignore[misc]

    @cached_property
    def volumes(self) -> pd.DataFrame | None:
        """Motion, dummy and kept volumes."""
        return read_columns(self.tables["outliers"], VOLUMES) if "outliers" in self.tables else None

    @cached_property
    def uncovered(self) -> dict[str, list[str]]:
        """Parcels without a value under each atlas: not covered, without any variance, or no signal."""
        return {
            view.atlas: [str(node) for kind in WITHOUT_VALUE for node in about.get(kind, [])]
            for view in self.views
            for about in (view.sidecars.get("bold", {}) | view.sidecars.get("timeseries", {}),)
        }


def read_accounts(output_dir: Path, subject: str, label: str = "") -> tuple[list[Account], list[Status]]:
    """Collect what was written about one participant."""
    folder = output_dir / "logs" / "status"
    names = sorted(path.stem for end in ("", "_*") for path in folder.glob(f"sub-{subject}{end}.json"))
    statuses = [status for name in names if (status := read_status(output_dir, name)) is not None]
    accounts = [account_of(output_dir, status) for status in statuses if not status.recording.endswith(EMBEDDING)]
    end = f"_desc-{label}{EMBEDDING}" if label else EMBEDDING
    return accounts, [_without_folders(output_dir, status) for status in statuses if status.recording.endswith(end)]


def _without_folders(output_dir: Path, status: Status) -> Status:
    """Leave the user's folders out of a reason: pages are passed on, logs are not."""
    reason = describe_without_folders(status.reason, known_folders(output_dir)) if status.reason else ""
    return replace(status, reason=reason)


def account_of(output_dir: Path, status: Status, *, thorough: bool = True) -> Account:
    """Collect what was written about one recording; files whose names have the same entities of an atlas are one view.

    Not `thorough`: only the sidecars are read by which a recording is judged.
    """
    account = Account(_without_folders(output_dir, status), {}, [])
    views: dict[tuple[str, ...], View] = {}

    def take(output: str) -> None:
        path = stored_path(output_dir, output)
        if not path.exists():
            raise DatasetError(f"{path} is missing. Run participant level again.")
        *entities, suffix = path.stem.split("_")
        known = account.name.split("_")
        atlas = tuple(pair for pair in entities if pair not in known and not pair.startswith(("stat-", "desc-")))
        sidecar, view = path.with_suffix(".json"), views.get(atlas)
        needed = thorough or (atlas and (view is None or suffix in JUDGED_BY)) or not sidecar.exists()
        about = read_json(sidecar) if needed else {}
        if not atlas:
            account.quality.extend(_read_quality(path) if suffix == "qc" else ())
            account.tables[suffix] = path
            return
        view = views.setdefault(atlas, view or View(about["Atlas"]))
        if suffix == "relmat" and path.suffix == ".npy" and path.with_suffix(".tsv").exists():
            return  # the numbers of its table
        if suffix in ("relmat", "embedding"):
            (view.connectomes if suffix == "relmat" else view.embeddings).append(path)
            return
        view.tables[suffix] = path
        if needed:
            view.sidecars[suffix] = about

    for output in (name for name in status.outputs if name.endswith((".tsv", ".npy"))):
        try:
            take(output)
        except DatasetError as error:
            account.broken.append(describe_without_folders(str(error), known_folders(output_dir)))
    account.views.extend(views.values())
    return account


def _read_quality(path: Path) -> list[dict[str, Any]]:
    """Rows of a quality table, with its numbers as numbers. Raises DatasetError."""
    try:
        return [
            {key: row[key] if column.is_text else _number(row[key]) for key, column in QUALITY.columns.items()}
            for row in quality_rows(path)
        ]
    except (KeyError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read as a table ({error}). Run participant level again.") from error


def _number(text: str) -> float:
    return math.nan if text == MISSING else float(text)


def read_columns(path: Path, spec: TableSpec) -> pd.DataFrame:
    """Read the columns of numbers of a table, by their keys. Raises DatasetError."""
    try:
        return read_table(path)[[key for key in spec.needed if not spec.columns[key].is_text]].astype(float)
    except (KeyError, ValueError) as error:
        raise DatasetError(
            f"{path} lacks columns, or holds text where numbers belong ({error}). Run participant level again."
        ) from error


WORDS = {DONE: "used", EXCLUDED: "excluded", FAILED: "failed", SKIPPED: "skipped", RUNNING: "not finished"}
USED_WITH_CAUTION = "used with caution"


@dataclass(frozen=True)
class Problem:
    """Something a reader must know: of which recording, how grave (``stop``, ``caution``), what in plain words."""

    recording: str
    level: str
    state: str
    reason: str


@dataclass(frozen=True)
class Verdict:
    """First lines of a page."""

    level: str  # ``ok``, ``caution`` or ``stop``
    headline: str  # one sentence
    facts: Sequence[tuple[str, str]]  # label and value
    problems: Sequence[Problem]  # every recording that is not used, and every caution


def judge(accounts: Sequence[Account], embeddings: Sequence[Status]) -> Verdict:
    """Sum up the status of the recordings of a participant."""
    used = [account for account in accounts if account.status.state == DONE]
    problems = []
    for account in accounts:
        status = account.status
        if status.state == DONE:
            problems += [Problem(account.name, "caution", USED_WITH_CAUTION, reason) for reason in cautions_of(account)]
            continue
        at_work = status.state in (FAILED, RUNNING) and status.stage
        where = f" at {status.stage}" if at_work else ""
        reason = status.reason or "It was not finished. Run the same command again."
        problems.append(Problem(account.name, "stop", WORDS[status.state] + where, reason))
    problems += [
        Problem(status.recording, "caution", f"embedding {WORDS[status.state]}", status.reason) for status in embeddings
    ]
    names = {account.name for account in used}
    doubted = any(problem.level == "caution" and problem.recording in names for problem in problems)
    n = sum(account.status.state != SKIPPED for account in accounts)
    headline = f"{len(used)} of {count(n, 'recording')} can be used{', with caution' if doubted else ''}."
    level = "stop" if not used else "caution" if problems else "ok"
    return Verdict(level, headline if n else "There is no recording.", _facts(accounts, used), problems)


def _facts(accounts: Sequence[Account], used: Sequence[Account]) -> list[tuple[str, str]]:
    states = [account.status.state for account in accounts]
    always = (DONE, EXCLUDED, FAILED)
    counts = [f"{states.count(state)} {word}" for state, word in WORDS.items() if state in (*states, *always)]
    facts = [("Recordings", ", ".join(counts))]
    if used:
        kept, whole = sum(minutes_kept(each)[0] for each in used), sum(minutes_kept(each)[1] for each in accounts)
        facts.append(("Minutes kept", f"{kept:.1f} of {whole:.1f}"))
        worst: dict[str, tuple[int, int]] = {}
        for account in used:
            for row in account.quality:
                lacking = len(account.uncovered.get(row["atlas"], [])), int(row["parcels"])
                worst[row["atlas"]] = max(worst.get(row["atlas"], (0, 0)), lacking)
        named = [f"up to {n} of {parcels} ({short_name(atlas)})" for atlas, (n, parcels) in worst.items() if n]
        facts.append(("Parcels without a value", "; ".join(named) or "none"))
        known = [row["mean_fd"] for each in accounts for row in each.quality[:1] if not math.isnan(row["mean_fd"])]
        ends = dict.fromkeys(f"{end(known):.2f}" for end in (min, max)) if known else {}
        facts.append(("Mean FD", f"{' to '.join(ends)} mm" if known else "unknown"))
    return facts


def minutes_kept(account: Account) -> tuple[float, float]:
    """Return the minutes of the cleaned series and those of the file."""
    if not account.quality:
        return 0.0, 0.0
    row = account.quality[0]
    if row["kept_volumes"]:
        seconds = row["seconds_kept"] / row["kept_volumes"]
    else:
        seconds = float(read_json(account.tables["qc"].with_suffix(".json")).get("RepetitionTime", 0))
    return row["seconds_kept"] / 60, row["volumes"] * seconds / 60


def cautions_of(account: Account) -> list[str]:
    """Return what a reader must know before using a recording that is done."""
    quality = account.quality[0] if account.quality else {}
    notes = [str(note) for view in account.views for note in view.sidecars.get("timeseries", {}).get("Notes", [])]
    return find_cautions(account.uncovered, quality, list(dict.fromkeys(notes))) + account.broken
