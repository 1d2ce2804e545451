"""Decisions about recordings: a file of the user, or the one that the index page saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fcpower_bids.cohort.features import NO_SESSION, Connectome
from fcpower_bids.cohort.inclusion import PERSON, RECORDING, Exclusion, bare
from fcpower_bids.cohort.people import match_ids, read_rows, without_zeros
from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.spreadsheets import is_table
from fcpower_bids.schema import TABLES

ACCEPT, DOUBT, REJECT = "accept", "doubt", "reject"
DECISIONS = TABLES["exclude"]
FILE = f"{DECISIONS.name}.tsv"
"""Where every level looks in the output folder when no other file is named."""
KEYS = {"participant_id": "sub", "session": "ses", "session_id": "ses", "task_id": "task", "run_id": "run"}
ENTITIES = ("sub", "ses", "task", "run")
ABSENT = "names it, but it is not here"


@dataclass(frozen=True)
class Decision:
    """One row of the file."""

    wanted: dict[str, str]  # bare labels by entity; ``sub`` is always there
    recording: str  # name of the one recording that is meant; empty where the labels say which
    # decision, reason, decided: ``accept``, ``doubt`` or ``reject``, why, and when
    decision: str
    reason: str
    decided: str = ""

    def means(self, recording: str, labels: Mapping[str, str]) -> bool:
        """Whether a recording with these labels by entity is one of those meant."""
        if self.recording:
            return recording == self.recording
        own = {key: bare(labels.get(key, ""), key) for key in self.wanted}
        return all(without_zeros(own[key]) == without_zeros(label) for key, label in self.wanted.items())

    def cells(self) -> tuple[str, ...]:
        """The row as the columns of the table have it; empty where it says nothing."""
        labels = (self.wanted.get(key, "") for key in ENTITIES[1:])
        return (f"sub-{self.wanted['sub']}", *labels, self.recording, self.decision, self.reason, self.decided)


def decisions_of(output_dir: Path) -> Path | None:
    """Return the file of decisions of an output folder, if there is one."""
    return path if is_table(path := output_dir / FILE) else None


def read_decisions(path: Path) -> list[Decision]:
    """Read the file. Raises DatasetError."""
    found = []
    for number, row in enumerate(read_rows(path).fillna("").rename(columns=KEYS).to_dict("records"), start=1):
        wanted = {key: bare(row[key], key) for key in ENTITIES if row.get(key)}
        what = row.get("decision", "") or REJECT
        if what not in (ACCEPT, DOUBT, REJECT):
            raise DatasetError(f"{path} has the decision '{what}' in row {number}. Write accept, doubt or reject.")
        found.append(Decision(wanted, row.get("recording", ""), what, row.get("reason", ""), row.get("decided", "")))
    return found


def decisions_about(found: Sequence[Connectome], path: Path) -> list[Decision]:
    """Read the file, its people called as their scans are: a spreadsheet turns ``0012`` into ``12``."""
    decisions = read_decisions(path)
    there = list(dict.fromkeys(f"sub-{one.wanted['sub']}" for one in decisions))
    names = match_ids(there, {one.participant for one in found})
    own = {old.removeprefix("sub-"): new.removeprefix("sub-") for old, new in names.items()}
    return [
        replace(one, wanted=one.wanted | {"sub": own.get(one.wanted["sub"], one.wanted["sub"])}) for one in decisions
    ]


@dataclass(frozen=True)
class Decided:
    """What the decisions say of recordings."""

    rejected: Mapping[Path, str]  # why, by the path of the FC
    # accepted, doubtful: of recordings that take part, the paths of their FC
    accepted: frozenset[Path]
    doubtful: frozenset[Path]
    absent: tuple[Exclusion, ...]  # whom they name and who are not here


def decide(found: Sequence[Connectome], path: Path) -> Decided:
    """Say which recordings a file of decisions rejects, has in doubt, or names in vain. Raises DatasetError."""
    by_person: dict[str, list[Connectome]] = {}
    for one in found:
        by_person.setdefault(bare(one.participant, "sub"), []).append(one)
    rejected, absent = dict[Path, str](), list[Exclusion]()
    taking_part: dict[str, set[Path]] = {ACCEPT: set(), DOUBT: set()}
    for decision in decisions_about(found, path):
        own = by_person.get(decision.wanted["sub"], [])
        meant = [one for one in own if decision.means(one.recording, one.labels)]
        if decision.decision != REJECT:
            taking_part[decision.decision] |= {one.path for one in meant}
            continue
        for one in meant:
            rejected.setdefault(one.path, f"{path.name}: {decision.reason or 'named there'}")
        if not meant:
            session = f"ses-{decision.wanted['ses']}" if "ses" in decision.wanted else NO_SESSION
            which = f"{decision.recording}: " if decision.recording else ""
            what = RECORDING if decision.recording else PERSON
            said = f"{which}{path.name} {ABSENT}"
            absent.append(Exclusion(f"sub-{decision.wanted['sub']}", session, what, said))
    accepted, doubtful = (frozenset(paths - rejected.keys()) for paths in taking_part.values())
    return Decided(rejected, accepted, doubtful, tuple(absent))
