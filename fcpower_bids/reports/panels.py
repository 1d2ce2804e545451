"""The panels of one recording, each made from the tables that were written and naming them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.dataset import describe_without_folders, known_folders, preview_path
from fcpower_bids.outputs.recording import COVERAGE_TABLE as COVERAGE
from fcpower_bids.outputs.recording import SPECTRUM_TABLE as SPECTRUM
from fcpower_bids.outputs.recording import VOLUMES
from fcpower_bids.outputs.tables import read_declared, read_json, read_matrix, read_series
from fcpower_bids.reports import figures
from fcpower_bids.reports.accounts import Account, View, network_order
from fcpower_bids.reports.figures import Preview, draw_brain, make_preview, read_preview, read_slices
from fcpower_bids.reports.page import Panel, listed, make_panel, relative_link
from fcpower_bids.reports.svg import draw_curves
from fcpower_bids.settings import Settings

EIGENVALUES = ("eigenvalue", "eigenvalue_power")
MOST_NAMED = 8
"""Parcels without a value that are named."""


@dataclass(frozen=True, eq=False)
class Context:
    """Inputs of a panel."""

    account: Account
    view: View
    settings: Settings

    def panel(self, name: str, svg: str, *paths: Path | None, **words: Any) -> Panel:
        """Return the figure of this name of ``recording.yml``, made from these files."""
        known = tuple((path.name, relative_link(path, self.settings.output_dir)) for path in paths if path is not None)
        return make_panel("recording", name, svg, known, **words)

    @cached_property
    def networks(self) -> tuple[str, ...]:
        """The network of each parcel."""
        return self.view.parcels(self.settings.output_dir).networks

    @property
    def spans(self) -> list[tuple[str, int, int]]:
        """Networks of the sorted parcels: name, first and one past the last."""
        counts = Counter(self.networks)  # in the order of their first parcels, as they are sorted
        stops = np.cumsum(list(counts.values())).tolist()
        return list(zip(counts, [0, *stops], stops, strict=False))

    @cached_property
    def previews(self) -> dict[str, Preview]:
        """The series before and after cleaning, as far as they were kept."""
        coverage, series, shown = self.view.file("bold"), self.view.file("timeseries"), dict[str, Preview]()
        if coverage and (before := read_preview(preview_path(coverage))):
            shown["before"] = before
        if series and (volumes := self.account.volumes) is not None:
            clean, kept = read_series(series)[0], volumes["kept"].to_numpy(dtype=bool)
            if kept.sum() != len(clean):
                raise DatasetError(
                    f"{series} has {len(clean)} rows, but {kept.sum()} volumes were kept. Run the "
                    "participant level again."
                )
            if not self.account.repetition_time:
                raise DatasetError(
                    "The JSON of the quality table states no RepetitionTime. Run the participant level again."
                )
            whole = np.full((len(kept), clean.shape[1]), np.nan)
            whole[kept] = clean
            shown["after"] = make_preview(whole, kept, self.account.repetition_time, self.networks)
        return shown


def make_panels(account: Account, view: View, settings: Settings) -> list[Panel]:
    """Make every panel of a recording under an atlas; one whose files are damaged says why."""
    context = Context(account, view, settings)
    panels: list[Panel] = []
    for name, make in PANELS.items():
        try:
            panels += make(context)
        except DatasetError as error:
            reason = describe_without_folders(str(error), known_folders(settings.output_dir))
            panels.append(Panel(name, f"This panel could not be drawn: {reason}"))
    return panels


def make_coverage(context: Context) -> Iterator[Panel]:
    """Coverage on the brain; in words where there are no slices."""
    if (path := context.view.file("bold")) is None:
        return
    coverage = read_declared(path, COVERAGE)["coverage"].to_numpy()
    facts = read_json(path.with_suffix(".json"))
    threshold, lacking = float(facts["CoverageThreshold"]), facts["UncoveredNodes"]
    below = f"Below {threshold:g}, and without a value: {listed(lacking, MOST_NAMED)}." if lacking else ""
    words = {
        "n": len(coverage),
        "mean": f"{100 * np.mean(coverage):.1f}",
        "missing": len(lacking),
        "threshold": f"{threshold:g}",
        "below": below or "No parcel is below the limit.",
    }
    slices = read_slices(preview_path(path))
    if slices is None:
        yield context.panel("coverage", "", path, **words)
        return
    rims = "the brain mask (orange) and of the atlas (blue)"
    if slices.template.any():  # where its space is that of the recording
        dice = f"; Dice coefficient with the template's brain {slices.dice:.2f}" if np.isfinite(slices.dice) else ""
        rims = f"the brain mask (orange{dice}), of the atlas (blue) and of the template's white matter (purple)"
    yield context.panel("brain", draw_brain(slices, coverage, threshold), path, rims=rims, **words)


def make_over_time(context: Context) -> Iterator[Panel]:
    """Motion, DVARS and the carpets over one axis of time."""
    volumes, previews = context.account.volumes, context.previews
    if volumes is None:
        return
    columns = {str(name): volumes[name].to_numpy(dtype=float) for name in VOLUMES.columns if name in volumes}
    whole = len(context.networks)
    networks = [(name, start / whole, stop / whole) for name, start, stop in context.spans]  # shares of all parcels
    carpets = {title: preview.carpet for title, preview in previews.items()}
    yield context.panel(
        "over_time",
        figures.draw_motion(
            columns, context.settings.method.fd_thresh, context.account.repetition_time, carpets, networks
        ),
        context.account.own.file("outliers"),
        context.view.file("timeseries"),
        dvars="DVARS as the input table has it, " if np.isfinite(columns["dvars"]).any() else "",
        censored=int(((columns["kept"] == 0) & (columns["dummy"] == 0)).sum()),
        dummies=int(columns["dummy"].sum()),
        lacking="" if "before" in previews else " The series before cleaning was not kept.",
        volumes=len(columns["kept"]),
    )


def make_connectomes(context: Context) -> Iterator[Panel]:
    """FC and its transforms."""
    if paths := context.view.files.get("relmat"):
        order = network_order(context.networks)
        titles = [str(read_json(path.with_suffix(".json")).get("Title", path.stem)) for path in paths]
        matrices = {
            title: read_series(path)[0][np.ix_(order, order)] for title, path in zip(titles, paths, strict=True)
        }
        svg = figures.draw_matrices(matrices, context.spans)
        yield context.panel("connectomes", svg, *paths, n=len(paths), parcels=len(order))


def make_power(context: Context) -> Iterator[Panel]:
    """Power spectra before and after cleaning, with the leakage."""
    curves = {
        f"{title} cleaning": np.column_stack([seen.frequencies[1:], np.log10(np.maximum(seen.power[1:], 1e-12))])
        for title, seen in context.previews.items()
    }
    if not curves:
        return
    rows = [row for row in context.account.quality if row["atlas"] == context.view.atlas]
    leakage = float(rows[0]["band_leakage"]) if rows else np.nan
    outside = f"{100 * leakage:.1f} % of the cleaned power is outside" if np.isfinite(leakage) else ""
    title, band = f"{outside} the band (dashed)" if outside else "", context.settings.method.band
    panel = (title, "log₁₀ power (variance 1, per Hz)", "frequency (Hz)", curves)
    svg = draw_curves([panel], mark=tuple(end or np.nan for end in band))
    yield context.panel("power", svg, context.view.file("timeseries"), outside=f" {outside}." if outside else "")


def make_eigenvalues(context: Context) -> Iterator[Panel]:
    """Eigenvalues of FC before and after flattening."""
    if (path := context.view.file("eigenvalues")) is None:
        return
    table, facts = read_declared(path, SPECTRUM), read_json(path.with_suffix(".json"))
    shown = table[table["eigenvalue_power"] > 0]
    ratios = [f"{facts[name]:.1f}" for name in ("ParticipationRatio", "ParticipationRatioPower")]
    curves = {
        f"{name}, participation ratio {ratio}": np.column_stack([shown.index + 1, np.log10(shown[column])])
        for name, ratio, column in zip(("FC", f"FC^{facts['Alpha']:g}"), ratios, EIGENVALUES, strict=True)
    }
    clipped = len(table) - len(shown)
    title = f"{clipped} eigenvalues are zero to rounding, or negative, and not shown" if clipped else ""
    svg = draw_curves([(title, "log₁₀ eigenvalue", "rank", curves)], 0.0)
    words = {"before": ratios[0], "after": ratios[1], "rank": facts["Rank"], "clipped": facts["NumberClipped"]}
    yield context.panel("eigenvalues", svg, path, n=len(table), **words)


def make_embedding(context: Context) -> Iterator[Panel]:
    """One panel per embedding, with what its sidecar says of the encoder."""
    for path in context.view.files.get("embedding", ()):
        vector, facts = read_matrix(path)[0][0], read_json(path.with_suffix(".json"))
        shown = ("name", "read", "weights", "sha256", "licence", "missing_parcels")
        about = "; ".join(f"{name} {facts[name]}" for name in shown if facts.get(name) is not None)
        words = {"encoder": facts.get("name", "the encoder"), "n": len(vector), "norm": f"{np.linalg.norm(vector):.3f}"}
        yield context.panel("embedding", "", path, about=about, **words)


PANELS: dict[str, Callable[[Context], Iterator[Panel]]] = {
    "Coverage": make_coverage,
    "Motion and signal over time": make_over_time,
    "Connectomes": make_connectomes,
    "Power spectrum": make_power,
    "Eigenvalues": make_eigenvalues,
    "Embedding": make_embedding,
}
