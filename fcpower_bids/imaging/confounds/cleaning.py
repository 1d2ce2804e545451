"""From parcel means and a confounds table to cleaned series: the volumes to keep, then the cleaning itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fcpower_bids.core.series import CleanedSeries, Convention, censor_mask, check_band, clean_series, convention_of
from fcpower_bids.errors import RecordingError, Unfit
from fcpower_bids.imaging.confounds.plausibility import judge_series
from fcpower_bids.imaging.confounds.regressors import Confounds, load_confounds, motion_treatment
from fcpower_bids.imaging.confounds.strategies import load_strategy
from fcpower_bids.imaging.series.brain_sample import VolumeFigures
from fcpower_bids.imaging.series.streaming import header_summary
from fcpower_bids.records import Cleaning, ParcelSeries, Recording
from fcpower_bids.settings import Method

SAME_TIME = 1e-3
"""Largest difference, as a share, of two repetition times that are one: headers are stored in single precision."""
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
    convention = convention_of(settings.convention, settings.filter_order, settings.padding)
    confounds = _confounds(recording, settings, n_volumes, convention)
    n_dummy, kept = _kept_volumes(recording, confounds, settings)
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
    found = judge_series(covered, measured, confounds, kept, uses_table)
    kept = kept & ~found.stray
    excluded = found.excluded or _too_short(kept, recording.repetition_time, settings)
    series = [np.where(lost, np.nan, mean) for mean, lost in zip(covered, found.parcels, strict=True)]
    cleaned: list[CleanedSeries] = []
    if not excluded:
        try:
            cleaned = [
                clean_series(
                    one[n_dummy:],
                    confounds.values[n_dummy:],
                    kept[n_dummy:],
                    recording.repetition_time,
                    *settings.band,
                    convention,
                )
                for one in series
            ]
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
        excluded=excluded,
        notes=(*_header_notes(recording), *confounds.notes, *found.notes),
        stray=found.stray,
        plausibility=found.figures,
    )
    empty = np.empty((0, 0))
    rows = [(one.series, one.flat_parcels) for one in cleaned] or [(empty, ())] * len(parcels)
    return cleaning, [
        ParcelSeries(coverage, mean, clean, empty, flat, tuple(np.flatnonzero(lost).tolist()))
        for (mean, coverage), (clean, flat), lost in zip(parcels, rows, found.parcels, strict=True)
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


def foresee_volumes(recording: Recording, n_volumes: int, settings: Method) -> tuple[int, str]:
    """Volumes that censoring will leave, and why the recording will be excluded, or nothing. Raises RecordingError."""
    convention = convention_of(settings.convention, settings.filter_order, settings.padding)
    _, kept = _kept_volumes(recording, _confounds(recording, settings, n_volumes, convention), settings)
    return int(kept.sum()), _too_short(kept, recording.repetition_time, settings)


def _confounds(recording: Recording, settings: Method, n_volumes: int, convention: Convention) -> Confounds:
    strategy = load_strategy(settings.strategy)
    if recording.confounds is None and (strategy.columns or strategy.acompcor or settings.fd_thresh):
        raise RecordingError(
            f"{recording.bold} has no confounds table. Run fMRIPrep for it, or use --strategy none --fd-thresh 0."
        )
    if recording.confounds is None:
        unknown = np.full(n_volumes, np.nan)
        return Confounds((), np.empty((n_volumes, 0)), unknown, unknown, unknown, 0, ("There was no confounds table.",))
    return load_confounds(
        recording.confounds,
        recording.confounds_metadata,
        strategy,
        n_volumes,
        motion_treatment(recording, settings),
        convention.unknown_first,
    )


def _kept_volumes(recording: Recording, confounds: Confounds, settings: Method) -> tuple[int, np.ndarray]:
    """Check what depends on the recording and the choices alone, so that it is not taken for bad quality later."""
    n_dummy = confounds.n_dummy if settings.dummy_scans == "auto" else int(settings.dummy_scans)
    try:
        check_band(recording.repetition_time, *settings.band)
        return n_dummy, censor_mask(confounds.framewise_displacement, settings.fd_thresh or None, n_dummy)
    except Unfit as error:
        raise RecordingError(f"{recording.confounds or recording.bold}: {error}") from error


def _too_short(kept: np.ndarray, repetition_time: float, settings: Method) -> str:
    """Say why the recording is excluded, or nothing."""
    seconds = float(kept.sum() * repetition_time)
    if seconds >= settings.min_time and kept.any():
        return ""
    return (
        f"Only {seconds:.0f} s of {len(kept) * repetition_time:.0f} s are left after dummy scans and censoring at "
        f"{settings.fd_thresh:g} mm, less than --min-time {settings.min_time:g} s."
    )
