"""The panels of one recording, each made from the tables that were written and naming them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fcpower_bids.core.connectome.connectivity import covered_parcels
from fcpower_bids.errors import DatasetError, FcPowerError
from fcpower_bids.measures import COVERAGE, SPECTRUM
from fcpower_bids.outputs.names import SLICES, preview_path
from fcpower_bids.outputs.status import explain
from fcpower_bids.outputs.tables import read_json, read_matrix, read_series
from fcpower_bids.reports.kit import figures
from fcpower_bids.reports.kit.charts import network_spans
from fcpower_bids.reports.kit.page import relative_link
from fcpower_bids.reports.kit.panel import Panel
from fcpower_bids.reports.person.brain_figures import draw_brain, draw_coverage, median_tsnr
from fcpower_bids.reports.person.previews import Preview, make_preview, read_preview, read_slices
from fcpower_bids.reports.person.recording_facts import Account, View, name_parcels, read_columns
from fcpower_bids.settings import ParticipantOutputs
from fcpower_bids.transforms import TRANSFORMS


@dataclass(frozen=True, eq=False)
class Context:
    """Inputs of a panel."""

    account: Account
    view: View
    settings: ParticipantOutputs

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
        return [read_series(path)[0] for path in self.view.connectomes]

    @cached_property
    def previews(self) -> tuple[Preview | None, Preview | None, int]:
        """Facts about the series before and after cleaning, and the rows of the cleaned series."""
        before = read_preview(preview_path(self.view.tables["bold"])) if "bold" in self.view.tables else None
        if "timeseries" not in self.view.tables:
            return before, None, 0
        clean = read_series(self.view.tables["timeseries"])[0]
        volumes = self.account.volumes
        kept = np.ones(len(clean), dtype=bool) if volumes is None else volumes["kept"].to_numpy(dtype=bool)
        if kept.sum() != len(clean):
            raise DatasetError(
                f"{self.view.tables['timeseries']} has {len(clean)} rows, but {kept.sum()} volumes were kept. "
                "Run participant level again."
            )
        whole = np.full((len(kept), clean.shape[1]), np.nan)
        whole[kept] = clean
        networks = tuple(self.view.parcellation(self.root).networks)
        return before, make_preview(whole, kept, self.repetition_time, networks), len(clean)


CORRELATION = "pearsoncorrelation"
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
    parcels = context.view.parcellation(context.root)
    spans, whole = network_spans([parcels.networks[place] for place in parcels.order]), len(parcels.order)
    networks = [(name, start / whole, stop / whole) for name, start, stop in spans]  # shares of the sorted parcels
    svg = figures.draw_motion(columns, context.settings.fd_thresh, context.repetition_time, carpets, networks)
    text = (
        "Framewise displacement with the limit (dashed), "
        f"{'DVARS as the input table has it, ' if np.isfinite(columns['dvars']).any() else ''}and the parcel series "
        "before and after cleaning, sorted by network, in standard deviations from -2 (black) to 2 (white). "
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
        "Mean over parcels, each of variance 1. The filter's edges are soft: filtered noise has 4 to 7 % outside, "
        "more where volumes were censored.",
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
    if len(values) != len(volumes):
        raise DatasetError(f"{path} has {len(values)} rows for {len(volumes)} volumes. Run participant level again.")
    used = values[volumes["kept"].to_numpy(dtype=bool)]
    correlation = np.full((len(names), len(names)), np.nan)
    varying = np.flatnonzero(used.std(axis=0) > 0) if len(used) > 1 else np.empty(0, dtype=int)
    correlation[np.ix_(varying, varying)] = np.corrcoef(used[:, varying], rowvar=False)
    yield Panel(
        "Correlation of the nuisance regressors",
        f"{len(names)} regressors in the kept volumes, before filtering. Collinear ones count once in the regression.",
        svg=figures.draw_matrices({"Correlation": correlation}, network_spans(names), 1.0),
        alt=f"Correlation matrix of {len(names)} regressors.",
        sources=context.links(path),
        folded=True,
        wide=True,
    )


def make_connectomes(context: Context) -> Iterator[Panel]:
    """FC and its transforms."""
    if not context.view.connectomes:
        return
    parcels = context.view.parcellation(context.root)
    titles = [connectome_title(path) for path in context.view.connectomes]
    sorted_ones = (matrix[np.ix_(parcels.order, parcels.order)] for matrix in context.connectomes)
    yield Panel(
        "Connectomes",
        "Parcels sorted by network. Each matrix has a colour scale of its own. Grey: a parcel without a value.",
        figures.draw_matrices(
            dict(zip(titles, sorted_ones, strict=True)),
            network_spans([parcels.networks[place] for place in parcels.order]),
        ),
        f"{len(titles)} matrices of {len(parcels.names)} parcels.",
        sources=context.links(*context.view.connectomes),
        wide=True,
    )


def connectome_title(path: Path) -> str:
    """Name a connectome as a reader would: ``FC``, ``FC^0.35``, ``Partial correlation``; else by its label."""
    entities = dict(part.split("-", 1) for part in path.name.split("_") if "-" in part)  # type: ignore[misc]
    label = entities.get("desc") or entities["stat"]
    if label == CORRELATION:
        return "FC"
    title = str(_transform_titles().get(_kind(label), "")) or label
    try:
        return title.format_map(read_json(path.with_suffix(".json")))
    except KeyError:
        return label


@cache
def _transform_titles() -> dict[str, str]:
    """Titles by the kind of label, of transforms of one recording: the others write no connectome."""
    return {_kind(one().label): one.title for one in TRANSFORMS.values() if one.stateless}


def _kind(label: str) -> str:
    """A label without the numbers of its parameters: ``power`` of ``power0p35``."""
    return re.split(r"\d", label)[0]


def make_eigenvalues(context: Context) -> Iterator[Panel]:
    """Eigenvalues of FC before and after flattening."""
    path = context.view.tables.get("eigenvalues")
    if path is None:
        return
    table, facts = read_columns(path, SPECTRUM), read_json(path.with_suffix(".json"))
    ratios = (facts["ParticipationRatio"], facts["ParticipationRatioPower"])
    before, after = table["eigenvalue"].to_numpy(), table["eigenvalue_power"].to_numpy()
    yield Panel(
        "Eigenvalues",
        f"The participation ratio, the effective number of eigenvectors, goes from {ratios[0]:.1f} to {ratios[1]:.1f} "
        f"of {len(table)}; rank {facts['Rank']}, {facts['NumberClipped']} clipped.",
        figures.draw_eigenvalues(before, after, facts["Alpha"], ratios),
        f"Eigenvalues by rank before and after; participation ratio {ratios[0]:.1f} and {ratios[1]:.1f}.",
        sources=context.links(path),
    )


def make_spectral_path(context: Context) -> Iterator[Panel]:
    """FC raised to the exponents of the paper's figure."""
    if not context.view.connectomes:
        return
    matrix = context.connectomes[0]
    covered = covered_parcels(matrix)
    order = np.array([place for place in context.view.parcellation(context.root).order if covered[place]])
    yield Panel(
        "From the identity to FC",
        "FC raised to five exponents, each over its largest eigenvalue, on one colour scale. At 0 all its eigenvectors "
        "weigh the same: the identity, if FC is of full rank.",
        figures.draw_path(matrix, order),
        "Five matrices: the smaller the exponent, the weaker the blocks that all parcels share.",
        sources=context.links(context.view.connectomes[0]),
        wide=True,
    )


def make_embedding(context: Context) -> Iterator[Panel]:
    """One panel per embedding."""
    for path in context.view.embeddings:
        vector = read_matrix(path)[0][0]
        facts = read_json(path.with_suffix(".json"))
        shown = ("name", "read", "weights", "sha256", "licence", "missing_parcels")
        yield Panel(
            f"Embedding by {facts.get('name', 'the encoder')}",
            f"{len(vector)} dimensions, norm {np.linalg.norm(vector):.3f}.",
            figures.draw_embedding(vector),
            f"Bars of the {len(vector)} dimensions.",
            rows=tuple((name, str(facts[name])) for name in shown if facts.get(name) is not None),
            sources=context.links(path),
            wide=True,
        )


def make_panels(account: Account, view: View, settings: ParticipantOutputs) -> list[Panel]:
    """Make every panel of a recording under an atlas; one that cannot be made says why."""
    context = Context(account, view, settings)
    panels: list[Panel] = []
    for name, make in PANELS.items():
        try:
            panels += list(make(context))
        except Exception as error:
            reason = explain(error, settings.output_dir, f"{account.name}_page")
            failure = "" if isinstance(error, FcPowerError) else reason
            panels.append(Panel(name, f"This panel could not be drawn: {reason}", failure=failure))
    return panels


def make_coverage(context: Context) -> Iterator[Panel]:
    """Coverage on the brain."""
    path = context.view.tables.get("bold")
    if path is None:
        return
    coverage = read_columns(path, COVERAGE)["coverage"].to_numpy()
    facts = read_json(path.with_suffix(".json"))
    threshold = float(facts["CoverageThreshold"])
    missing = [str(name) for name in facts["UncoveredNodes"]]
    below = f"Below {threshold:g}, and without a value: {name_parcels(missing)}."
    slices = read_slices(preview_path(path, SLICES))
    if slices is None:
        note = ""
        svg = draw_coverage(context.view.parcellation(context.root), coverage, threshold)
    else:
        rims = "the brain mask (orange) and of the atlas (blue)"
        if slices.template.any():  # where its space is that of the recording
            known = np.isfinite(slices.dice)
            dice = f"; Dice coefficient with the template's brain {slices.dice:.2f}" if known else ""
            rims = f"the brain mask (orange{dice}), of the atlas (blue) and of the template's white matter (purple)"
        note = (
            f"Axial slices of this recording: the temporal mean with the rims of {rims}, which should "
            "follow the anatomy; temporal SNR, mean over standard deviation before cleaning, median "
            f"{median_tsnr(slices):.0f} in the mask; and, also from the side and the front, red where the scan has no "
            "data, "
        )
        svg = draw_brain(slices, coverage, threshold)
    share = (
        f"{'the share' if note else 'Share'} of each parcel's voxels inside the brain mask and with signal; "
        f"mean {100 * np.mean(coverage):.1f} %. "
    )
    yield Panel(
        "Coverage" if slices is None else "Brain",
        note + share + (below if missing else "No parcel is below the limit."),
        svg,
        f"Coverage of {len(coverage)} parcels; {len(missing)} are below {threshold:g}."
        + (f" Median temporal SNR {median_tsnr(slices):.0f}." if slices is not None else ""),
        sources=context.links(path),
        wide=True,
    )


def make_provenance(context: Context) -> Iterator[Panel]:
    """Entries of the sidecars."""
    view = context.view
    written = next((kind for kind in ("timeseries", "bold") if kind in view.tables), None)
    if written is None:
        return
    skipped = ("Atlas", "UncoveredNodes", "FlatNodes", "NuisanceParameters", "Node", "coverage", "Units")
    facts = {name: value for name, value in view.sidecar(written).items() if name not in skipped}
    rows = [(name, said) for name, value in facts.items() if (said := _plain(value))]
    rows += [(f"Atlas {name}", str(value)) for name, value in view.about.items()]
    yield Panel("Provenance", "Entries of the sidecars.", rows=tuple(rows), folded=True, wide=True)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_plain(item)}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


PANELS: dict[str, Callable[[Context], Iterator[Panel]]] = {
    "Coverage": make_coverage,
    "Motion and signal over time": make_over_time,
    "Connectomes": make_connectomes,
    "Power spectrum": make_power,
    "Eigenvalues": make_eigenvalues,
    "From the identity to FC": make_spectral_path,
    "Embedding": make_embedding,
    "Correlation of the nuisance regressors": make_design,
    "Provenance": make_provenance,
}
