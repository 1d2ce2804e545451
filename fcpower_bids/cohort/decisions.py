"""Decisions about recordings: a file of the user, or the one that the index page saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fcpower_bids.cohort.features import NO_SESSION, Connectome
from fcpower_bids.cohort.inclusion import PERSON, RECORDING, Exclusion, bare
from fcpower_bids.cohort.people import match_ids, read_rows, without_zeros
from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.spreadsheets import is_table
from fcpower_bids.schema import Column, TableSpec, join_columns
from fcpower_bids.settings import Assembly

if TYPE_CHECKING:
    import pandas as pd

ACCEPT, DOUBT, REJECT = "accept", "doubt", "reject"
DECISIONS = TableSpec(
    "exclude",
    "Decisions about recordings made on `index.html`, one row each; `group` leaves out rejected recordings.",
    join_columns(
        Column.text("participant_id", "Person"),
        Column.text("session", "Session; every one where it is n/a", optional=True),
        Column.text("task", "Task; every one where it is n/a", optional=True),
        Column.text("run", "Run; every one where it is n/a", optional=True),
        Column.text("recording", "Name of the recording; where it is given, it alone is meant", optional=True),
        Column.text(
            "decision",
            "accept, doubt or reject; reject where there is no such column",
            levels={ACCEPT: "It takes part", DOUBT: "It takes part, and is named", REJECT: "It is left out"},
            optional=True,
        ),
        Column.text("reason", "Why, in the words of whoever decided", optional=True),
        Column.text("decided", "Day of the decision", optional=True),
    ),
)
FILE = f"{DECISIONS.name}.tsv"
"""Where ``group`` looks in the output folder when no other file is named."""
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


def decisions_file(settings: Assembly) -> Path | None:
    """Return the file of ``--exclude-file``, else that of the output folder, if there is one."""
    own = settings.output_dir / FILE
    return settings.exclude_file or (own if is_table(own) else None)


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


def accepted_recordings(found: Sequence[Connectome], path: Path | None) -> set[str]:
    """Names of the recordings that the user's file accepts."""
    decisions = [one for one in decisions_about(found, path) if one.decision == ACCEPT] if path is not None else []
    return {one.recording for one in found if any(each.means(one.recording, dict(one.entities)) for each in decisions)}


def exclude_by_file(
    found: Sequence[Connectome], path: Path | None
) -> tuple[list[Connectome], list[Exclusion], list[str]]:
    """Leave out what the user's file names, but what it accepts or has in doubt. Raises DatasetError."""
    if path is None:
        return list(found), [], []
    decisions = decisions_about(found, path)
    by_person: dict[str, list[Connectome]] = {}
    for one in found:
        by_person.setdefault(bare(one.participant, "sub"), []).append(one)
    rows, out = [], set[Path]()
    for decision in (one for one in decisions if one.decision == REJECT):
        meant = [
            one
            for one in by_person.get(decision.wanted["sub"], [])
            if decision.means(one.recording, dict(one.entities))
        ]
        rows += list(_rows(decision, [one for one in meant if one.path not in out], bool(meant), path))
        out |= {one.path for one in meant}
    kept = [one for one in found if one.path not in out]
    doubtful = [decision for decision in decisions if decision.decision == DOUBT]
    names = [
        one.recording for one in kept if any(decision.means(one.recording, dict(one.entities)) for decision in doubtful)
    ]
    return kept, rows, [f"In doubt, and taking part ({path.name}): {_some(names)}."] if names else []


def _rows(decision: Decision, meant: Sequence[Connectome], there: bool, path: Path) -> Iterator[Exclusion]:
    reason = f"{path.name}: {decision.reason or 'named there'}"
    for one in meant:
        yield Exclusion(one.participant, one.session, RECORDING, f"{one.recording}: {reason}")
    if not there:
        session = f"ses-{decision.wanted['ses']}" if "ses" in decision.wanted else NO_SESSION
        which = f"{decision.recording}: " if decision.recording else ""
        what = RECORDING if decision.recording else PERSON
        yield Exclusion(f"sub-{decision.wanted['sub']}", session, what, f"{which}{path.name} {ABSENT}")


def describe_left_out(excluded: pd.DataFrame, settings: Assembly) -> str:
    """Say which recordings the file leaves out, in one line; nothing where it leaves out none."""
    path = decisions_file(settings)
    if path is None:
        return ""
    reasons = excluded.loc[excluded["what"] == RECORDING, "reason"].astype(str)
    names = [name for name, _, why in (reason.partition(f": {path.name}: ") for reason in reasons) if why]
    where = "" if settings.exclude_file else " in the output folder"
    lines = [f"{path.name}{where} leaves out {_some(names)}; see excluded.tsv."] if names else []
    absent = excluded.loc[excluded["reason"].astype(str).str.endswith(f"{path.name} {ABSENT}"), "participant_id"]
    if len(absent):
        lines.append(f"{path.name}{where} names {len(absent)} that are not here, such as {absent.iloc[0]}: check it.")
    return " ".join(lines)


def _some(names: Sequence[str]) -> str:
    """Name three and count the others."""
    few = "1 recording" if len(names) == 1 else f"{len(names)} recordings"
    return f"{few}: {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")
