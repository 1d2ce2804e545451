"""Which recordings of an output folder take part: the one door, and ``recordings.tsv``, which says what it says."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fcpower_bids.cohort.inclusion import (
    DECISION,
    NO_SESSION,
    NOT_DONE,
    NOWHERE,
    UNUSABLE,
    Connectome,
    Exclusion,
    list_connectomes,
    list_quality_sidecars,
    person_at,
    read_quality,
)
from fcpower_bids.cohort.people import match_ids, read_rows, without_zeros
from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.roots import output_folders
from fcpower_bids.inputs.sources import drop
from fcpower_bids.outputs.dataset import CONNECTIVITY, QUALITY, describe_without_folders, known_folders, parse_name
from fcpower_bids.outputs.status import DONE, EMBEDDING, EXCLUDED, FAILED, SKIPPED, current_status, recorded
from fcpower_bids.outputs.tables import read_json, table_text
from fcpower_bids.records import Entities, join
from fcpower_bids.schema import TABLES, is_table
from fcpower_bids.settings import Settings
from fcpower_bids.store import LOCKS, lock, may_write, write_text

ACCEPT, DOUBT, REJECT = "accept", "doubt", "reject"
DECISIONS = TABLES["exclude"]
EXCLUDE_FILE = f"{DECISIONS.name}.tsv"
"""Where every level looks in the output folder when no other file is named."""
KEYS = {"participant_id": "sub", "session": "ses", "session_id": "ses", "task_id": "task", "run_id": "run"}
ENTITIES = ("sub", "ses", "task", "run")
ABSENT = "names it, but it is not here"


@dataclass(frozen=True)
class Decision:
    """One row of the file."""

    wanted: dict[str, str]  # bare labels by entity; ``sub`` is always there
    recording: str  # name of the one recording that is meant; empty where the labels say which
    decision: str  # ``accept``, ``doubt`` or ``reject``
    reason: str  # why
    decided: str = ""  # when

    def means(self, recording: str, labels: Mapping[str, str]) -> bool:
        """Whether a recording of its person with these labels by entity is one of those meant."""
        if self.recording:
            return recording == self.recording
        others = (key for key in self.wanted if key != "sub")
        return all(without_zeros(labels.get(key, "")) == without_zeros(self.wanted[key]) for key in others)

    def cells(self) -> tuple[str, ...]:
        """The row as the columns of the table have it; empty where it says nothing."""
        labels = (self.wanted.get(key, "") for key in ENTITIES[1:])
        return (f"sub-{self.wanted['sub']}", *labels, self.recording, self.decision, self.reason, self.decided)


def decisions_of(output_dir: Path) -> Path | None:
    """Return the file of decisions of an output folder, if there is one."""
    return path if is_table(path := output_dir / EXCLUDE_FILE) else None


def read_decisions(path: Path) -> list[Decision]:
    """Read the file. Raises DatasetError."""
    decisions, table = [], read_rows(path).fillna("").rename(columns=KEYS)
    known = ["session", "task", "run", "recording", "decision"]
    for name in map(str, table.columns):  # a column of this kind that is not read would reject more than it names
        bare = re.sub("(s|_id|_label)$", "", name.casefold())
        close = [word for word in known if {bare, name.casefold()} & {word, word[:4]}] or get_close_matches(
            bare, known, 1, 0.85
        )
        if name not in (*known, *ENTITIES) and close:
            raise DatasetError(f"{path} has a column '{name}'. Write '{close[0]}', or name remarks otherwise.")
    for number, row in enumerate(table.to_dict("records"), start=1):
        wanted = {  # a table may have made ``1.0`` of a 1
            key: row[key].removeprefix(f"{key}-").removesuffix(".0") for key in ENTITIES if row.get(key)
        }
        what = row.get("decision", "") or REJECT
        if what not in (ACCEPT, DOUBT, REJECT):
            raise DatasetError(f"{path} has the decision '{what}' in row {number}. Write accept, doubt or reject.")
        decisions.append(
            Decision(wanted, row.get("recording", ""), what, row.get("reason", ""), row.get("decided", ""))
        )
    return decisions


REJECTED, COMBINED = "rejected", "combination"
RECORDINGS = TABLES["recordings"]
FILE = f"{RECORDINGS.name}.tsv"
AGAIN = "run the participant level again"
UNFINISHED = "the participant level did not finish it; run it again"
FC_END = f"_{join(CONNECTIVITY.entities)}_{CONNECTIVITY.suffix}"


@dataclass(frozen=True)
class Selected:
    """The recordings of output folders, under every parcellation."""

    connectomes: tuple[Connectome, ...]  # those that take part, sorted by participant, session and name
    left_out: tuple[Connectome, ...]  # those that do not, and why
    absent: tuple[Exclusion, ...] = ()  # whom the decisions name and who are not here

    @property
    def people(self) -> set[str]:
        """Everyone of whom anything is known: ``sub-01``."""
        return {recording.participant for recording in (*self.connectomes, *self.left_out)}


def selected(output_dir: Path, site: str = "") -> Selected:
    """Say which recordings of an output folder take part, by its files alone. Raises DatasetError.

    Those that are finished and whole, that ``exclude.tsv`` does not reject, and that were not made from others that
    are there.
    """
    return decide(_gather(output_dir, site), decisions_of(output_dir), site)


def selected_of(settings: Settings) -> Selected:
    """Say which recordings a group run sees: those of its output folder, or of several as sites. Raises DatasetError.

    ``--exclude-file`` takes the place of the decisions in the folders.
    """
    folders = output_folders(settings, settings.output_dir)
    if settings.group.exclude_file is not None:
        gathered = _unite(_gather(folder, site) for site, folder in folders.items())
        door = decide(gathered, settings.group.exclude_file)
    else:
        door = _unite(selected(folder, site) for site, folder in folders.items())
        if "" not in folders:  # those of the folder of the results stand beside those of the sites
            door = decide(door, decisions_of(settings.output_dir))
    if not door.connectomes:
        rows = [recording.row() for recording in door.left_out]
        raise DatasetError(describe_nothing_left(rows, *folders.values()))
    return door


def describe_nothing_left(rows: Sequence[Exclusion], *folders: Path) -> str:
    """Say that no recording takes part, and why the last does not."""
    where = " and ".join(map(str, folders))
    if not rows:
        remedy = "Run the participant level with this output folder first"
        if any((folder / "group").is_dir() for folder in folders):
            remedy += ", or name the output folders of its sites"
        return f"{where} has no FC files (*{FC_END}.*). {remedy}."
    example = f", such as '{rows[-1].participant_id}: {rows[-1].reason}'"
    return (
        f"No recording of {where} is left after {len(rows)} exclusions{example}. Relax the limits or the selection, or "
        "run the participant level."
    )


def _unite(selections: Iterable[Selected]) -> Selected:
    several = tuple(selections)
    return Selected(
        tuple(connectome for of_folder in several for connectome in of_folder.connectomes),
        tuple(recording for of_folder in several for recording in of_folder.left_out),
        tuple(row for of_folder in several for row in of_folder.absent),
    )


def _gather(output_dir: Path, site: str) -> Selected:
    """All recordings of a folder before any decision."""
    connectomes = list_connectomes(output_dir, site)
    lost = _without_fc(output_dir, connectomes)
    left_out = [Connectome(NOWHERE, *about, site=site, state=state, reason=why) for about, state, why in lost]
    there = list[Connectome]()
    for connectome in connectomes:
        state, reason = _state_of(connectome, output_dir)
        if state == DONE:
            there.append(connectome)
        else:
            left_out.append(replace(connectome, state=state, reason=reason))
    runs: dict[tuple[Entities, str], list[Connectome]] = {}
    for run in (connectome for connectome in there if connectome.entity("run") is not None):
        runs.setdefault((drop(run.entities, ("run",)), run.atlas_name), []).append(run)
    for whole in [connectome for connectome in there if (connectome.entities, connectome.atlas_name) in runs]:
        if cleaning_choices(whole):  # what was cleaned here has a series of its own
            continue
        names = " and ".join(f"run-{run.entity('run')}" for run in runs[whole.entities, whole.atlas_name])
        reason = f"by its name it is the combination of {names}, which take part"
        left_out.append(replace(whole, state=COMBINED, reason=reason))
        there.remove(whole)
    folders = known_folders(output_dir)
    left_out = [replace(scan, reason=describe_without_folders(scan.reason, folders)) for scan in left_out]
    return Selected(tuple(there), tuple(sorted(left_out, key=lambda scan: (scan.recording, scan.atlas_name))))


def _state_of(connectome: Connectome, output_dir: Path) -> tuple[str, str]:
    """State of a recording whose FC is there, and why it is not done; without a status its files are all there is."""
    status = current_status(output_dir, connectome.recording, f"{connectome.path.stem}.")
    if status is not None and status.state in NOT_DONE:
        return status.state, status.reason or UNFINISHED
    quality = connectome.beside(QUALITY).with_suffix(".json")
    try:
        if quality.is_file():
            read_json(quality)
    except DatasetError as error:
        return FAILED, f"{error} Or {AGAIN}."
    return DONE, ""


def _without_fc(
    output_dir: Path, connectomes: Sequence[Connectome]
) -> Iterator[tuple[tuple[Entities, Entities], str, str]]:
    """Recordings and persons without an FC, or without one that was written under another atlas; state and reason."""
    known, stems = ({connectome.recording for connectome in connectomes}, {run.path.stem for run in connectomes})
    names = {name for name in recorded(output_dir) if not name.endswith(EMBEDDING)}
    used: dict[str, list[set[str]]] = {}  # a run of some may have skipped who has an FC by another
    for name in known:
        used.setdefault(name.partition("_")[0], []).append(set(name.split("_")))
    for name in sorted(names):
        status = current_status(output_dir, name)
        entities = parse_name(f"{name}_bold.tsv")[0]
        has_fc = any(parts.issuperset(name.split("_")) for parts in used.get(name.partition("_")[0], ()))
        states = NOT_DONE if has_fc else (*NOT_DONE, SKIPPED)
        if status is not None and status.state in states and name not in known:
            yield (entities, ()), status.state, status.reason or UNFINISHED
        for path in map(Path, status.outputs if status is not None and name in known else ()):
            if path.suffix == ".tsv" and path.stem.endswith(FC_END) and path.stem not in stems:
                atlas = drop(parse_name(path.name)[0], ("stat", *dict(entities)))
                yield (entities, atlas), FAILED, f"{path.as_posix()} is gone: {AGAIN}."
    for entities, sidecar in list_quality_sidecars(output_dir):  # of folders that were copied without their statuses
        if join(entities) not in known | names:
            try:
                reason, state = str(read_json(sidecar).get("Reason", "")), EXCLUDED
            except DatasetError as error:
                reason, state = f"{error} Or {AGAIN}.", FAILED
            yield (entities, ()), state if reason else FAILED, reason or f"its FC is gone: {AGAIN}."


def decide(gathered: Selected, path: Path | None, site: str = "") -> Selected:
    """Leave out what the file of decisions rejects; its labels are those of a site. Raises DatasetError."""
    if path is None:
        return gathered
    by_person: dict[str, list[Connectome]] = {}
    for scan in (*gathered.connectomes, *gathered.left_out):
        by_person.setdefault(scan.participant, []).append(scan)
    decisions = [decision for decision in read_decisions(path) if decision.decision == REJECT]
    people = [person_at(decision.wanted["sub"], site) for decision in decisions]
    asked = list(dict.fromkeys(people))
    names = match_ids(asked, {scan.participant for scan in gathered.connectomes})
    names |= match_ids([person for person in asked if person not in names], by_person)
    rejected, absent = dict[Connectome, str](), list[Exclusion]()
    for decision, person in zip(decisions, people, strict=True):  # a spreadsheet turns ``0012`` into ``12``
        person = names.get(person, person)
        meant = [scan for scan in by_person.get(person, ()) if decision.means(scan.recording, scan.labels)]
        for scan in meant:
            rejected.setdefault(scan, f"{path.name}: {decision.reason or 'named there'}")
        if not meant:
            session = f"ses-{decision.wanted['ses']}" if "ses" in decision.wanted else NO_SESSION
            which = f"{decision.recording}: " if decision.recording else ""
            absent.append(Exclusion(person, session, DECISION, f"{which}{path.name} {ABSENT}"))
    kept = tuple(scan for scan in gathered.connectomes if scan not in rejected)
    others = (scan for scan in gathered.connectomes if scan in rejected)
    left_out = (replace(scan, state=REJECTED, reason=rejected[scan]) for scan in others)
    return Selected(kept, (*gathered.left_out, *left_out), (*gathered.absent, *absent))


class Making(NamedTuple):
    """How a recording was made, by the sidecar of its quality table; empty where it is not there or damaged."""

    source: str  # name of the dataset
    words: frozenset[str]  # by which the dataset can be known
    cleaning: dict[str, Any]  # choices of the cleaning
    connectomes: dict[str, Any]  # choices of what is made of the series


def making_in(sidecar: Path) -> Making:
    """Read how a recording was made."""
    facts: Mapping[str, Any] = {}
    with suppress(DatasetError):  # for which the scan is left out
        facts = read_json(sidecar)
    sources, words = facts.get("Sources"), frozenset(str(facts.get("Dataset", "")).split())
    source = str(sources[0]).partition(":")[2].partition(":")[0] if isinstance(sources, list) and sources else ""
    stated = (facts.get(kind) for kind in ("CleaningChoices", "ConnectomeChoices"))
    return Making(source, words, *(dict(chosen) if isinstance(chosen, Mapping) else {} for chosen in stated))


def cleaning_choices(connectome: Connectome) -> dict[str, Any]:
    """Return the choices that a recording was cleaned with; empty where its sidecar does not say."""
    return making_in(connectome.beside(QUALITY).with_suffix(".json")).cleaning


def describe_choices(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Say in which choices two ways of cleaning differ."""
    parts = []
    for name in {**before, **now}:
        values = before.get(name, "not given"), now.get(name, "not given")
        earlier, other = (" ".join(value) if isinstance(value, list) else str(value) for value in values)
        parts += [f"--{name.replace('_', '-')} {earlier}, now {other}"] if earlier != other else []
    return "; ".join(parts)


def digest_choices(chosen: Mapping[str, Any]) -> str:
    """Eight characters that differ whenever choices of the cleaning do; empty where there are none."""
    plain = {name: float(value) if isinstance(value, (int, float)) else value for name, value in chosen.items()}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:8] if plain else ""


def write_recordings(output_dir: Path) -> Path:
    """Renew ``recordings.tsv`` of an output folder from its sidecars, where that may be written."""
    path = output_dir / FILE
    if may_write(output_dir):
        with lock(output_dir / LOCKS / path.name):
            text = table_text(tabulate_recordings(output_dir), RECORDINGS)
            if not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != text:
                write_text(path, text)
    return path


def tabulate_recordings(output_dir: Path) -> pd.DataFrame:
    """Return one row per recording and parcellation."""
    rows, door = list[tuple[Any, ...]](), selected(output_dir)
    for scan in (*door.connectomes, *door.left_out):
        if scan.path == NOWHERE:
            nothing = (UNUSABLE, None, None, None, math.nan, math.nan, math.nan)
            rows.append((scan.recording, scan.atlas_name or None, None, scan.state, scan.reason, *nothing))
            continue
        quality, making = read_quality(scan), making_in(scan.beside(QUALITY).with_suffix(".json"))
        verdict = quality.verdict if scan.state == DONE else UNUSABLE
        cautions = " ".join((scan.state == DONE and quality.cautions) or ()) or None
        path = scan.path.relative_to(output_dir).as_posix()
        known = (verdict, cautions, making.source, digest_choices(making.cleaning))
        figures = (quality.mean_fd, quality.seconds, quality.volumes)
        rows.append((scan.recording, scan.atlas_name, path, scan.state, scan.reason or None, *known, *figures))
    return pd.DataFrame(sorted(rows, key=lambda row: (row[0], row[1] or "")), columns=list(RECORDINGS.columns))
