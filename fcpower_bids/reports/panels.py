"""The panels of one recording, each made from the tables that were written and naming them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fcpower_bids.core.connectivity import covered_parcels
from fcpower_bids.derivatives.tables import read_json, read_matrix, read_table
from fcpower_bids.errors import FcPowerError
from fcpower_bids.reports import figures
from fcpower_bids.reports.accounts import Account, View, read_numbers
from fcpower_bids.reports.coverage_figures import draw_coverage
from fcpower_bids.reports.matrices import encode_matrix, network_spans
from fcpower_bids.reports.page import relative_link
from fcpower_bids.reports.previews import Preview, make_preview, preview_path, read_preview
from fcpower_bids.settings import Settings

BROKEN = (FcPowerError, OSError, ValueError, KeyError)
"""What a file that is missing, cut off or edited by hand leads to; the panel says so and the others are drawn."""


MATRIX_ROOM = 3e6
"""Characters of all the matrices of a page whose cells can be read by pointing at them."""


@dataclass(frozen=True)
class Panel:
    """One part of a page.

    Attributes
    ----------
    title, text : str
        Heading and how to read it.
    svg, alt : str
        A drawing and its description.
    matrices : dict
        For the script of the page: names, networks, encoded matrices.
    rows : tuple of (str, str)
        A table of two columns.
    sources : tuple of (str, str)
        Name and address of the data behind it.
    wide, folded : bool
        Over the whole width; closed at first.
    """

    title: str
    text: str
    svg: str = ""
    alt: str = ""
    matrices: dict[str, Any] = field(default_factory=dict)
    rows: tuple[tuple[str, str], ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    wide: bool = False
    folded: bool = False


@dataclass(frozen=True, eq=False)
class Context:
    """What a panel is made from."""

    account: Account
    view: View
    settings: Settings
    room: float = MATRIX_ROOM

    @property
    def root(self) -> Path:
        """The output folder."""
        return self.settings.output_dir

    def links(self, *paths: Path | None) -> tuple[tuple[str, str], ...]:
        """Name and address of files."""
        return tuple((path.name, relative_link(path, self.root)) for path in paths if path is not None)

    @property
    def repetition_time(self) -> float:
        """Seconds; 0 where it is not known."""
        if "timeseries" in self.view.tables:
            return float(self.view.sidecar("timeseries")["RepetitionTime"])
        row = self.account.quality[0] if self.account.quality else {}
        return row["seconds_kept"] / row["kept_volumes"] if row.get("kept_volumes") else 0.0

    @cached_property
    def connectomes(self) -> list[np.ndarray]:
        """FC and its transforms, shape (P, P) each."""
        return [read_numbers(path) for path in self.view.connectomes]

    @cached_property
    def previews(self) -> tuple[Preview | None, Preview | None, int]:
        """What is known of the series before and after cleaning, and the rows of the cleaned series."""
        before = read_preview(preview_path(self.view.tables["bold"]))
        if "timeseries" not in self.view.tables:
            return before, None, 0
        clean = read_numbers(self.view.tables["timeseries"])
        volumes = self.account.volumes
        kept = np.ones(len(clean), dtype=bool) if volumes is None else volumes["kept"].to_numpy(dtype=bool)
        whole = np.full((len(kept), clean.shape[1]), np.nan)
        whole[kept] = clean
        networks = tuple(self.view.parcellation(self.root).networks)
        return before, make_preview(whole, kept, self.repetition_time, networks), len(clean)


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


def _over_time(context: Context) -> Iterator[Panel]:
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


_UNKNOWN_VOLUMES = {"framewise_displacement": np.nan, "dvars": np.nan, "dummy": 0.0, "kept": 1.0}


def _power(context: Context) -> Iterator[Panel]:
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


def _eigenvalues(context: Context) -> Iterator[Panel]:
    path = context.view.tables.get("eigenvalues")
    if path is None:
        return
    table, facts = read_table(path), read_json(path.with_suffix(".json"))
    ratios = (facts["ParticipationRatio"], facts["ParticipationRatioPower"])
    before, after = (table[name].to_numpy(dtype=float) for name in ("eigenvalue", "eigenvalue_power"))
    yield Panel(
        "Eigenvalues",
        f"The participation ratio, the effective number of eigenvectors, goes from {ratios[0]:.1f} to {ratios[1]:.1f} "
        f"of {len(table)}; rank {facts['Rank']}, {facts['NumberClipped']} clipped.",
        figures.draw_eigenvalues(before, after, facts["Alpha"], ratios),
        f"Eigenvalues by rank before and after; participation ratio {ratios[0]:.1f} and {ratios[1]:.1f}.",
        sources=context.links(path),
    )


def _connectomes(context: Context) -> Iterator[Panel]:
    if not context.view.connectomes:
        return
    parcels = context.view.parcellation(context.root)
    titles = [connectome_title(path) for path in context.view.connectomes]
    size = len(parcels.names) ** 2 * 4 / 3
    shown = list(zip(titles, context.connectomes, strict=True))[: int(context.room // size)]
    encoded = [encode_matrix(title, matrix, parcels.order) for title, matrix in shown]
    left_out = ", ".join(titles[len(shown) :])
    yield Panel(
        "Connectomes",
        "Parcels sorted by network. Point at a cell, or move with the arrow keys, to read its pair and its values. "
        "Grey: a parcel without a value."
        + (f" Not shown, so that the page stays small: {left_out}." if left_out else ""),
        matrices={
            "names": [parcels.names[place] for place in parcels.order],
            "networks": network_spans([parcels.networks[place] for place in parcels.order]),
            "matrices": encoded,
        },
        sources=context.links(*context.view.connectomes),
        wide=True,
    )


def connectome_title(path: Path) -> str:
    """Name a connectome as a reader would: ``FC``, ``FC^0.35``, ``partialcorrelation``, ``FC, fisherz``."""
    facts = read_json(path.with_suffix(".json"))
    entities = dict(part.split("-", 1) for part in path.name.split("_") if "-" in part)  # type: ignore[misc]
    if "desc" not in entities:
        return "FC" if entities["stat"] == "pearsoncorrelation" else entities["stat"]
    if entities["desc"].startswith("power") and "Alpha" in facts:
        return f"FC^{facts['Alpha']:g}"
    return f"FC, {entities['desc']}" if entities["stat"] == "pearsoncorrelation" else entities["desc"]


def _path(context: Context) -> Iterator[Panel]:
    if not context.view.connectomes:
        return
    matrix = context.connectomes[0]
    covered = covered_parcels(matrix)
    order = np.array([place for place in context.view.parcellation(context.root).order if covered[place]])
    yield Panel(
        "From the identity to FC",
        "FC raised to five exponents, each over its largest eigenvalue, on one colour scale.",
        figures.draw_path(matrix, order),
        "Five matrices: the smaller the exponent, the weaker the blocks that all parcels share.",
        sources=context.links(context.view.connectomes[0]),
        wide=True,
    )


def _coverage(context: Context) -> Iterator[Panel]:
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


def _embedding(context: Context) -> Iterator[Panel]:
    for path in context.view.embeddings:
        vector = read_numbers(path)[0]
        facts = read_json(path.with_suffix(".json"))
        told = ("name", "read", "weights", "sha256", "licence", "missing_parcels")
        yield Panel(
            f"Embedding by {facts.get('name', 'the encoder')}",
            f"{len(vector)} dimensions, norm {np.linalg.norm(vector):.3f}.",
            figures.draw_embedding(vector),
            f"Bars of the {len(vector)} dimensions.",
            rows=tuple((name, str(facts[name])) for name in told if facts.get(name) is not None),
            sources=context.links(path),
            wide=True,
        )


def _design(context: Context) -> Iterator[Panel]:
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
            "networks": [],
            "matrices": [encode_matrix("Correlation", correlation, np.arange(len(names)))],
        },
        sources=context.links(path),
        folded=True,
        wide=True,
    )


def _provenance(context: Context) -> Iterator[Panel]:
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
    "Motion and signal over time": _over_time,
    "Connectomes": _connectomes,
    "Power spectrum": _power,
    "Eigenvalues": _eigenvalues,
    "From the identity to FC": _path,
    "Coverage": _coverage,
    "Embedding": _embedding,
    "Correlation of the nuisance regressors": _design,
    "Provenance": _provenance,
}
