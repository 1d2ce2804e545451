"""A copy of the outputs for others: without names of people, places and machines, and a list of what is not in it."""

from __future__ import annotations

import csv
import getpass
import gzip
import io
import os
import platform
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from fcpower_bids.claims import CLAIMS, alone
from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.outputs.dataset import DESCRIPTION, known_folders, without_folders
from fcpower_bids.outputs.recording import FULL
from fcpower_bids.outputs.status import DONE, EXCLUDED, Status, current_status, recorded
from fcpower_bids.outputs.tables import SERIES_COLUMNS, is_formula, json_text, matrix_text, read_json, read_series
from fcpower_bids.store import (
    DIGESTS,
    file_in_the_way,
    may_write,
    replace_folder,
    stored_path,
    sweep,
    write_bytes,
    write_text,
)

IDS = "logs/shared_ids.tsv"
"""Which name stands for which person: below the outputs, or next to the copy."""
WRITTEN = ".exported"
"""Names of the files of a copy: a later export replaces these, and refuses a copy that has others."""
ID_BYTES = 5
LONG = 5
"""Characters from which on a label is no word or number of a text by chance."""
CALLED = r"(?i:\b(?:participant|subject|person|patient|proband|volunteer|id)s?[ :=#]+)"
"""Words that turn a number or a letter into a person."""
COUNTED = r"(?<!session )(?<!run )(?<!site )(?<!scan )(?<!fold )"
HEAD = 300
"""Bytes of a gzip file that may hold the name that it had."""
WHOLE = ("descriptions.tsv", "layout_config.json", ".bidsignore")
PEOPLE = ("participant_id", "other", "person", "scan", "recording")
"""Columns of group tables that name people; such a table stays at home."""
COUNTS = ("n", "n_people", "n_scored")
FEWEST = 5
"""Rows of group tables about fewer people are left out."""
ORDINARY = {"root", "user", "users", "home", "data", "localhost", "admin"}
"""Names of users and hosts that are words of any text."""
README = """\
# Functional connectomes by fcpower_bids, a copy for sharing

Participants have new names. Names of the machine, its folders and its users are left out, as are pages, logs,
intermediate results, and tables of the group level with one row per person or about fewer than {fewest} people.

**Still personal, whatever the names:**

- the series, FC and FC^alpha of every scan: people can be recognised from them across scans and datasets, from FC^alpha
  nearly always;
- embeddings, which are made from the same;
- motion and quality of every scan, and the labels of sessions, tasks and runs: a session may be called after a date.

Share it as you would share the scans.

Left out: {left_out}.
"""


def labels_in(text: str, labels: Iterable[str], *, short: bool) -> set[str]:
    """Return the labels that a text names."""
    lowered = text.lower()
    words = set(re.findall(r"[a-z0-9+]+", lowered))
    found = set()
    for label in labels:
        if len(label) >= LONG:
            named = label.lower() in words and re.search(_alone(label.lower()), lowered)
        else:
            named = short and label.lower() in words and re.search(_short(label), text)
        if named:
            found.add(label)
    return found


def _alone(label: str) -> str:
    """A label between what is no letter or digit; neither the decimals of a number nor a negative one."""
    return rf"(?<![a-z0-9+])(?<!\d\.)(?<![^a-z0-9]-){re.escape(label)}(?![a-z0-9+])(?!\.\d)"


def _short(label: str) -> str:
    whole = rf"{re.escape(label)}(?![\w-])(?!\.\d)"
    if len(label) == 1 or (label.isdigit() and label[0] != "0"):
        return CALLED + whole
    return rf"(?:{CALLED}|(?<=[A-Za-z,;(] ){COUNTED}){whole}" if label.isdigit() else rf"(?<![\w.-]){whole}"


@dataclass
class _Words:
    """Words that must not be in a copy, with their replacements."""

    people: dict[str, str]
    roots: list[str]
    names: list[str]
    left_out: list[str] = field(default_factory=list)

    def clean(self, text: str) -> str:
        """Replace people, and paths by their last part."""
        for root in self.roots:
            text = text.replace(f"file://{root}/", "").replace(f"{root}/", "").replace(root, "...")
        return self.rename(without_folders(text))

    def rename(self, text: str) -> str:
        """Replace the participants in a text or a name."""
        return re.sub(r"sub-([A-Za-z0-9+]+)", lambda found: f"sub-{self.people.get(found[1], 'unknown')}", text)

    def remaining(self, name: str, content: bytes) -> list[str]:
        """Return what of it is still in the name or the content of a file."""
        inflated = gzip.decompress(content) if name.endswith(".gz") else content
        if name.endswith(".npy"):  # after the header come numbers, whose bytes are any letters
            inflated, _, _ = content.partition(b"\n")
        packed_as = content[:HEAD] if name.endswith(".gz") else b""
        text = f"{name}\n" + (inflated + packed_as).decode("utf-8", errors="replace")
        shared = set(self.people.values())
        found = {one for one in re.findall(r"sub-([A-Za-z0-9+]+)", text) if one not in {*shared, "unknown"}}
        found |= {root for root in self.roots if root in text}
        found |= {one for one in self.names if re.search(rf"(?<![\w-]){re.escape(one)}(?![\w-])", text)}
        sentences = name.endswith(".json") or name.startswith("group/")
        return sorted(found | labels_in(text, self.people.keys() - shared, short=sentences))


def share_outputs(output_dir: Path, share: Path, as_tables: bool = False) -> tuple[int, list[str], Path]:
    """Write the copy; return the number of its files, what is left out, and the file of who is who."""
    everyone = _statuses(output_dir)
    statuses = [status for status in everyone if status.state in (DONE, EXCLUDED)]
    if not any(status.outputs for status in statuses):
        raise DatasetError(f"{output_dir} holds no finished recordings. Give the folder of the participant level.")
    _check_place(output_dir.resolve(), share.resolve())
    ids = output_dir / IDS
    if not may_write(ids.parent):  # then next to the copy, and not in it
        ids = share.with_name(f"{share.name}_{ids.name}")
    words = _Words(_shared_ids(ids, everyone, output_dir / IDS), known_folders(output_dir, share), _names(output_dir))
    words.left_out += [
        words.rename(f"{status.recording} (its status is {status.state}: see fcpower_bids status)")
        for status in everyone
        if status.state not in (DONE, EXCLUDED)
    ]
    written: list[str] = []

    def fill(folder: Path) -> None:
        for source, content in _copies(output_dir, statuses, words, as_tables):
            name = words.rename(source)
            if rest := words.remaining(name, content):
                words.left_out.append(f"{name} (it names what cannot be replaced: {len(rest)})")
                continue
            write_bytes(stored_path(folder, name), content)
            written.append(name)
        write_text(folder / "README.md", README.format(fewest=FEWEST, left_out=_list(words.left_out)))
        write_text(folder / WRITTEN, "".join(f"{name}\n" for name in sorted([*written, "README.md", WRITTEN])))

    may_claim = may_write(output_dir / CLAIMS)
    with alone(output_dir / CLAIMS, "export") if may_claim else nullcontext():
        if may_claim:
            sweep([share])  # of exports that were killed
        replace_folder(share, fill)
    return len(written) + 1, words.left_out, ids


def _statuses(output_dir: Path) -> list[Status]:
    return [status for name in recorded(output_dir) if (status := current_status(output_dir, name)) is not None]


def _check_place(output_dir: Path, share: Path) -> None:
    if share == output_dir or share.is_relative_to(output_dir) or output_dir.is_relative_to(share):
        raise UsageError(f"{share} and {output_dir} do not lie side by side. Choose another folder for the copy.")
    if (file := file_in_the_way(share.parent)) is not None:
        raise UsageError(f"{file} is a file, so there can be no {share}. Choose another folder for the copy.")
    readme = share / "README.md"
    ours = readme.is_file() and readme.read_text(encoding="utf-8").startswith(README.splitlines()[0])
    if share.exists() and not ours and (not share.is_dir() or any(share.iterdir())):
        raise UsageError(f"{share} is not empty and no earlier copy. Choose a new folder.")
    theirs = _of_others(share) if ours else []
    if theirs:
        raise UsageError(
            f"{share} has {len(theirs)} files that no export has written ({theirs[0]}), and a copy is replaced as a "
            "whole. Move them, or choose a new folder."
        )


def _of_others(share: Path) -> list[str]:
    """Files and links in an earlier copy that are not of it."""
    known = (share / WRITTEN).read_text(encoding="utf-8").splitlines() if (share / WRITTEN).is_file() else []
    found = (one.relative_to(share).as_posix() for one in share.rglob("*") if one.is_symlink() or not one.is_dir())
    return sorted(set(found) - set(known))


def _shared_ids(path: Path, statuses: Iterable[Status], first: Path) -> dict[str, str]:
    """Return the new name of every participant: drawn once, kept in a file, so that later copies agree."""
    known: dict[str, str] = {}
    for place in (path, first):
        if place.is_file() and os.access(place, os.R_OK):
            with place.open(encoding="utf-8", newline="") as lines:
                known |= {row["participant_id"]: row["shared_id"] for row in csv.DictReader(lines, delimiter="\t")}
    people = sorted({found[1] for one in statuses if (found := re.match(r"sub-([A-Za-z0-9+]+)", one.recording))})
    for person in people:
        known.setdefault(person, secrets.token_hex(ID_BYTES))
    rows = [f"{person}\t{shared}\n" for person, shared in sorted(known.items())]
    write_text(path, "participant_id\tshared_id\n" + "".join(rows)).chmod(0o600)
    return known


def _names(output_dir: Path) -> list[str]:
    """Names of user and host."""
    try:
        names = [platform.node(), getpass.getuser(), output_dir.resolve().owner()]
    except (KeyError, OSError):
        names = [platform.node()]
    return sorted({name for name in names if len(name) > 2 and name.lower() not in ORDINARY})


def _copies(
    output_dir: Path, statuses: Iterable[Status], words: _Words, as_tables: bool
) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every file of the copy, participants in the order of their new names, arrays last."""
    about = read_json(stored_path(output_dir, DESCRIPTION))
    for key in ("SourceDatasets", "DatasetLinks"):
        about.pop(key, None)
    yield DESCRIPTION, json_text(_clean_json(about, words)).encode()
    for name in WHOLE:
        if (path := stored_path(output_dir, name)).is_file():
            yield name, path.read_bytes()
    atlases = output_dir / "sourcedata"
    for path in sorted(path for path in atlases.rglob("*") if path.is_file() and not path.name.startswith(".")):
        name = path.relative_to(output_dir).as_posix()
        yield name, _cleaned(stored_path(output_dir, name), words)
    names = {name for status in statuses for name in status.outputs}
    for name in sorted(names, key=lambda name: (name.endswith(".npy"), words.rename(name))):
        if (path := stored_path(output_dir, name)).is_file():
            yield from _as_tables(path, name, words) if as_tables else [(name, _cleaned(path, words))]
    yield from _group_copies(output_dir, words)


def _facts_of(path: Path) -> dict[str, Any]:
    """The sidecar of an array, itself a JSON; nothing for other files."""
    sidecar = path.with_suffix(".json")
    return read_json(sidecar) if path.suffix in (".json", ".npy") and sidecar.is_file() else {}


def _named_as_tables(name: str, content: bytes) -> bytes:
    """Let a sidecar name the tables of the series and matrices that it is about."""
    return re.sub(rb'_(timeseries|relmat)\.npy"', rb'_\1.tsv"', content) if name.endswith(".json") else content


def _as_tables(path: Path, name: str, words: _Words) -> Iterator[tuple[str, bytes]]:
    """Yield a file as without ``--compact``: with an array the table for which it stands, and their JSON."""
    if SERIES_COLUMNS not in _facts_of(path):
        yield name, _named_as_tables(name, _cleaned(path, words))
    elif path.suffix == ".npy":
        yield from _made_tables(path, name, words)


def _made_tables(array: Path, name: str, words: _Words) -> Iterator[tuple[str, bytes]]:
    """Yield table and JSON of an array; FC is an array as well."""
    about, (values, columns) = _facts_of(array), read_series(array)
    del about[SERIES_COLUMNS]
    is_matrix = name.endswith("_relmat.npy")
    columns = [_cell(column, words) for column in columns]
    table = matrix_text(values, columns, columns if is_matrix else None).encode()
    about[DIGESTS] = {".tsv": sha256(table).hexdigest()} | (about.get(DIGESTS, {}) if is_matrix else {})
    if is_matrix:
        about["StorageFormat"] = FULL
    name_of_json = name.replace(".npy", ".json")
    yield name.replace(".npy", ".tsv"), table
    yield name_of_json, _named_as_tables(name_of_json, json_text(_clean_json(about, words)).encode())
    if is_matrix:
        yield name, array.read_bytes()


def _group_copies(output_dir: Path, words: _Words) -> Iterator[tuple[str, bytes]]:
    """Tables about many people at once; those with a row per person stay at home."""
    folder = output_dir / "group"
    for path in sorted(folder.rglob("*.tsv.gz")) if folder.is_dir() else ():
        words.left_out.append(f"{path.relative_to(output_dir).as_posix()} (it is too long to be cleaned)")
    for path in sorted(folder.rglob("*.tsv")) if folder.is_dir() else ():
        name = path.relative_to(output_dir).as_posix()
        with stored_path(output_dir, name).open(encoding="utf-8", newline="") as lines:
            rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
        header = rows[0] if rows else []
        if set(header) & set(PEOPLE):
            words.left_out.append(f"{name} (it has a row per person)")
            continue
        kept = [row for row in rows[1:] if not _is_small(header, row)]
        if len(kept) < len(rows) - 1:
            words.left_out.append(f"{len(rows) - 1 - len(kept)} rows of {name} (about fewer than {FEWEST} people)")
        yield name, _table_text([header, *kept], words).encode()
        sidecar = path.with_suffix(".json")
        if sidecar.is_file():
            name = sidecar.relative_to(output_dir).as_posix()
            yield name, _cleaned(stored_path(output_dir, name), words)


def _is_small(header: list[str], row: list[str]) -> bool:
    counts = [value for key, value in zip(header, row, strict=False) if key in COUNTS]
    return any(re.fullmatch(r"\d+(\.0)?", value) and float(value) < FEWEST for value in counts)


def _cleaned(path: Path, words: _Words) -> bytes:
    """Return a file with its text cleaned; images as they are."""
    if path.suffix == ".json":
        return json_text(_clean_json(read_json(path), words)).encode()
    if path.suffix != ".tsv":
        return path.read_bytes()
    with path.open(encoding="utf-8", newline="") as lines:
        return _table_text(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE), words).encode()


def _table_text(rows: Iterable[list[str]], words: _Words) -> str:
    text = io.StringIO()
    for row in rows:
        text.write("\t".join(_cell(value, words) for value in row) + "\n")
    return text.getvalue()


def _cell(value: str, words: _Words) -> str:
    """Clean a cell; one that a spreadsheet would compute gets a quote before it."""
    if value[:1] in "0123456789":  # and where there is none
        return value
    return ("'" if is_formula(value) else "") + words.clean(value)


def _clean_json(value: Any, words: _Words) -> Any:
    if isinstance(value, Mapping):
        return {words.clean(str(key)): _clean_json(item, words) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean_json(item, words) for item in value]
    return words.clean(value) if isinstance(value, str) else value


def _list(left_out: list[str]) -> str:
    if not left_out:
        return "nothing else"
    return "".join(f"\n- {one}" for one in left_out)
