"""From parcel means and a confounds table to cleaned series: the volumes to keep, then the cleaning itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fcpower_bids.core import plausibility
from fcpower_bids.core.series import (
    SAME_TIME,
    CleanedSeries,
    censor_mask,
    check_band,
    clean_series,
    filter_degrees_of_freedom,
)
from fcpower_bids.errors import RecordingError, Unfit
from fcpower_bids.imaging.confounds import Confounds, load_confounds, load_strategy
from fcpower_bids.imaging.streaming import VolumeFigures, header_summary
from fcpower_bids.records import Cleaning, ParcelSeries, Recording
from fcpower_bids.settings import Method

FEWEST_SIGNALS = 2
"""Parcels with a signal, without which there is no connection."""
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
    strays = plausibility.find_stray(stacked, None if measured is None else measured.farthest)
    fit = plausibility.Agreement(np.nan, np.nan, 0, np.nan)
    settled = np.arange(len(kept)) >= confounds.n_dummy
    table = (confounds.global_signal, confounds.dvars)
    if measured is not None:
        spikes = plausibility.find_spikes(np.where(settled, measured.global_signal, np.nan), table[0])
        strays = strays._replace(stray=strays.stray | (spikes & ~strays.volumes))
    strays = strays._replace(stray=strays.stray & kept)  # motion that was censored is no damage
    usable = ~strays.volumes & settled
    size, volume = plausibility.gain_step(np.where(strays.parcels, np.nan, stacked), kept & usable)
    if measured is not None:
        fit = plausibility.compare_with_table(measured.global_signal, measured.dvars, table, usable)
    ends = np.cumsum([mean.shape[1] for mean in means])[:-1]
    seen = np.isfinite(stacked).all(axis=0)
    sentences = _about_series(strays, size, volume) + _about_table(fit)
    grave = [
        strays.volumes.mean() > MOST_VOLUMES,
        strays.parcels.sum() > MOST_PARCELS * max(seen.sum(), 1),
        size >= STEP_EXCLUDED,
        in_use and fit.is_foreign,
    ]
    return Plausibility(
        strays.volumes,
        np.split(strays.parcels, ends),
        " ".join(["The data cannot be right.", *sentences]) if any(grave) else "",
        tuple(sentences),
        {
            "empty_volumes": int(strays.empty.sum()),
            "copied_volumes": int(strays.copied.sum()),
            "stray_volumes": int(strays.stray.sum()),
            "gain_step": size,
            "table_global_signal": _number(fit.global_signal),
            "table_dvars": _number(fit.dvars),
            "table_lag": fit.lag,
            "table_level": _number(fit.level),
        },
    )


def _about_series(strays: plausibility.StrayVolumes, size: float, volume: int) -> list[str]:
    sentences = []
    for which, words in (
        (strays.empty, "hold one value everywhere"),
        (strays.copied, "are copies of earlier ones"),
        (strays.stray, "have a voxel, a parcel or a whole brain far away from all others"),
    ):
        if which.any():
            shown = ", ".join(map(str, np.flatnonzero(which)[:SHOWN])) + (", ..." if which.sum() > SHOWN else "")
            sentences.append(f"Volumes that {words} were left out: {int(which.sum())} (counted from 0: {shown}).")
    if strays.parcels.any():
        number = int(strays.parcels.sum())
        sentences.append(f"Parcels that are constant for long or lose their level have no value: {number}.")
    if size >= plausibility.STEP_TOLD:
        sentences.append(f"The whole brain changes its level by {100 * size:.0f} % at volume {volume}, for good.")
    return [f"{sentence} {REMEDY}" for sentence in sentences]


def _about_table(fit: plausibility.Agreement) -> list[str]:
    if fit.lag:
        rows = f"{abs(fit.lag)} volumes {'later' if fit.lag > 0 else 'earlier'}"
        return [f"The confounds table fits the series when it is read {rows}: it is shifted. {REMEDY_TABLE}"]
    sentences = []
    if not 1 / plausibility.SCALED < (fit.level if np.isfinite(fit.level) else 1.0) < plausibility.SCALED:
        sentences.append(
            f"The series is {fit.level:.3g} times as bright as its table says: the data type or the scale in its "
            f"header may be wrong. {REMEDY}"
        )
    values = [("global signal", fit.global_signal), ("DVARS", fit.dvars)]
    low = [f"{name} (r = {round(value, 2) + 0.0:.2f})" for name, value in values if value < plausibility.FOREIGN]
    if low:
        whose = "it seems to be of another recording" if fit.is_foreign else "it may be of another recording"
        sentences.append(
            f"The confounds table disagrees with the series about its {' and its '.join(low)}: {whose}. {REMEDY_TABLE}"
        )
    return sentences


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


Parcels = tuple[np.ndarray, np.ndarray]
"""Parcel means (T, P) of every volume and coverage (P,)."""


def clean_recording(
    recording: Recording,
    atlas_names: Sequence[str],
    parcels: Sequence[Parcels],
    settings: Method,
    measured: VolumeFigures | None = None,
) -> tuple[Cleaning, list[ParcelSeries]]:
    """Clean the series of one recording under every atlas, with one set of confounds. Raises RecordingError."""
    n_volumes = len(parcels[0][0])
    confounds, n_dummy, kept = _prepare(recording, settings, n_volumes)
    covered = []
    for (mean, coverage), name in zip(parcels, atlas_names, strict=True):
        seen = coverage >= settings.min_coverage
        if not seen.any():
            raise RecordingError(
                f"No parcel of {name} is covered to {settings.min_coverage:g}. "
                "Check that the scan is in the space of the atlas, and its brain mask."
            )
        covered.append(np.where(seen, mean, np.nan))  # what is below stays in its place everywhere
    strategy = load_strategy(settings.strategy)
    uses_table = bool(strategy.columns or strategy.optional or strategy.acompcor or settings.fd_thresh)
    verdict = judge_series(covered, measured, confounds, kept, uses_table)
    kept = kept & ~verdict.stray
    excluded = verdict.excluded or _too_short(kept, recording.repetition_time, settings)
    series = [np.where(lost, np.nan, mean) for mean, lost in zip(covered, verdict.parcels, strict=True)]
    for values, name in zip(series, atlas_names, strict=True):
        if np.isfinite(values).any(axis=0).sum() < FEWEST_SIGNALS and not excluded:
            raise RecordingError(
                f"Of {name} fewer than {FEWEST_SIGNALS} parcels have a signal, so there is no connection. "
                "Check that the scan is in the space of the atlas, and its brain mask."
            )
    cleaned: list[CleanedSeries] = []
    order, padding = settings.filter_order, settings.padding
    if not excluded:
        try:
            rest, seconds = (confounds.values[n_dummy:], kept[n_dummy:]), recording.repetition_time
            cleaned = [clean_series(mean[n_dummy:], *rest, seconds, *settings.band, order, padding) for mean in series]
        except Unfit as error:
            excluded = str(error)
    first = cleaned[0] if cleaned else None
    if first:
        kept = np.isin(np.arange(n_volumes), first.kept + n_dummy)
    cleaning = Cleaning(
        kept=kept,
        framewise_displacement=confounds.framewise_displacement,
        dvars=confounds.dvars,
        design=confounds.values,
        design_names=tuple(confounds.names),
        dropped_confounds=tuple(confounds.names[i] for i in first.dropped_confounds) if first else (),
        n_dummy=n_dummy,
        degrees_of_freedom=float(first.degrees_of_freedom) if first else 0.0,
        n_regressors=first.n_regressors if first else 0,
        repetition_time=recording.repetition_time,
        head_radius=confounds.head_radius,
        excluded=excluded,
        notes=(*_header_notes(recording), *confounds.notes, *verdict.notes),
        stray=verdict.stray,
        plausibility=verdict.figures,
    )
    empty = np.empty((0, 0))
    rows = [(of_atlas.series, of_atlas.flat_parcels) for of_atlas in cleaned] or [(empty, ())] * len(parcels)
    return cleaning, [
        ParcelSeries(coverage, mean, clean, empty, flat, tuple(np.flatnonzero(lost).tolist()))
        for (mean, coverage), (clean, flat), lost in zip(parcels, rows, verdict.parcels, strict=True)
    ]


def _header_notes(recording: Recording) -> list[str]:
    """Say where the header of a series contradicts its sidecar, or its values are too coarse."""
    if not recording.bold.is_file():  # a node without one
        return []
    header, seconds, notes = header_summary(recording.bold), recording.repetition_time, []
    stated = header.repetition_time
    if stated is not None and abs(stated - seconds) > SAME_TIME * seconds:
        notes.append(
            f"The repetition time is {seconds:.6g} s by the sidecar, which is used, and {stated:.6g} s by the header "
            "of the series: one of them is wrong."
        )
    if header.dtype.itemsize == 1:
        notes.append("The series is stored in 8 bits: its values have at most 256 levels, and its changes fewer.")
    return notes


def foresee_volumes(recording: Recording, settings: Method) -> tuple[int, str]:
    """Volumes that censoring will leave, and why the recording will be excluded, or nothing. Raises RecordingError."""
    confounds, n_dummy, kept = _prepare(recording, settings, recording.volumes)
    seconds, excluded = recording.repetition_time, _too_short(kept, recording.repetition_time, settings)
    lost = filter_degrees_of_freedom(int(kept.sum()), seconds, *settings.band) + confounds.values.shape[1] + 1
    if not excluded and kept.sum() <= max(lost, 6 * settings.filter_order + 4):  # else enough is left
        any_series, rest = np.arange(recording.volumes - n_dummy)[:, None], (confounds.values[n_dummy:], kept[n_dummy:])
        try:
            clean_series(any_series, *rest, seconds, *settings.band, settings.filter_order, settings.padding)
        except Unfit as error:
            excluded = str(error)
    return int(kept.sum()), excluded


def _prepare(recording: Recording, settings: Method, n_volumes: int) -> tuple[Confounds, int, np.ndarray]:
    """Return the confounds, the number of dummy volumes and the volumes to keep (T,).

    What depends on the recording and the choices alone is checked, so that it is not taken for bad quality later.
    """
    strategy, table = load_strategy(settings.strategy), recording.confounds
    if table is None and (strategy.columns or strategy.acompcor or settings.fd_thresh):
        raise RecordingError(
            f"{recording.bold} has no confounds table. Run fMRIPrep for it, or use --strategy none --fd-thresh 0."
        )
    if table is None:
        unknown, note = np.full(n_volumes, np.nan), "There was no confounds table."
        confounds = Confounds((), np.empty((n_volumes, 0)), unknown, unknown, unknown, 0, (note,))
    else:
        metadata = recording.confounds_metadata
        confounds = load_confounds(table, metadata, strategy, n_volumes, recording, settings)
    n_dummy = confounds.n_dummy if settings.dummy_scans == "auto" else min(int(settings.dummy_scans), n_volumes)
    try:
        check_band(recording.repetition_time, *settings.band)
        kept = censor_mask(confounds.framewise_displacement, settings.fd_thresh or None, n_dummy)
    except Unfit as error:
        raise RecordingError(f"{table or recording.bold}: {error}") from error
    return confounds, n_dummy, kept


def _too_short(kept: np.ndarray, repetition_time: float, settings: Method) -> str:
    """Say why the recording is excluded, or nothing."""
    seconds = float(kept.sum() * repetition_time)
    if seconds >= settings.min_time and kept.any():
        return ""
    return (
        f"Only {seconds:.0f} s of {len(kept) * repetition_time:.0f} s are left after dummy scans and censoring at "
        f"{settings.fd_thresh:g} mm, less than --min-time {settings.min_time:g} s."
    )
