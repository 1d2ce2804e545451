"""People: the one reader of their tables, joined with the people and the sessions of the scans that are used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fcpower_bids.cohort.inclusion import CODE, NO_SESSION, VALUE, Exclusion, name_some, person_at
from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.roots import is_of_others, output_folders, people_home, people_tables
from fcpower_bids.outputs.tables import read_json
from fcpower_bids.records import SITE, label_order, site_in
from fcpower_bids.schema import MISSING, is_table, read_spreadsheet
from fcpower_bids.settings import Settings

MEANS_MISSING = re.compile(
    r"\b(missing|unknown|refused?|declined|not (available|applicable|known|done|assessed|collected|administered)|"
    r"no (data|answer|response)|don'?t know|do not know|n/?a)\b",
    re.IGNORECASE,
)
HINT_KEYS = ("MissingValues", "MissingValue", "MissingValueCodes")


def remove_codes(
    frame: pd.DataFrame, hints: Mapping[str, Any], named: Sequence[str] = ()
) -> tuple[pd.DataFrame, list[tuple[str, str]]]:
    """Set codes for missing values to missing: those named or declared, and what is infinite."""
    cleaned, removed = frame.copy(), dict[str, list[str]]()
    for name in map(str, frame.columns):
        column, pairs = frame[name], (code.rpartition("=") for code in named)  # CODE, or COLUMN=CODE
        listed = {*map(str, _codes_of(hints.get(name))), *(code for of, _, code in pairs if of in ("", name))}
        numbers = pd.to_numeric(pd.Series(list(listed), dtype=object), errors="coerce").dropna()
        is_code = column.isin([*listed, *numbers, *map(shorten, numbers), np.inf, -np.inf])
        for person in column.index[is_code]:
            removed.setdefault(str(person), []).append(f"{name} = {shorten(column[person])}")
        cleaned[name] = column.mask(is_code)
    return as_numbers(cleaned) if named else cleaned, [
        (person, f"{', '.join(texts)} read as missing") for person, texts in sorted(removed.items())
    ]


def shorten(value: Any) -> str:
    """Text of a value, whole numbers without decimals."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def as_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers where a column has nothing else; identifiers such as ``family_id`` stay text."""
    for name in frame.columns:
        numbers = pd.to_numeric(frame[name], errors="coerce")
        if not name.endswith("_id") and numbers.notna().sum() == frame[name].notna().sum():
            frame[name] = numbers.astype(float)
    return frame


def _codes_of(hint: Any) -> Iterable[Any]:
    if not isinstance(hint, Mapping):
        return
    for key in HINT_KEYS:
        value = hint.get(key, [])
        yield from value if isinstance(value, list) else [value]
    levels = hint.get("Levels")
    if isinstance(levels, Mapping):
        for code, level in levels.items():
            text = " ".join(map(str, level.values())) if isinstance(level, Mapping) else str(level)
            if MEANS_MISSING.search(text):
                yield code


PERSON_ID = "participant_id"
SESSION, SESSION_WHERE_REPEATED = "session_id", "session"
PERSON_NAMES = (
    *("id", "subid", "subject", "subjectid", "subjectkey", "srcsubjectid", "participant", "participantid", "eid"),
    *("recordid", "person", "personid", "vp", "code"),
)
"""Other names of the participant column, in small letters."""
SESSIONS = "sub-*/sub-*_sessions.tsv"
NAMED = 8
"""So many columns or sessions are named in a sentence."""

Scanned = Mapping[str, Sequence[str]]
"""Sessions of the scans of each person that are used, in their order; ``n/a`` of a scan without one."""


class Source(NamedTuple):
    """A table to read."""

    path: Path
    is_given: bool = False  # whether the user named it, so that it must have people, and its columns are the targets
    site: str = ""  # whose people its labels are
    sites: tuple[str, ...] = ()  # those that each row may name; empty where it names none


@dataclass(frozen=True, eq=False)
class PeopleTable:
    """One table as its file has it."""

    path: Path  # where it was read from
    frame: pd.DataFrame  # text, or NaN; a row per person, or per person and session where it has a column of these
    session: str = ""  # the column of sessions; empty where there is none
    hints: Mapping[str, Any] = field(default_factory=dict)  # its JSON
    is_given: bool = False


@dataclass(frozen=True, eq=False)
class Phenotypes:
    """Joined content of the tables."""

    frame: pd.DataFrame  # one row per person, indexed by ``participant_id``
    defaults: tuple[str, ...] = ()  # columns of the tables from which targets are taken when the user names none
    # columns that cannot be used, such as one on which two files disagree, and the sentence to raise where one is used
    conflicts: Mapping[str, str] = field(default_factory=dict)
    rows: tuple[Exclusion, ...] = ()  # codes for missing values, and sessions without a row, per person
    notes: tuple[str, ...] = ()  # notes for a reader of the results
    by_session: bool = False  # whether a table states values of sessions


def load_phenotypes(settings: Settings, scanned: Scanned) -> Phenotypes:
    """Load the tables that the settings name, and those of the datasets of the scans. Raises DatasetError."""
    folders = output_folders(settings, settings.output_dir)
    sites = [site for site in folders if site]
    notes: list[str] = []
    of_sites = ((site, table.parent) for site in sites for table in people_tables(folders[site], notes))
    datasets = list(dict.fromkeys(of_sites)) if sites else [("", people_home(settings.bids_dir))]
    given = {path.absolute(): Source(path, True, sites=tuple(sites)) for path in settings.group.phenotypes}
    tables = (Source(path, site=site) for site, dataset in datasets for path in tables_of(dataset))
    sources = [*given.values(), *(table for table in tables if table.path.absolute() not in given)]
    if not sites and any(tables_of(datasets[0][1])) and is_of_others(datasets[0][1], settings.output_dir):
        notes.append(
            f"By its description {datasets[0][1]} is another dataset than that of the recordings: its tables are "
            "joined by labels. Give the BIDS_DIR of these recordings if those are other people."
        )
    ours = settings.bids_dir / "participants.tsv"
    if sites and ours.resolve() not in {table.path.resolve() for table in sources} and is_table(ours):
        notes.append(f"{ours} is not read where --derivatives names output folders: give it with --phenotypes.")
    phenotypes = load_people(sources, scanned, datasets, settings.group.missing_values)
    frame, conflicts, notes = phenotypes.frame, phenotypes.conflicts, [*notes, *phenotypes.notes]
    if len(sites) > 1 or (sites and SITE not in frame):
        # a column of this name is of scanners, of which two datasets may call two alike
        of_people = pd.Series([site_in(str(person)) for person in frame.index], frame.index, dtype=object)
        named = frame[SITE].dropna() if SITE in frame else pd.Series(dtype=object)
        if named.astype(str).str.casefold().ne(of_people.loc[named.index].str.casefold()).any():
            notes.append(f"The column '{SITE}' has the name of --derivatives; call that of scanners otherwise.")
        conflicts = {name: why for name, why in conflicts.items() if name != SITE}
        frame = frame.assign(**{SITE: of_people})
    phenotypes = replace(phenotypes, frame=frame, conflicts=conflicts, notes=tuple(notes))
    known = [str(name) for name in phenotypes.frame.columns]
    for code in settings.group.missing_values:  # of a column that is not there: its values would be taken as measured
        column, sign, _ = code.rpartition("=")
        if sign and column not in known:
            raise DatasetError(
                f"missing_values {code}: no phenotype table has a column {describe_unknown(column, known)}"
            )
    return _with_classes(phenotypes, scanned, settings)


def _with_classes(phenotypes: Phenotypes, scanned: Scanned, settings: Settings) -> Phenotypes:
    """Add a column of zeros and ones for every target that is a column cut in two. Raises DatasetError."""
    frame, conflicts, notes = phenotypes.frame.copy(), dict(phenotypes.conflicts), list(phenotypes.notes)
    for name, (column, number) in settings.group.classes.items():
        if name in frame or [item.partition("=")[0].strip() for item in settings.group.targets].count(name) > 1:
            raise DatasetError(f"The target '{name}' has the name of a column or of another target. Give it its own.")
        if column not in frame:
            raise DatasetError(f"No phenotype table has a column {describe_unknown(column, list(map(str, frame)))}")
        values = pd.to_numeric(frame[column], errors="coerce")
        if column in conflicts or values.notna().sum() < frame[column].notna().sum():
            conflicts[name] = conflicts.get(column, f"The column '{column}' of the target '{name}' is not numeric.")
        frame[name] = values.ge(number).astype(float).where(values.notna())
        there = frame[name][frame.index.isin(list(scanned))]
        counts = [int((there == value).sum()) for value in (1, 0)]
        notes.append(f"{name} is {column} of {number:g} or more: {counts[0]} people, {counts[1]} below it.")
    return replace(phenotypes, frame=frame, conflicts=conflicts, notes=tuple(notes))


def tables_of(dataset: Path) -> list[Path]:
    """List ``participants.tsv`` and ``phenotype/*.tsv`` of a dataset."""
    paths = dataset / "participants.tsv", *sorted((dataset / "phenotype").glob("*.tsv"))
    return [path for path in paths if is_table(path)]


def load_people(
    sources: Sequence[Source],
    scanned: Scanned,
    datasets: Sequence[tuple[str, Path]] = (),
    missing_values: Sequence[str] = (),
) -> Phenotypes:
    """Read tables of people and join them with the scans.

    Ids are those of the scans where zeros, capitals or signs differ and one alone can be meant. Of a table with
    sessions everyone has the row of the session of their scan, the first that has one where several scans are used;
    who has none misses the values. Codes for missing values are those that are named or that the JSON declares.
    `datasets` have the sessions tables of the people of each site. Raises DatasetError.
    """
    notes: list[str] = []
    tables = [_read_table(source, notes) for source in sources]
    of_sessions = (_read_sessions(dataset, site, scanned) for site, dataset in datasets)
    tables += [table for table in of_sessions if table is not None]
    matched: dict[str, str] = {}
    without_scan: dict[str, None] = {}
    for place, table in enumerate(tables):  # each may have its own way to write an id
        there = table.frame[PERSON_ID].drop_duplicates().tolist()
        names = match_ids(there, scanned)
        matched |= names
        others = [name for name in there if name not in names and name not in scanned]
        names |= match_ids(others, without_scan)
        without_scan |= dict.fromkeys(names.get(name, name) for name in others)
        tables[place] = replace(table, frame=table.frame.assign(**{PERSON_ID: table.frame[PERSON_ID].replace(names)}))
    if matched:
        example = next(iter(matched))
        notes.append(
            f"{len(matched)} participant_id of the phenotype tables match scans only without leading zeros, capitals "
            f"or underscores (such as {example} and {matched[example]})."
        )
    rows: list[Exclusion] = []
    conflicts = _alike_but_for_capitals(tables)
    cleaned = []
    for table in tables:
        frame, lacking, unmet = _join_sessions(table, scanned)
        rows += lacking
        conflicts |= dict.fromkeys((str(name) for name in frame.columns), unmet) if unmet else {}
        frame, codes = remove_codes(as_numbers(frame), table.hints, missing_values)
        rows += [Exclusion(str(person), NO_SESSION, CODE, f"{table.path.name}: {text}") for person, text in codes]
        cleaned.append(frame)
    by_session = any(table.session for table in tables)
    return replace(_merge(tables, cleaned, conflicts), rows=tuple(rows), notes=tuple(notes), by_session=by_session)


def read_rows(path: Path, notes: list[str] | None = None) -> pd.DataFrame:
    """Read a table with a column of people, all cells as text; missing ones are NaN. Raises DatasetError."""
    sheet = read_spreadsheet(path)
    if PERSON_ID not in sheet.names and PERSON_ID in sheet.names[0].split():
        raise DatasetError(f"{path} has blanks between its columns. Save it with tabs, commas or semicolons.")
    if PERSON_ID not in sheet.names:
        known = [name for name in sheet.names if re.sub(r"[^a-z]", "", name.lower()) in PERSON_NAMES]
        close = known or get_close_matches(PERSON_ID, sheet.names, n=1)
        which = f"'{close[0]}'" if close else "the column that holds the participants"
        columns = ", ".join(sheet.names[:NAMED])
        raise DatasetError(f"{path} has no column {PERSON_ID}, only {columns}. Rename {which} to {PERSON_ID}.")
    frame = pd.DataFrame(sheet.rows, columns=list(sheet.names), dtype=object)
    frame = frame.mask(frame == "")
    if frame[PERSON_ID].isna().any():
        line = sheet.lines[int(frame[PERSON_ID].isna().to_numpy().argmax())]
        raise DatasetError(f"{path} has no {PERSON_ID} in line {line}. Fill it in, or remove the line.")
    # a program of tables may have made ``1.0`` of a 1
    frame[PERSON_ID] = ["sub-" + re.sub(r"(?i)^sub-|(?<=\d)\.0+$", "", str(label)) for label in frame[PERSON_ID]]
    if notes is not None:
        notes += sheet.notes
    return frame


def _at_site(source: Source, frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """People as the scans of several sites have them, ``sub-SITE+01``. Raises DatasetError."""
    if source.sites and frame[PERSON_ID].str.contains("+", regex=False).any():
        return frame  # a column of sites is then that of the scanners
    column = next((name for name in map(str, frame.columns) if name.casefold() == SITE), "")
    if source.sites and not column:
        raise DatasetError(
            f"{source.path} does not say whose people these are, and two sites may have one label. Add a column "
            f"'{SITE}' with the names of --derivatives, or write participant_id as sub-SITE+01."
        )
    if not source.sites:
        return frame.assign(**{PERSON_ID: [person_at(person, source.site) for person in frame[PERSON_ID]]})
    known = {site.casefold(): site for site in source.sites}
    sites = frame[column].fillna("").astype(str).str.casefold().map(known)
    named = ", ".join(map(str, dict.fromkeys(frame[column][sites.isna()].dropna())))
    if sites.isna().all():
        raise DatasetError(
            f"{source.path} names the sites {named or 'of nobody'} in its column '{column}', and --derivatives "
            f"{', '.join(known.values())}: write those there, or participant_id as sub-SITE+01."
        )
    if sites.isna().any():
        notes.append(f"{int(sites.isna().sum())} rows of {source.path} are of no site that is read: {named or 'n/a'}.")
    frame, sites = frame[sites.notna()], sites.dropna()  # rows of other sites are not read
    return frame.assign(**{PERSON_ID: list(map(person_at, frame[PERSON_ID], sites))})


def _read_table(source: Source, notes: list[str]) -> PeopleTable:
    """One table of people, which may be empty where the user did not name it."""
    path = source.path
    frame = read_rows(path, notes)
    if frame.empty and source.is_given:
        raise DatasetError(f"{path} has a header and no people. Fill it in, or leave it out.")
    frame = _at_site(source, frame, notes).drop_duplicates().reset_index(drop=True)
    repeated = frame[PERSON_ID][frame[PERSON_ID].duplicated()]
    session = next((str(name) for name in frame.columns if str(name).lower() == SESSION), "")
    if not session and SESSION_WHERE_REPEATED in frame.columns:
        # "session" alone may also be a count
        labels = frame[SESSION_WHERE_REPEATED].dropna().astype(str)
        session = SESSION_WHERE_REPEATED if len(repeated) or (len(labels) and labels.str.match("ses-").all()) else ""
    if len(repeated) and not session:
        raise DatasetError(
            f"{path} has more than one row for {repeated.iloc[0]}. Leave one row per person, or distinguish them by a "
            "column session_id."
        )
    sidecar = path.with_suffix(".json")
    hints = read_json(sidecar) if sidecar.is_file() else {}
    return PeopleTable(path, _with_sessions(frame, session, path), session, hints, source.is_given)


def _read_sessions(dataset: Path, site: str, scanned: Scanned) -> PeopleTable | None:
    """The sessions tables of all people of a site as one table; None where they have nothing but sessions."""
    lines: list[dict[str, str | None]] = []
    start = person_at("", site)
    for person in (name for name in scanned if name.startswith(start)):
        label = f"sub-{person.removeprefix(start)}"
        path = dataset / label / f"{label}_sessions.tsv"
        if path.is_file():
            sheet = read_spreadsheet(path)
            lines += [{PERSON_ID: person, **dict(zip(sheet.names, row, strict=True))} for row in sheet.rows]
    frame = pd.DataFrame(lines)
    if SESSION not in frame.columns or len(frame.columns) == 2:
        return None
    sidecar = dataset / "sessions.json"
    hints = read_json(sidecar) if sidecar.is_file() else {}
    frame = frame.where(~frame.isin(MISSING))
    return PeopleTable(Path(SESSIONS), _with_sessions(frame, SESSION, Path(SESSIONS)), SESSION, hints)


def _with_sessions(frame: pd.DataFrame, session: str, path: Path) -> pd.DataFrame:
    """Sessions as the scans have them, ``ses-`` before the label; people's rows in the order of these."""
    if not session:
        return frame
    labels = frame[session].fillna(NO_SESSION).astype(str)
    labels = labels.where(labels == NO_SESSION, "ses-" + labels.str.replace("^ses-", "", case=False, regex=True))
    frame = frame.assign(**{session: labels})
    keys = labels.map(without_zeros)
    if pd.DataFrame({PERSON_ID: frame[PERSON_ID], "key": keys}).duplicated().any():
        raise DatasetError(f"{path} has two rows for one person and session. Leave one row for each.")
    return frame.iloc[sorted(range(len(frame)), key=lambda row: label_order(labels.iloc[row]))]


def _join_sessions(table: PeopleTable, scanned: Scanned) -> tuple[pd.DataFrame, list[Exclusion], str]:
    """One row per person, that of the session of their scan; who has none, and the sentence where nobody has one."""
    frame = table.frame
    if not table.session:
        return frame.set_index(PERSON_ID), [], ""
    chosen: list[int] = []
    rows: list[Exclusion] = []
    joined = False
    for person, places in frame.reset_index(drop=True).groupby(PERSON_ID, sort=False).indices.items():
        labels = frame[table.session].iloc[places].tolist()
        sessions = scanned.get(str(person), ())
        keys = [without_zeros(label) for label in labels]
        there = [keys.index(key) for key in map(without_zeros, sessions) if key in keys]
        if there or not sessions or (len(labels) == 1 and NO_SESSION in (labels[0], *sessions)):
            joined = joined or bool(sessions)
            chosen.append(places[there[0] if there else 0])
            continue
        of_scans = "its scan has none" if NO_SESSION in sessions else f"its scans are of {name_some(sessions, NAMED)}"
        reason = f"{table.path.name} has rows of {name_some(labels, NAMED)}, and {of_scans}; its values are missing"
        rows.append(Exclusion(str(person), NO_SESSION, VALUE, reason))
    unmet = ""
    if rows and not joined:
        used = sorted({label for labels in scanned.values() for label in labels}, key=label_order)
        of_scans = "the scans have none" if used == [NO_SESSION] else f"the scans are of {name_some(used, NAMED)}"
        stated = frame[table.session].drop_duplicates().tolist()
        unmet = (
            f"{table.path} has values of {name_some(stated, NAMED)}, and {of_scans}. "
            f"Name sessions in its column {table.session} as the scans do, or leave one row per person without it."
        )
    values = frame.iloc[chosen].drop(columns=table.session).set_index(PERSON_ID)
    return values.reindex(pd.Index(sorted(set(frame[PERSON_ID])), name=PERSON_ID)), rows, unmet


def _alike_but_for_capitals(tables: Sequence[PeopleTable]) -> dict[str, str]:
    """Columns that nobody can tell from another by its name, and the sentence about both."""
    names = {str(name): table.path for table in reversed(tables) for name in table.frame.columns if name != PERSON_ID}
    spellings: dict[str, list[str]] = {}
    for name in sorted(names):
        spellings.setdefault(name.casefold(), []).append(name)
    sentences: dict[str, str] = {}
    for alike in (variants for variants in spellings.values() if len(variants) > 1):
        columns = " and ".join(f"'{name}' ({names[name]})" for name in alike)
        sentence = f"The columns {columns} differ in capitals alone. Rename or remove one of them."
        sentences |= dict.fromkeys(alike, sentence)
    return sentences


def match_ids(there: Sequence[str], people: Collection[str]) -> dict[str, str]:
    """Name people of a table as the scans do where zeros, capitals or signs differ, if exactly one fits.

    Of ``sub-SITE+01`` the site is compared by its capitals alone; a label with another sign in the place of the plus is
    met last.
    """

    def at_site(name: str, signs: str = r"(?!)") -> str:
        site, plus, label = name.removeprefix("sub-").rpartition("+")
        return site.casefold() + plus + re.sub(signs, "", without_zeros(label))

    def without_signs(name: str) -> str:
        return re.sub(r"[\W_]", "", without_zeros(name))

    names: dict[str, str] = {}
    for key in (at_site, partial(at_site, signs=r"[\W_]"), without_signs):
        taken, counts = {*there, *names.values()}, (Counter(map(key, people)), Counter(map(key, there)))
        scanned = {key(name): name for name in people if name not in taken and key(name)}
        left = (name for name in there if name not in people and name not in names and key(name) in scanned)
        for name in (name for name in left if key is not without_signs or "+" not in name):
            if all(count[key(name)] == 1 for count in counts):
                names[name] = scanned[key(name)]
    return names


def without_zeros(name: str) -> str:
    """``sub-0012A`` and ``sub-12a`` alike."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", name.removeprefix("sub-")).casefold()


def _merge(tables: Sequence[PeopleTable], frames: Sequence[pd.DataFrame], conflicts: dict[str, str]) -> Phenotypes:
    people = sorted({person for frame in frames for person in frame.index})
    columns: dict[str, pd.Series] = {}
    origins: dict[str, Path] = {}
    for table, frame in zip(tables, frames, strict=True):
        for name in map(str, frame.columns):
            values = frame[name].reindex(people)
            if name in columns:
                first = columns[name]
                differ = first.notna() & values.notna() & (first.astype(object) != values.astype(object))
                if first.dtype != values.dtype:  # a word in one of them makes its numbers text
                    differ &= pd.to_numeric(first, errors="coerce") != pd.to_numeric(values, errors="coerce")
                if differ.any():
                    person = differ.index[differ][0]
                    conflicts.setdefault(
                        name,
                        f"The column '{name}' differs between {origins[name]} and {table.path}: {person} has "
                        f"{first[person]} in one and {values[person]} in the other. Rename or remove one of the two "
                        "columns.",
                    )
                if first.dtype != values.dtype:
                    first, values = first.astype(object), values.astype(object)
                values = first.where(first.notna(), values)
            columns[name] = values
            origins.setdefault(name, table.path)
    given = any(table.is_given for table in tables)
    defaults = [
        str(name)
        for table, frame in zip(tables, frames, strict=True)
        if table.is_given or not (given or table.path == Path(SESSIONS))
        for name in frame.columns
    ]
    merged = pd.DataFrame(columns, index=pd.Index(people, name=PERSON_ID))
    return Phenotypes(merged, tuple(dict.fromkeys(defaults)), conflicts)


def describe_unknown(name: str, known: Sequence[str]) -> str:
    """End a sentence on a column that is not there: its name, and what may have been meant."""
    close = get_close_matches(name, known, n=1) or [column for column in known if column.lower() == name.lower()]
    hint = f"Did you mean '{close[0]}'?" if close else f"There are: {', '.join(known[:20]) or 'none'}."
    return f"'{name}'. {hint}"
