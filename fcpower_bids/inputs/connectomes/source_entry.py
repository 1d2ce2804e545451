"""What a source offers: one recording under one parcellation, and where its numbers are."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from fcpower_bids.errors import DatasetError
from fcpower_bids.records import Entities

SERIES, MATRIX = "series", "matrix"


@dataclass(frozen=True)
class Offered:
    """One recording as another program left it.

    Attributes
    ----------
    path : Path
        Its series or matrix.
    kind : str
        ``series`` (T, P) or ``matrix``.
    entities, atlas : Entities
        For the names of what is written.
    key : str
        Variable of a file that holds several.
    scale, order : str
        Of a matrix, see `fcpower_bids.core.connectome.matrix_formats.correlations_from`.
    parcels_first : bool
        Whether a series is stored as (P, T).
    repetition_time, seconds, mean_fd : float
        NaN where unknown.
    volumes : float
        Volumes that the series or matrix was made from; NaN where unknown.
    outliers : Path or None
        Table with 1 for every volume that the source leaves out of its matrices though it is in the series.
    strategy : str
        What the source says of its denoising.
    """

    path: Path
    kind: str
    entities: Entities
    atlas: Entities
    key: str = ""
    scale: str = "r"
    order: str = "upper"
    parcels_first: bool = False
    repetition_time: float = math.nan
    seconds: float = math.nan
    mean_fd: float = math.nan
    volumes: float = math.nan
    outliers: Path | None = None
    strategy: str = "unknown"

    @property
    def name(self) -> str:
        """The recording in one string."""
        return "_".join(f"{key}-{value}" for key, value in self.entities)


def label_of(text: str, path: Path) -> str:
    """Return a text as the label of a BIDS entity, which has letters and digits only.

    Raises
    ------
    DatasetError
        If nothing is left.
    """
    label = re.sub(r"[^A-Za-z0-9]", "", text)
    if not label:
        raise DatasetError(f"{path}: '{text}' has no letter or digit, so it cannot name a participant or session.")
    return label


def check_names(offered: list[Offered]) -> None:
    """Refuse two files that would be written under one name.

    Raises
    ------
    DatasetError
        Names both.
    """
    seen: dict[tuple[Entities, Entities], Path] = {}
    for one in offered:
        other = seen.setdefault((one.entities, one.atlas), one.path)
        if other != one.path:
            raise DatasetError(
                f"{other} and {one.path} would be the same recording of the same parcellation. Tell them apart by "
                "participant, session or run, or leave one out."
            )
