"""Handling of volumes and parcels that cannot be signal, and of a table of another recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fcpower_bids.core.signal.plausibility import (
    FOREIGN,
    SCALED,
    STEP_TOLD,
    Agreement,
    StrayVolumes,
    compare_with_table,
    find_stray,
    gain_step,
)
from fcpower_bids.imaging.confounds.regressors import Confounds
from fcpower_bids.imaging.series.streaming import VolumeFigures

MOST_VOLUMES = 0.1
"""Share of the volumes that may be left out because they cannot be signal; more exclude the recording."""
MOST_PARCELS = 0.2
"""Share of the parcels that may be."""
STEP_EXCLUDED = 0.1
"""Step of the level of the whole brain from which on the recording is excluded."""
REMEDY = "Copy the series again, or run fMRIPrep again."
REMEDY_TABLE = "Put the table of this recording into the folder of the series, or run fMRIPrep again."
SHOWN = 8


class Plausibility(NamedTuple):
    """Findings in one recording, and their consequences."""

    stray: np.ndarray  # (T,): volumes to leave out
    parcels: list[np.ndarray]  # (P,): parcels to leave out, one array per atlas
    excluded: str  # why the recording cannot be used; empty when it can
    notes: tuple[str, ...]  # sentences for the page
    figures: dict[str, Any]  # for the quality table


def judge_series(
    means: Sequence[np.ndarray], measured: VolumeFigures | None, confounds: Confounds, kept: np.ndarray, in_use: bool
) -> Plausibility:
    """Judge the parcel means of one recording. Shapes and units: means (T, P), kept (T,)."""
    stacked = np.hstack(means)
    found = find_stray(stacked, None if measured is None else measured.farthest)
    found = found._replace(stray=found.stray & kept)  # motion that was censored is no damage
    usable = ~found.volumes & (np.arange(len(kept)) >= confounds.n_dummy)
    size, volume = gain_step(np.where(found.parcels, np.nan, stacked), kept & usable)
    fit = Agreement(np.nan, np.nan, 0, np.nan)
    if measured is not None:
        table = (confounds.global_signal, confounds.dvars)
        fit = compare_with_table(measured.global_signal, measured.dvars, table, usable)
    ends = np.cumsum([mean.shape[1] for mean in means])[:-1]
    seen = np.isfinite(stacked).all(axis=0)
    sentences = [*_about_volumes(found), *_about_parcels(found), *_about_step(size, volume), *_about_table(fit)]
    grave = [
        found.volumes.mean() > MOST_VOLUMES,
        found.parcels.sum() > MOST_PARCELS * max(seen.sum(), 1),
        size >= STEP_EXCLUDED,
        in_use and is_foreign(fit),
    ]
    return Plausibility(
        found.volumes,
        np.split(found.parcels, ends),
        " ".join(["The data cannot be right.", *sentences]) if any(grave) else "",
        tuple(sentences),
        {
            "empty_volumes": int(found.empty.sum()),
            "copied_volumes": int(found.copied.sum()),
            "stray_volumes": int(found.stray.sum()),
            "gain_step": size,
            "table_global_signal": _number(fit.global_signal),
            "table_dvars": _number(fit.dvars),
            "table_lag": fit.lag,
            "table_level": _number(fit.level),
        },
    )


def is_foreign(fit: Agreement) -> bool:
    """Say whether a table is of another recording, or shifted: all that can be compared disagrees."""
    known = [value for value in (fit.global_signal, fit.dvars) if np.isfinite(value)]
    return bool(fit.lag) or (len(known) == 2 and max(known) < FOREIGN)


def _about_volumes(found: StrayVolumes) -> list[str]:
    kinds = (
        (found.empty, "hold one value everywhere"),
        (found.copied, "are copies of earlier ones"),
        (found.stray, "have a voxel, a parcel or a whole brain far away from all others"),
    )
    return [
        f"Volumes that {words} were left out: {int(which.sum())} (counted from 0: {_list(np.flatnonzero(which))}). "
        f"{REMEDY}"
        for which, words in kinds
        if which.any()
    ]


def _about_parcels(found: StrayVolumes) -> list[str]:
    if not found.parcels.any():
        return []
    number = int(found.parcels.sum())
    return [f"Parcels that are constant for long or lose their level have no value: {number}. {REMEDY}"]


def _about_step(size: float, volume: int) -> list[str]:
    if size < STEP_TOLD:
        return []
    return [f"The whole brain changes its level by {100 * size:.0f} % at volume {volume}, for good. {REMEDY}"]


def _about_table(fit: Agreement) -> list[str]:
    if fit.lag:
        rows = f"{abs(fit.lag)} volumes {'later' if fit.lag > 0 else 'earlier'}"
        return [f"The confounds table fits the series when it is read {rows}: it is shifted. {REMEDY_TABLE}"]
    found = []
    if not 1 / SCALED < (fit.level if np.isfinite(fit.level) else 1.0) < SCALED:
        found.append(
            f"The series is {fit.level:.3g} times as bright as its table says: the data type or the scale in its "
            f"header may be wrong. {REMEDY}"
        )
    values = [("global signal", fit.global_signal), ("DVARS", fit.dvars)]
    low = [f"{name} (r = {round(value, 2) + 0.0:.2f})" for name, value in values if value < FOREIGN]
    if low:
        whose = "it seems to be of another recording" if is_foreign(fit) else "it may be of another recording"
        found.append(
            f"The confounds table disagrees with the series about its {' and its '.join(low)}: {whose}. {REMEDY_TABLE}"
        )
    return found


def _list(numbers: np.ndarray) -> str:
    shown = ", ".join(map(str, numbers[:SHOWN]))
    return shown + (", ..." if len(numbers) > SHOWN else "")


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
