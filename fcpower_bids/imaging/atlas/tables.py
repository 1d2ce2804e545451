"""The table next to a label image: which integer is which parcel, in which order, of which network and hemisphere."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.table_checks import table_fault

UNSTATED = "n/a"
NO_NAMES = (UNSTATED, "nan", "node")
BACKGROUND = ("", "???", "0", "n/a", "background", "unknown", "unlabeled", "unlabelled", "none")
LABEL_COLUMNS = ("index", "label", "value", "id")
NAME_COLUMNS = ("name", "label", "region")
NETWORK_COLUMNS = ("network", "network_label", "community")
HEMISPHERE_COLUMNS = ("hemisphere", "hemi")
SCHAEFER_NAME = re.compile(r"^(?:7|17)Networks_(LH|RH)_([A-Za-z]+)")
# A lone letter in the middle is something else: "HIP-head-l-rh" is the lateral part of a right hippocampus.
SIDE = re.compile(r"(?:^|[-_. ])(lh|rh|left|right)(?:[-_. ]|$)|^([lr])[-_. ]|[-_. ]([lr])$", re.IGNORECASE)


class AtlasTable(NamedTuple):
    """One entry per parcel in the order of the outputs; as in :class:`fcpower_bids.records.Atlas`."""

    labels: tuple[int, ...]
    names: tuple[str, ...]
    networks: tuple[str, ...]
    hemispheres: tuple[str, ...]


def read_atlas_table(path: Path) -> AtlasTable:
    """Read a BIDS ``dseg.tsv`` or anything close to one; rows are parcels in their order. Raises UsageError."""
    rows = _read_rows(path)
    label_column = _label_column(path, rows)
    name_column = _column(rows, (name for name in NAME_COLUMNS if name != label_column))
    if name_column is None:
        raise UsageError(f"The table {path} has no column 'name': add one, tab-separated, next to '{label_column}'.")
    labels = [int(row[label_column]) for row in rows]
    for label, row in zip(labels, rows, strict=True):
        if label < 0 or (label == 0 and row[name_column].lower() not in BACKGROUND):
            raise UsageError(
                f"The table {path} gives '{row[name_column]}' the label {label}, but 0 is the background of a label "
                "image: number the regions as the image does."
            )
    regions = [row for label, row in zip(labels, rows, strict=True) if label > 0]
    if not regions:
        raise UsageError(f"The table {path} has no parcels: give a row per label above 0.")
    return make_table(
        [label for label in labels if label > 0],
        [row[name_column] for row in regions],
        _values(regions, NETWORK_COLUMNS),
        _values(regions, HEMISPHERE_COLUMNS),
        origin=path,
    )


def make_table(
    labels: Sequence[int],
    names: Sequence[str],
    networks: Sequence[str] | None = None,
    hemispheres: Sequence[str] | None = None,
    *,
    origin: Path,
) -> AtlasTable:
    """Check labels and complete unique names, networks and hemispheres, from names. Raises UsageError."""
    if not labels:
        raise UsageError(f"{origin} has no parcels: give a label image with labels above 0.")
    repeated = [str(label) for label, count in Counter(labels).items() if count > 1]
    if repeated:
        raise UsageError(f"The table {origin} has label {', '.join(repeated)} more than once: keep one row per label.")
    unique = unique_names(labels, [" ".join(name.split()) for name in names])
    networks = networks or [UNSTATED] * len(labels)
    hemispheres = hemispheres or [UNSTATED] * len(labels)
    return AtlasTable(
        labels=tuple(int(label) for label in labels),
        names=unique,
        networks=tuple(_stated(n) or network_of(name) for n, name in zip(networks, unique, strict=True)),
        hemispheres=tuple(
            _side(_stated(h)) or hemisphere_of(name) for h, name in zip(hemispheres, unique, strict=True)
        ),
    )


def table_of_labels(labels: Iterable[int], known: Mapping[int, str], origin: Path) -> AtlasTable:
    """Make the table of an image that comes without one: its labels in ascending order."""
    ordered = sorted(labels)
    return make_table(ordered, [known.get(label) or f"parcel{label:03d}" for label in ordered], origin=origin)


def unique_names(labels: Sequence[int], names: Sequence[str]) -> tuple[str, ...]:
    """Name parcels differently, by label too where needed, and as neither a missing value nor a formula."""
    plain = [name.lstrip("=+-@ ") for name in names]
    plain = ["" if name.lower() in NO_NAMES else name for name in plain]
    named = [name or f"parcel{label:03d}" for label, name in zip(labels, plain, strict=True)]
    counts = Counter(named)
    unique: dict[str, None] = {}
    for label, name in zip(labels, named, strict=True):
        one = name if counts[name] == 1 else f"{name}_{label}"
        while one in unique or (one != name and one in counts):
            one = f"{one}_{label}"
        unique[one] = None
    return tuple(unique)


def network_of(name: str) -> str:
    """Return the network in a Schaefer name (``7Networks_LH_Vis_1`` is in ``Vis``), or "n/a"."""
    found = SCHAEFER_NAME.match(name)
    return found.group(2) if found else UNSTATED


def hemisphere_of(name: str) -> str:
    """Return "L" or "R" where the name says so as a word of its own (``HIP-head-rh``), or "n/a"."""
    found = SIDE.search(name)
    return next(filter(None, found.groups()))[0].upper() if found else UNSTATED


def encode_table(table: AtlasTable) -> bytes:
    """Return the table as a BIDS ``dseg.tsv``."""
    rows = ["index\tname\tnetwork\themisphere"]
    rows += ["\t".join(map(str, row)) for row in zip(*table, strict=True)]
    return ("\n".join(rows) + "\n").encode()


def _read_rows(path: Path) -> list[dict[str, str]]:
    try:
        if (fault := table_fault(path)) is not None:
            raise UsageError(f"The atlas table {path} {fault}.")
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, delimiter="\t", restval="", restkey="more")
            rows = [{str(key).strip().lower(): str(value).strip() for key, value in row.items()} for row in reader]
    except FileNotFoundError:
        raise UsageError(f"The atlas table {path} does not exist: check the path.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"The atlas table {path} cannot be read ({error}): save it as tab-separated UTF-8.") from error
    if not rows:
        raise UsageError(f"The atlas table {path} has no rows: give one per parcel, tab-separated, under a header.")
    return rows


def _label_column(path: Path, rows: list[dict[str, str]]) -> str:
    for column in LABEL_COLUMNS:
        if all(re.fullmatch(r"[+-]?\d+", row.get(column, "")) for row in rows):
            return column
    raise UsageError(
        f"The table {path} has no column 'index' of whole numbers (its columns: {', '.join(rows[0])}): "
        "add the label of each parcel in the image, tab-separated."
    )


def _column(rows: list[dict[str, str]], candidates: Iterable[str]) -> str | None:
    return next((column for column in candidates if column in rows[0]), None)


def _values(rows: list[dict[str, str]], candidates: Iterable[str]) -> list[str] | None:
    column = _column(rows, candidates)
    return [row[column] for row in rows] if column else None


def _stated(value: str) -> str:
    return "" if value.lower() in ("", "n/a", "nan") else value


def _side(value: str) -> str:
    return value[0].upper() if value.lower() in ("l", "lh", "left", "r", "rh", "right") else value
