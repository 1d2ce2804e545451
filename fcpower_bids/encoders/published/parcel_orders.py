"""The orders in which published encoders expect their parcels, and how the parcels of a recording are found in them.

By region name, never by position. The same 400 parcels of
Schaefer 2018 come with 7- and 17-network names, in two orders, and were renamed between releases. The tables in
``data/parcel_orders`` hold every spelling of each parcel: which name stands for which parcel was found by centroid
(MNI, 2 mm; matched parcels are less than 0.6 mm apart, the next nearest at least 4.9 mm).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.errors import RecordingError, UsageError

Columns = NDArray[np.intp]
BUCKNER = tuple(
    f"Buckner7_{network}" for network in ("Vis", "SomMot", "DorsAttn", "SalVentAttn", "Limbic", "Cont", "Default")
)


@dataclass(frozen=True)
class ParcelOrder:
    """Parcels of one atlas in one order."""

    atlas: str  # short name of the atlas, as for ``--atlas``
    # complete lists of names, each in this order; a recording must use one list throughout
    spellings: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The current spelling."""
        return self.spellings[0]

    def __len__(self) -> int:
        return len(self.names)

    def match(self, names: Sequence[str]) -> Columns:
        """Position in `names` of each parcel of this order. Raises RecordingError."""
        where = {name: i for i, name in enumerate(names)}
        if len(where) != len(names):
            raise RecordingError("The recording has two parcels of the same name; parcels are matched by name.")
        best = max(self.spellings, key=lambda spelling: sum(name in where for name in spelling))
        missing = [name for name in best if name not in where]
        # All names of Schaefer 100 are names of other parcels in Schaefer 400: more of a kind is another resolution.
        kinds = {name.split("_")[0] for name in best if re.match(r"\d+Networks_", name)}
        others = [name for name in names if name.split("_")[0] in kinds and name not in set(best)]
        if not missing and not others:
            return np.array([where[name] for name in best])
        wrong = missing or others
        what = "are not among" if missing else "would be found, but others of the same kind are too among"
        raise RecordingError(
            f"{len(missing) or len(self)} of the {len(self)} parcels of {self.atlas} {what} the {len(names)} of the "
            f"recording ({', '.join(wrong[:3])}{', ...' if len(wrong) > 3 else ''}); use --atlas {self.atlas}."
        )


@cache
def parcel_order(atlas: str) -> ParcelOrder:
    """Return the order of a known atlas. Raises UsageError."""
    if atlas in ("Schaefer450", "Schaefer450x17"):
        first, second = parcel_order("TianS3"), parcel_order(atlas.replace("450", "400"))
        return ParcelOrder(atlas, tuple((*first.names, *names) for names in second.spellings))
    if atlas == "Buckner7":
        return ParcelOrder(atlas, (BUCKNER,))
    if atlas == "TianS3":
        return ParcelOrder(atlas, (tuple(row["name"] for row in _rows("TianS3")),))
    if atlas not in ("Schaefer100", "Schaefer400", "Schaefer400x17"):
        raise UsageError(f"There is no parcel order called '{atlas}'.")
    index = "index17" if atlas.endswith("x17") else "index7"
    rows = sorted(_rows(atlas.removesuffix("x17")), key=lambda row: int(row[index]))
    spelled = ("name7", "name7_before", "name17", "name17_before")
    columns = sorted((column for column in spelled if column in rows[0]), key=lambda c: index[5:] not in c)
    return ParcelOrder(atlas, tuple(tuple(row[column] for row in rows) for column in columns))


def match_labels(names: Sequence[str], n_labels: int = 424) -> Columns:
    """Position in `names` of the parcels that are named by their label 1 ... n_labels, as ``parcel001``."""
    matches = [re.fullmatch(r"[A-Za-z]\w*?_?0*([1-9]\d*)|0*([1-9]\d*)", name) for name in names]
    labels: Mapping[int, int] = {int(match[1] or match[2]): i for i, match in enumerate(matches) if match}
    if len(names) != n_labels or set(labels) != set(range(1, n_labels + 1)):
        raise RecordingError(
            f"The {len(names)} parcels of the recording are not the labels 1 to {n_labels} (as parcel001); "
            f"give the image of the atlas A{n_labels} without a table of names."
        )
    return np.array([labels[label] for label in range(1, n_labels + 1)])


def _rows(table: str) -> list[dict[str, str]]:
    text = (files("fcpower_bids") / "data" / "parcel_orders" / f"{table}.tsv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t"))
