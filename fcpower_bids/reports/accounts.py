"""Written facts about a participant and what they mean: status, tables and sidecars of every recording."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fcpower_bids.cohort.inclusion import WITHOUT_VALUE, find_cautions, quality_rows
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.dataset import describe_without_folders, known_folders
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
    current_status,
    recorded,
)
from fcpower_bids.outputs.tables import MISSING, Facts, read_declared, read_json, read_table
from fcpower_bids.reports.page import Verdict, count
from fcpower_bids.store import stored_path

WORDS = {DONE: "used", EXCLUDED: "excluded", FAILED: "failed", SKIPPED: "skipped", RUNNING: "not finished"}
USED_WITH_CAUTION = "used with caution"
JUDGED_BY = ("bold", "timeseries", "qc")
"""Tables whose sidecars hold what is wrong with a recording."""


class Parcellation(NamedTuple):
    """An atlas as the outputs name it, for the text and the figures; "n/a" where unknown."""

    name: str
    space: str
    networks: tuple[str, ...]  # of each parcel, in the order of the outputs
    source: str
    citation: str  # from the description of the atlas


def network_order(networks: Sequence[str]) -> np.ndarray:
    """Return the stable permutation that puts the parcels of a network side by side."""
    place = {name: rank for rank, name in enumerate(dict.fromkeys(networks))}
    return np.argsort([place[name] for name in networks], kind="stable")


@lru_cache(maxsize=16)
def read_parcellation(output_dir: Path, atlas: str, space: str, source: str) -> Parcellation:
    """Load the copy of the atlas that the numbers were made with."""
    table = stored_path(output_dir, f"sourcedata/atlases/tpl-{space}/tpl-{space}_{atlas}_dseg.tsv")
    try:
        links = read_json(table.parents[1] / f"{atlas.split('_')[0]}_description.json").get("ReferencesAndLinks", [])
    except DatasetError:
        links = []
    networks = read_table(table)["network"].astype(object).fillna("n/a").astype(str)
    return Parcellation(atlas, space, tuple(networks), source, "; ".join(map(str, links)) or "n/a")


@dataclass(frozen=True, eq=False)
class View:
    """One recording seen through one atlas."""

    atlas: str  # as in file names; empty for what depends on none
    files: dict[str, list[Path]] = field(default_factory=dict)  # tables and arrays by suffix; FC before its transforms
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)  # by suffix the sidecars of `JUDGED_BY`

    def file(self, suffix: str) -> Path | None:
        """The first file of a kind."""
        return next(iter(self.files.get(suffix, ())), None)

    def parcels(self, output_dir: Path) -> Parcellation:
        """The atlas, by what the sidecars say of it. Raises DatasetError."""
        about = next((facts for facts in self.facts.values() if "Atlas" in facts), Facts(Path(self.atlas), {}))["Atlas"]
        return read_parcellation(output_dir, self.atlas, str(about["Space"]), str(about.get("Source", "n/a")))


@dataclass(frozen=True, eq=False)
class Account:
    """Everything written about one recording."""

    status: Status  # its status
    own: View  # what depends on no atlas
    views: list[View]  # one per atlas
    # rows of the quality table, one per atlas; none for a failed recording or a combination
    quality: list[dict[str, Any]]
    broken: list[str]  # what of it cannot be read

    @property
    def name(self) -> str:
        """The recording in one string."""
        return self.status.recording

    @property
    def repetition_time(self) -> float:
        """Seconds between volumes; 0 where that is not known."""
        return float(self.own.facts.get("qc", {}).get("RepetitionTime") or 0)

    @cached_property
    def sentences(self) -> list[str]:
        """Why it is not used; of one that is, what a reader must know before using it."""
        if self.status.state != DONE:
            return [self.status.reason or "It was not finished. Run the same command again."]
        quality = self.quality[0] if self.quality else {}
        notes = [str(note) for view in self.views for note in view.facts.get("timeseries", {}).get("Notes", [])]
        return find_cautions(self.uncovered, quality, list(dict.fromkeys(notes))) + self.broken

    @property
    def word(self) -> str:
        """Its state in words."""
        return USED_WITH_CAUTION if self.status.state == DONE and self.sentences else WORDS[self.status.state]

    @cached_property
    def volumes(self) -> pd.DataFrame | None:
        """Motion, dummy and kept volumes."""
        return read_declared(path, VOLUMES) if (path := self.own.file("outliers")) else None

    @cached_property
    def uncovered(self) -> dict[str, list[str]]:
        """Parcels without a value under each atlas: not covered, without any variance, or no signal."""
        return {
            view.atlas: [str(node) for kind in WITHOUT_VALUE for node in about.get(kind, [])]
            for view in self.views
            for about in (view.facts.get("bold", {}) | view.facts.get("timeseries", {}),)
        }


def read_accounts(output_dir: Path, subject: str, label: str = "") -> tuple[list[Account], list[Status]]:
    """Collect what was written about one participant."""
    names = [name for name in recorded(output_dir) if name.partition("_")[0] == f"sub-{subject}"]
    statuses = [status for name in names if (status := current_status(output_dir, name)) is not None]
    accounts = [account_of(output_dir, status) for status in statuses if not status.recording.endswith(EMBEDDING)]
    end = f"_desc-{label}{EMBEDDING}" if label else EMBEDDING
    return accounts, [_without_folders(output_dir, status) for status in statuses if status.recording.endswith(end)]


def _without_folders(output_dir: Path, status: Status) -> Status:
    """Leave the user's folders out of a reason: pages are passed on, logs are not."""
    reason = describe_without_folders(status.reason, known_folders(output_dir)) if status.reason else ""
    return replace(status, reason=reason)


def account_of(output_dir: Path, status: Status) -> Account:
    """Collect what was written about one recording; files with the same entities of an atlas are one view."""
    views, quality, broken, known = {"": View("")}, list[dict[str, Any]](), list[str](), status.recording.split("_")
    for name in (name for name in status.outputs if name.endswith((".tsv", ".npy"))):
        *entities, suffix = Path(name).stem.split("_")
        atlas = "_".join(pair for pair in entities if pair not in known and not pair.startswith(("stat-", "desc-")))
        try:
            path = stored_path(output_dir, name)
            if path.suffix == ".npy" and path.with_suffix(".tsv").exists():
                continue  # the numbers of its table
            view = views.setdefault(atlas, View(atlas))
            view.files.setdefault(suffix, []).append(path)
            if suffix in JUDGED_BY:
                about = view.facts[suffix] = read_json(path.with_suffix(".json"))
                if atlas and "Atlas" not in about:
                    broken.append(f"{path.stem}.json has no entry 'Atlas'. Run the participant level again.")
            quality += _read_quality(path) if suffix == "qc" else []
        except DatasetError as error:
            broken.append(describe_without_folders(str(error), known_folders(output_dir)))
    return Account(_without_folders(output_dir, status), views.pop(""), list(views.values()), quality, broken)


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


def judge(accounts: Sequence[Account], embeddings: Sequence[Status]) -> Verdict:
    """Sum up the status of the recordings of a participant."""
    used = [account for account in accounts if account.status.state == DONE]
    problems = [
        (account.name, "caution" if account.status.state == DONE else "stop", account.word, sentence)
        for account in accounts
        for sentence in account.sentences
    ]
    problems += [(each.recording, "caution", f"embedding {WORDS[each.state]}", each.reason) for each in embeddings]
    doubted = any(account.sentences for account in used)
    n = sum(account.status.state != SKIPPED for account in accounts)
    headline = f"{len(used)} of {count(n, 'recording')} can be used{', with caution' if doubted else ''}."
    level = "stop" if not used else "caution" if problems else "ok"
    return Verdict(level, headline if n else "There is no recording.", problems=problems)
