"""Phenotypes, one row per person: ``participants.tsv``, ``phenotype/*.tsv``, sessions tables and the user's files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.cohort.inclusion import Exclusion
from fcpower_bids.cohort.joining import describe_matches, match_ids
from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.spreadsheets import MISSING, is_table, read_spreadsheet
from fcpower_bids.outputs.tables import read_json
from fcpower_bids.settings import Assembly, Selection

PERSON = "participant_id"
SESSION, SESSION_WHERE_REPEATED = "session_id", "session"
PERSON_NAMES = (
    *("id", "subid", "subject", "subjectid", "subjectkey", "srcsubjectid", "participant", "participantid", "eid"),
    *("recordid", "person", "personid", "vp", "code"),
)
"""Other names of the participant column, in small letters."""
SESSIONS = "sub-*/sub-*_sessions.tsv"


@dataclass(frozen=True, eq=False)
class PhenotypeTable:
    """One file."""

    path: Path  # where it was read from
    frame: pd.DataFrame  # one row per person, indexed by ``sub-01``; numbers where a column has numbers only
    hints: Mapping[str, Any] = field(default_factory=dict)  # its JSON
    is_default: bool = False  # whether its numeric columns are targets when the user names none


@dataclass(frozen=True, eq=False)
class Phenotypes:
    """Joined content of the tables."""

    frame: pd.DataFrame  # one row per person, indexed by ``participant_id``
    defaults: tuple[str, ...] = ()  # columns of the tables from which targets are taken when the user names none
    # columns on which two files disagree, and the sentence to raise when one of them is used
    conflicts: Mapping[str, str] = field(default_factory=dict)
    rows: tuple[Exclusion, ...] = ()  # codes for missing values, per person
    notes: tuple[str, ...] = ()  # notes for a reader of the results
    renamed: int = 0  # people whose id in a table differs from that of their scans
    unread: str = ""  # that a table of the dataset is not read, and why


def load_phenotypes(settings: Assembly, people: Sequence[str]) -> Phenotypes:
    """Read and merge all phenotype tables. Raises DatasetError."""
    notes: list[str] = []
    of_sites, given = settings.output_dir / "participants.tsv", {path.absolute() for path in settings.phenotypes}
    of_dataset = [of_sites] if is_table(of_sites) else _own_tables(settings)
    tables = [
        *(read_people_table(path, settings, notes, is_default=True) for path in settings.phenotypes),
        *(
            read_people_table(path, settings, notes, is_default=not settings.phenotypes, is_given=False)
            for path in of_dataset
            if path.absolute() not in given
        ),
        *_sessions_table(settings, people, notes),
    ]
    matched: dict[str, str] = {}
    for place, table in enumerate(tables):  # each may have its own way to write an id
        names = match_ids([str(name) for name in table.frame.index], people)
        matched |= names
        tables[place] = replace(table, frame=table.frame.rename(index=names))
    notes += [describe_matches(matched)] if matched else []
    _check_codes(settings.missing_values, tables)
    rows: list[Exclusion] = []
    cleaned = []
    for table in tables:
        frame, codes = remove_codes(table.frame, table.hints, settings.missing_values)
        rows += [Exclusion(str(person), "n/a", "value", f"{table.path.name}: {text}") for person, text in codes]
        cleaned.append(frame)
    unread = _describe_unread(settings)
    notes += [unread] if unread else []
    return replace(_merge(tables, cleaned, tuple(rows), notes), renamed=len(matched), unread=unread)


def _own_tables(settings: Assembly) -> list[Path]:
    root = settings.bids_dir
    return [path for path in (root / "participants.tsv", *sorted((root / "phenotype").glob("*.tsv"))) if is_table(path)]


def _describe_unread(settings: Assembly) -> str:
    """Say that the people of combined sites stand in the place of those of the dataset, where both have tables."""
    of_sites = settings.output_dir / "participants.tsv"
    given = {path.absolute() for path in settings.phenotypes}
    own = [str(path) for path in _own_tables(settings) if path.absolute() not in given]
    if not is_table(of_sites) or not own:
        return ""
    return (
        f"{', '.join(own)}: not read, for {of_sites} of the combined sites stands in the place of the tables of one "
        "dataset, whose labels may be those of other people. Where they are the same, give them with --phenotypes."
    )


def read_phenotype_table(path: Path, notes: list[str] | None = None) -> pd.DataFrame:
    """Read a TSV or CSV with all cells as text; missing ones are NaN. Raises DatasetError."""
    sheet = read_spreadsheet(path)
    if PERSON not in sheet.names and PERSON in sheet.names[0].split():
        raise DatasetError(f"{path} has blanks between its columns. Save it with tabs, commas or semicolons.")
    if PERSON not in sheet.names:
        raise DatasetError(
            f"{path} has no column {PERSON}, only {', '.join(sheet.names[:8])}. {_rename(sheet.names)} to {PERSON}."
        )
    frame = pd.DataFrame(sheet.rows, columns=list(sheet.names), dtype=object)
    frame = frame.mask(frame == "")
    if frame[PERSON].isna().any():
        line = sheet.lines[int(frame[PERSON].isna().to_numpy().argmax())]
        raise DatasetError(f"{path} has no {PERSON} in line {line}. Fill it in, or remove the line.")
    frame[PERSON] = ["sub-" + re.sub("^sub-", "", str(label), flags=re.IGNORECASE) for label in frame[PERSON]]
    said = list(sheet.notes)
    if (again := int(frame.duplicated().sum())) > 0:
        frame = frame.drop_duplicates().reset_index(drop=True)
        said.append(f"{path.name} has {again} rows twice, the same in every column; one of each is used.")
    if notes is not None:
        notes += said
    return frame


def _rename(names: Sequence[str]) -> str:
    """The column that may hold the participants."""
    known = [name for name in names if re.sub(r"[^a-z]", "", name.lower()) in PERSON_NAMES]
    close = known or get_close_matches(PERSON, names, n=1)
    return f"Rename '{close[0]}'" if close else "Rename the column that holds the participants"


def read_people_table(
    path: Path, settings: Selection, notes: list[str], is_default: bool = False, is_given: bool = True
) -> PhenotypeTable:
    """Read one table, one row per person. Raises DatasetError."""
    frame = read_phenotype_table(path, notes)
    if frame.empty and is_given:
        raise DatasetError(f"{path} has a header and no people. Fill it in, or leave it out.")
    sidecar = path.with_suffix(".json")
    # "session" alone may also be a count; it distinguishes rows only where a person has several.
    column = SESSION if SESSION in frame.columns or not frame[PERSON].duplicated().any() else SESSION_WHERE_REPEATED
    if column in frame.columns:
        frame = _first_session(frame, column, path, settings, notes)
    repeated = frame[PERSON][frame[PERSON].duplicated()]
    if len(repeated):
        raise DatasetError(
            f"{path} has more than one row for {repeated.iloc[0]}. Leave one row per person, or distinguish them by a "
            "column session_id."
        )
    return PhenotypeTable(path, _typed(frame), read_json(sidecar) if sidecar.is_file() else {}, is_default)


def _first_session(
    frame: pd.DataFrame, session: str, path: Path, settings: Selection, notes: list[str]
) -> pd.DataFrame:
    """One row per person: that of the first session by its label, among those that the user selected."""
    labels = frame[session].astype(str).str.removeprefix("ses-")
    wanted = {label.removeprefix("ses-") for label in settings.session_label}
    if wanted:
        frame = frame[labels.isin(wanted)]
        labels = labels[frame.index]
    if pd.DataFrame({PERSON: frame[PERSON], "label": labels}).duplicated().any():
        raise DatasetError(f"{path} has two rows for one person and session. Leave one row for each.")
    first = frame.loc[labels.sort_values(kind="stable").index].drop_duplicates(PERSON)
    if len(first) < len(frame):
        notes.append(f"{path.name} has several sessions per person; the values of the first session are used.")
    return first.drop(columns=session).sort_index()


def _sessions_table(settings: Assembly, people: Sequence[str], notes: list[str]) -> Iterator[PhenotypeTable]:
    """The sessions tables of all people as one table, with the values of the first session."""
    lines: list[dict[str, str | None]] = []
    for person in people:
        path = settings.bids_dir / person / f"{person}_sessions.tsv"
        if path.is_file():
            sheet = read_spreadsheet(path)
            lines += [{PERSON: person, **dict(zip(sheet.names, row, strict=True))} for row in sheet.rows]
    frame = pd.DataFrame(lines)
    if SESSION not in frame.columns or len(frame.columns) == 2:
        return
    frame = frame.where(~frame.isin(MISSING))
    frame = _first_session(frame, SESSION, Path(SESSIONS), settings, notes)
    sidecar = settings.bids_dir / "sessions.json"
    yield PhenotypeTable(Path(SESSIONS), _typed(frame), read_json(sidecar) if sidecar.is_file() else {})


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers where a column has nothing else; identifiers such as ``family_id`` stay text."""
    return _as_numbers(frame.set_index(PERSON))


def _as_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    for name in frame.columns:
        numbers = pd.to_numeric(frame[name], errors="coerce")
        if not name.endswith("_id") and numbers.notna().sum() == frame[name].notna().sum():
            frame[name] = numbers.astype(float)
    return frame


def _merge(
    tables: Sequence[PhenotypeTable], frames: Sequence[pd.DataFrame], rows: tuple[Exclusion, ...], notes: list[str]
) -> Phenotypes:
    people = sorted({person for frame in frames for person in frame.index})
    columns: dict[str, pd.Series] = {}
    origins: dict[str, Path] = {}
    conflicts: dict[str, str] = {}
    for table, frame in zip(tables, frames, strict=True):
        for name in map(str, frame.columns):
            values = frame[name].reindex(people)
            if name in columns:
                if (sentence := _conflict(name, columns[name], values, (origins[name], table.path))) is not None:
                    conflicts.setdefault(name, sentence)
                first = columns[name]
                if first.dtype != values.dtype:
                    first, values = first.astype(object), values.astype(object)
                values = first.where(first.notna(), values)
            columns[name] = values
            origins.setdefault(name, table.path)
    defaults = [str(name) for table in tables if table.is_default for name in table.frame.columns]
    merged = pd.DataFrame(columns, index=pd.Index(people, name=PERSON))
    return Phenotypes(merged, tuple(dict.fromkeys(defaults)), conflicts, rows, tuple(notes))


def _conflict(name: str, first: pd.Series, second: pd.Series, paths: tuple[Path, Path]) -> str | None:
    both = first.notna() & second.notna()
    differ = both & (first.astype(object) != second.astype(object))
    if not differ.any():
        return None
    person = differ.index[differ][0]
    return (
        f"The column '{name}' differs between {paths[0]} and {paths[1]}: {person} has {first[person]} in one and "
        f"{second[person]} in the other. Rename or remove one of the two columns."
    )


CODES = frozenset(
    [int(digit * length) for digit in "789" for length in (2, 3, 4, 5)]
    + [-int(digit * length) for digit in "789" for length in (1, 2, 3, 4, 5)]
)
"""99, 999, 9999, 99999, the same of 7 and 8, their negatives, and -7, -8, -9."""
MEANS_MISSING = re.compile(
    r"\b(missing|unknown|refused?|declined|not (available|applicable|known|done|assessed|collected|administered)|"
    r"no (data|answer|response)|don'?t know|do not know|n/?a)\b",
    re.IGNORECASE,
)
HINT_KEYS = ("MissingValues", "MissingValue", "MissingValueCodes")


def remove_codes(
    frame: pd.DataFrame, hints: Mapping[str, Any], named: Sequence[str] = ()
) -> tuple[pd.DataFrame, list[tuple[str, str]]]:
    """Set codes for missing values to missing: named, declared, infinite, or `CODES` that stand apart."""
    cleaned = frame.copy()
    found: dict[str, list[str]] = {}
    for name in map(str, frame.columns):
        column = frame[name]
        pairs = (code.rpartition("=") for code in named)  # CODE, or COLUMN=CODE
        listed = [*_codes_of(hints.get(name)), *(code for of, _, code in pairs if of in ("", name))]
        codes = {str(code) for code in listed} | {_short(_number(code)) for code in listed}
        declared = [bool(codes) and not pd.isna(value) and _short(value) in codes for value in column]
        is_code = np.array(declared, dtype=bool) | _obvious(column)
        for person in column.index[is_code]:
            found.setdefault(str(person), []).append(f"{name} = {_short(column[person])}")
        cleaned[name] = column.mask(is_code)
    return _as_numbers(cleaned) if named else cleaned, [
        (person, f"{', '.join(texts)} read as missing") for person, texts in sorted(found.items())
    ]


def _short(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _check_codes(named: Sequence[str], tables: Iterable[PhenotypeTable]) -> None:
    """Refuse a code of a column that is not there, whose values would be taken as measured."""
    known = [str(name) for table in tables for name in table.frame.columns]
    for code in named:
        column, sign, _ = code.rpartition("=")
        if sign and column not in known:
            close = get_close_matches(column, known, n=1)
            hint = f"Did you mean '{close[0]}'?" if close else f"There are: {', '.join(known[:20]) or 'none'}."
            raise DatasetError(f"missing_values {code}: no phenotype table has a column '{column}'. {hint}")


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


def _number(code: Any) -> Any:
    try:
        return float(code)
    except (TypeError, ValueError):
        return code


def _obvious(column: pd.Series) -> NDArray[np.bool_]:
    if column.dtype != np.float64:
        return np.zeros(len(column), dtype=bool)
    values = column.to_numpy()
    suspect = np.isin(values, list(CODES))
    others = values[np.isfinite(values) & ~suspect]
    if not len(others):
        return suspect | np.isinf(values)
    low, high = float(others.min()), float(others.max())
    width = high - low
    with np.errstate(over="ignore"):  # of values that no measurement is, which are named where they are used
        above = (values > high + width) & (values > 2 * high)
        below = (values < 0) & ((low >= 0) | ((values < low - width) & (values < 2 * low)))
    return (suspect & (above | below)) | np.isinf(values)
