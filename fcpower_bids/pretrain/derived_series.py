"""Recordings for the corpus from the participant level's ``*_stat-mean_timeseries.tsv`` files."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.errors import DAMAGED_ARRAY, DatasetError, RecordingError, Unfit
from fcpower_bids.imaging.table_checks import EXACT
from fcpower_bids.pretrain.packing import Source
from fcpower_bids.schema import SERIES_VOLUMES
from fcpower_bids.store import load_json

SUFFIX = "_stat-mean_timeseries"
FEWEST_VOLUMES = 3
"""With fewer there is no correlation."""
UNSTATED = {"licence": "n/a", "citation": "n/a"}


def read_series(path: Path, volumes: float | None = None) -> NDArray[np.float64]:
    """Read a series: an array, or a table (header of parcel names, one row per volume, ``n/a`` for no data): (T, P)."""
    try:
        if path.suffix == ".npy":
            series = np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)
        else:
            series = pd.read_csv(path, sep="\t", na_values="n/a", **EXACT).to_numpy(dtype=np.float64)
    except (OSError, MemoryError, *DAMAGED_ARRAY) as error:
        raise RecordingError(f"{path} cannot be read ({error}); run the participant level on it again.") from error
    empty = np.isnan(series)
    if len(series) < FEWEST_VOLUMES or (empty.any(axis=0) & ~empty.all(axis=0)).any():
        raise RecordingError(f"{path} ends too early or has gaps; run the participant level on it again.")
    if volumes not in (None, len(series)):
        raise RecordingError(
            f"{path} has {len(series)} of the {volumes:g} volumes of its JSON; run the participant level on it again."
        )
    return series


def find_series(
    paths: Mapping[Path, str],
    folder: Path,
    dataset: str,
    *,
    families: Mapping[str, str] | None = None,
    sites: Mapping[str, str] | None = None,
    terms: Mapping[str, str] = UNSTATED,
) -> Iterator[Source]:
    """Yield series of an output folder for `pack_corpus`, each with the reason against it, if any. Raises DatasetError.

    What is not to be used need not be there: it leaves a corpus that has it.
    """
    families, sites = families or {}, sites or {}
    place = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    for path, reason in sorted(paths.items()):
        time, volumes, made = (math.nan, None, {}) if reason else _sidecar(path.with_suffix(".json"))
        entities = dict(re.findall(r"(?:^|_)([a-zA-Z]+)-([a-zA-Z0-9+]+)(?=_)", path.name))
        yield (
            {
                "id": f"{dataset}/{path.stem.removesuffix(SUFFIX)}",
                "dataset": dataset,
                "subject": entities["sub"],
                "session": entities.get("ses"),
                "family": families.get(entities["sub"]),
                "site": sites.get(entities["sub"]),
                **terms,
                "space": entities.get("space"),
                **made,
                "repetition_time": time,
                "source": "n/a" if reason else f"{path.stat().st_size} {path.stat().st_mtime_ns}",
                "place": place,
                "parcel_names": None if reason else _parcel_names(path),
            },
            partial(_refuse, reason) if reason else partial(read_series, path, volumes),
        )


def _refuse(reason: str) -> np.ndarray:
    raise Unfit(reason)


def _parcel_names(path: Path) -> list[str]:
    if path.suffix == ".tsv":
        return pd.read_csv(path, sep="\t", nrows=0).columns.tolist()
    try:
        return list(map(str, load_json(path.with_suffix(".json"))["Columns"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"The JSON of {path} does not name its columns; run the participant level again.") from error


def _sidecar(path: Path) -> tuple[float, float | None, dict[str, str]]:
    """Repetition time (NaN where the source states none), volumes where the JSON has them, and how it was cleaned."""
    try:
        facts: dict[str, Any] = load_json(path)
        time = float(facts.get("RepetitionTime", math.nan))
        if not (0 < time < math.inf or "RepetitionTime" not in facts):
            raise ValueError(f"RepetitionTime {time}")
        volumes = facts.get(SERIES_VOLUMES)
        return time, volumes if isinstance(volumes, (int, float)) else None, _cleaning(facts)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise DatasetError(f"{path} does not give a RepetitionTime; run the participant level again.") from error


def _cleaning(facts: Mapping[str, Any]) -> dict[str, str]:
    """Strategy, and lower and upper edge of the pass-band in Hz, as far as the JSON states them."""
    filters = facts.get("SoftwareFilters")
    band = filters.get("Butterworth") if isinstance(filters, Mapping) else None
    edges = [band.get(key) or "n/a" for key in ("HighPassHz", "LowPassHz")] if isinstance(band, Mapping) else []
    return {"cleaning": str(facts.get("NuisanceStrategy") or ""), "band": " ".join(map(str, edges))}
