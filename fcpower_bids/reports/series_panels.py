"""Panels about the series: motion, carpets, spectra, nuisance regressors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fcpower_bids.derivatives.tables import read_matrix
from fcpower_bids.reports import figures
from fcpower_bids.reports.context import Context, Panel
from fcpower_bids.reports.matrices import encode_matrix, network_spans

_UNKNOWN_VOLUMES = {"framewise_displacement": np.nan, "dvars": np.nan, "dummy": 0.0, "kept": 1.0}


def make_over_time(context: Context) -> Iterator[Panel]:
    """Motion, DVARS and the carpets over one axis of time."""
    volumes = context.account.volumes
    before, after, clean = context.previews
    if volumes is None and not clean:
        return
    carpets = {"before": before.carpet} if before else {}
    carpets |= {"after": after.carpet} if after else {}
    columns: dict[str, np.ndarray] = (
        {name: volumes[name].to_numpy(dtype=float) for name in volumes.columns}
        if volumes is not None
        else {name: np.full(clean, value) for name, value in _UNKNOWN_VOLUMES.items()}
    )
    censored = int(((columns["kept"] == 0) & (columns["dummy"] == 0)).sum())
    svg = figures.draw_motion(columns, context.settings.fd_thresh, context.repetition_time, carpets)
    text = (
        "Framewise displacement with the limit (dashed), DVARS as the input table has it, and the parcel series before "
        "and after cleaning, sorted by network, in standard deviations from -2 (black) to 2 (white). "
        f"{censored} censored volumes are orange with a mark at the top, {int(columns['dummy'].sum())} dummy volumes "
        "hatched."
    )
    if before is None:
        text += " The series before cleaning was not kept."
    yield Panel(
        "Motion and signal over time",
        text,
        svg,
        f"Time courses; {censored} of {len(columns['kept'])} volumes are censored.",
        sources=context.links(context.account.tables.get("outliers"), context.view.tables.get("timeseries")),
        wide=True,
    )


def make_power(context: Context) -> Iterator[Panel]:
    """Power spectra before and after cleaning, with the leakage."""
    before, after, _ = context.previews
    spectra = {
        title: (one.frequencies, one.power)
        for title, one in (("before cleaning", before), ("after cleaning", after))
        if one is not None
    }
    if not spectra:
        return
    rows = [row for row in context.account.quality if row["atlas"] == context.view.atlas]
    leakage = float(rows[0]["band_leakage"]) if rows else np.nan
    yield Panel(
        "Power spectrum",
        "Mean over parcels, each of variance 1. The filter's edges are soft: filtered noise has 3 to 6 % outside.",
        figures.draw_power(spectra, context.settings.band, leakage),
        "Power against frequency, with the pass-band shaded."
        + (f" {100 * leakage:.1f} % of the cleaned power is outside." if np.isfinite(leakage) else ""),
        sources=context.links(context.view.tables.get("timeseries")),
    )


def make_design(context: Context) -> Iterator[Panel]:
    """Correlation of the nuisance regressors."""
    path = context.account.tables.get("design")
    volumes = context.account.volumes
    if path is None or volumes is None:
        return
    values, names = read_matrix(path)
    if not names:
        return
    used = values[volumes["kept"].to_numpy(dtype=bool)]
    correlation = np.full((len(names), len(names)), np.nan)
    varying = np.flatnonzero(used.std(axis=0) > 0) if len(used) > 1 else np.empty(0, dtype=int)
    correlation[np.ix_(varying, varying)] = np.corrcoef(used[:, varying], rowvar=False)
    yield Panel(
        "Correlation of the nuisance regressors",
        f"{len(names)} regressors in the kept volumes, before filtering. Collinear ones count once in the regression.",
        matrices={
            "names": names,
            "networks": network_spans(names),
            "matrices": [encode_matrix("Correlation", correlation, np.arange(len(names))) | {"limit": 1.0}],
        },
        sources=context.links(path),
        folded=True,
        wide=True,
    )
