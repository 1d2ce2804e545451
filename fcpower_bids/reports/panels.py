"""The panels of one recording, each made from the tables that were written and naming them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fcpower_bids.derivatives.tables import read_json, read_table
from fcpower_bids.errors import FcPowerError
from fcpower_bids.reports.accounts import Account, View
from fcpower_bids.reports.connectome_panels import (
    make_connectomes,
    make_eigenvalues,
    make_embedding,
    make_spectral_path,
)
from fcpower_bids.reports.context import MATRIX_ROOM, Context, Panel
from fcpower_bids.reports.coverage_figures import draw_coverage
from fcpower_bids.reports.series_panels import make_design, make_over_time, make_power
from fcpower_bids.settings import Settings

BROKEN = (FcPowerError, OSError, ValueError, KeyError)
"""What a file that is missing, cut off or edited by hand leads to; the panel says so and the others are drawn."""


def make_panels(account: Account, view: View, settings: Settings, share: float = 1.0) -> list[Panel]:
    """Make every panel of a recording under an atlas; one that cannot be made says why.

    ``share`` is the part of the page's room for matrices that this one may take.
    """
    context = Context(account, view, settings, MATRIX_ROOM * share)
    panels: list[Panel] = []
    for name, make in PANELS.items():
        try:
            panels += list(make(context))
        except BROKEN as error:
            panels.append(Panel(name, f"This panel could not be drawn: {error}"))
    return panels


def make_coverage(context: Context) -> Iterator[Panel]:
    """Coverage on the brain."""
    path = context.view.tables.get("bold")
    if path is None:
        return
    coverage = read_table(path)["coverage"].to_numpy(dtype=float)
    facts = read_json(path.with_suffix(".json"))
    threshold = float(facts["CoverageThreshold"])
    missing = [str(name) for name in facts["UncoveredNodes"]]
    below = f"Below {threshold:g}, and without a value: {', '.join(missing)}."
    yield Panel(
        "Coverage",
        f"Share of each parcel's voxels inside the brain mask and with signal; mean {100 * np.mean(coverage):.1f} %. "
        + (below if missing else "No parcel is below the limit."),
        draw_coverage(context.view.parcellation(context.root), coverage, threshold),
        f"Coverage of {len(coverage)} parcels; {len(missing)} are below {threshold:g}.",
        sources=context.links(path),
        wide=True,
    )


def make_provenance(context: Context) -> Iterator[Panel]:
    """What the sidecars say."""
    view = context.view
    written = next((kind for kind in ("timeseries", "bold") if kind in view.tables), None)
    if written is None:
        return
    skipped = ("Atlas", "UncoveredNodes", "FlatNodes", "NuisanceParameters", "Node", "coverage", "Units")
    facts = {name: value for name, value in view.sidecar(written).items() if name not in skipped}
    rows = [(name, _plain(value)) for name, value in facts.items()]
    rows += [(f"Atlas {name}", str(value)) for name, value in view.about.items()]
    yield Panel("Provenance", "What the sidecars say.", rows=tuple(rows), folded=True, wide=True)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_plain(item)}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


PANELS: dict[str, Callable[[Context], Iterator[Panel]]] = {
    "Motion and signal over time": make_over_time,
    "Connectomes": make_connectomes,
    "Power spectrum": make_power,
    "Eigenvalues": make_eigenvalues,
    "From the identity to FC": make_spectral_path,
    "Coverage": make_coverage,
    "Embedding": make_embedding,
    "Correlation of the nuisance regressors": make_design,
    "Provenance": make_provenance,
}
