"""The spectrum of FC on its way to FC^alpha: histograms, geodesic, heat trace, and eigenvectors before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import linalg
from threadpoolctl import threadpool_limits

from fcpower_bids.analyses.features import COMBINATION, AveragedEdges, combine_scans
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome import (
    clip_tolerance,
    eigendecompose,
    in_range,
    power_weights,
    spectral_map,
    spectrum_summary,
)
from fcpower_bids.core.edges import rebuild_matrix
from fcpower_bids.errors import Unfit
from fcpower_bids.parallel import track
from fcpower_bids.records import Cohort, Looked, Table
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Settings

PATH = tuple(round(0.05 * step, 2) for step in range(21))
"""Exponents, or diffusion times, of the paths; that of --alpha is added."""
HISTOGRAM_ALPHAS = (1.0, 0.75, 0.5, 0.2, 0.1, 0.05)
MATRIX_ALPHAS = (0.0, 0.1, 0.6, 1.0)
N_BINS = 200
REFERENCE_RANK = 20
"""Mode whose length is the radius of the sphere, and that the first mode is compared with."""

FACTS = {
    "People": "One connectome per person; no phenotype is needed.",
    "Rank": (
        "Eigenvalues that are zero to rounding have weight 0 at every exponent and are left out of logarithms; the "
        "distances of a rank-deficient connectome from the identity are not defined."
    ),
}


class Spectra(NamedTuple):
    """Eigenvalues of everyone."""

    names: tuple[str, ...]  # n people
    connectivity: AveragedEdges  # their FC
    eigenvalues: FloatArray  # (n, P): descending
    tolerance: float  # share of the largest up to which an eigenvalue counts as zero


def analyse_geometry(cohort: Cohort, settings: Settings) -> Looked:
    """Describe the spectra of a cohort between the identity (alpha = 0), FC^alpha and FC (alpha = 1).

    Source: the paper, Figures "powermap", "heat" and "geo" and the figure of the scaled eigenvectors; Appendices "The
    scaled eigenvectors before and after the transform", "The transform as a geodesic" and "as a heat kernel". Raises
    Unfit.
    """
    if not len(cohort.scans):
        raise Unfit("There is no scan whose spectrum could be described.")
    yield {}
    alpha, people = settings.method.alpha, cohort.scans["participant_id"].astype(str)
    groups = {name: np.flatnonzero(people == name) for name in sorted(set(people))}
    connectivity = combine_scans(cohort, list(groups.values()))
    values = []
    with threadpool_limits(1):
        for unit in track(range(len(groups)), "spectra", settings):
            values.append(np.asarray(linalg.eigvalsh(connectivity.connectome(unit))[::-1]))
    spectra = Spectra(tuple(groups), connectivity, np.stack(values), clip_tolerance(connectivity.dtype))
    # before and after, what the paper quotes
    summaries = pd.DataFrame([spectrum_summary(eigenvalues, alpha, spectra.tolerance) for eigenvalues in values])
    quoted = summaries[
        [f"{name}{end}" for end in ("", "_power") for name in ("participation_ratio", "first_to_twentieth")]
    ]
    means = quoted.mean().to_dict() | quoted.std().add_suffix("_sd").to_dict()
    facts = FACTS | {"Alpha": alpha, "FeaturesOfAPerson": COMBINATION}
    facts |= {"Means": {name: value for name, value in means.items() if np.isfinite(value)}}
    facts |= {"RankDeficient": int((summaries["n_clipped"] > 0).sum())}
    shown, path, matrices = (sorted({*some, alpha}) for some in (HISTOGRAM_ALPHAS, PATH, MATRIX_ALPHAS))
    tables = {
        "spectrum_histogram": tabulate_histogram(spectra, shown),
        "spectrum_ranks": (tabulate_ranks(spectra, path), {}),
        "spectrum_path": (tabulate_path(spectra, path), {}),
        "spectrum_sphere": tabulate_sphere(spectra, (1.0, alpha), settings.method.random_seed),
        "spectrum_matrices": tabulate_matrices(spectra, matrices, cohort.parcels),
    }
    yield {name: Table(frame, TABLES[name], facts | more) for name, (frame, more) in tables.items()}


Tabulated = tuple[pd.DataFrame, dict[str, Any]]


def tabulate_histogram(spectra: Spectra, alphas: Sequence[float]) -> Tabulated:
    """Histogram of log10 lambda^alpha, pooled over people, with the same bins for every exponent."""
    inside = [in_range(values, spectra.tolerance) for values in spectra.eigenvalues]
    logs = np.concatenate([np.log10(v[ok]) for v, ok in zip(spectra.eigenvalues, inside, strict=True)])
    edges = np.linspace(min(logs.min(), 0.0), max(logs.max(), 0.0), N_BINS + 1)
    parts = []
    for alpha in alphas:
        counts, _ = np.histogram(alpha * logs, np.nextafter(edges, [-np.inf] + [np.inf] * N_BINS))
        parts.append(pd.DataFrame({"alpha": alpha, "low": edges[:-1], "high": edges[1:], "count": counts}))
    frame = pd.concat(parts, ignore_index=True)
    frame["share"] = frame["count"] / len(logs)
    return frame, {"LeftOut": int(spectra.eigenvalues.size - len(logs))}


def tabulate_ranks(spectra: Spectra, alphas: Sequence[float]) -> pd.DataFrame:
    """Spectrum by rank for every exponent: mean over people, and the path of the mean spectrum."""
    mean = np.clip(spectra.eigenvalues, 0, None).mean(axis=0)
    parts = []
    for alpha in alphas:
        weights = np.stack([power_weights(values, alpha, spectra.tolerance) for values in spectra.eigenvalues])
        part = {"alpha": alpha, "rank": np.arange(1, mean.size + 1), "mean": weights.mean(axis=0)}
        spread = weights.std(axis=0, ddof=1) if len(weights) > 1 else np.full(mean.size, np.nan)
        parts.append(pd.DataFrame(part | {"sd": spread, "path": power_weights(mean, alpha, spectra.tolerance)}))
    return pd.concat(parts, ignore_index=True)


def tabulate_path(spectra: Spectra, alphas: Sequence[float]) -> pd.DataFrame:
    """Geodesic distances, heat trace, participation ratio and dominance of everyone along the path."""
    rows = []
    for name, values in zip(spectra.names, spectra.eigenvalues, strict=True):
        for alpha in alphas:
            # Z(t) = tr (Sigma / lambda_1)^t; the ratios do not feel the division by lambda_1.
            summary = spectrum_summary(values, alpha, spectra.tolerance)
            away = summary["arclength"]
            rest = away / alpha - away if alpha else spectrum_summary(values, 1.0, spectra.tolerance)["arclength"]
            row = {"participant_id": name, "alpha": alpha, "from_identity": away, "to_fc": rest}
            ratios = ("participation_ratio", "first_to_twentieth", "first_to_last")
            row |= {"heat_trace": summary["heat_trace"]} | {ratio: summary[f"{ratio}_power"] for ratio in ratios}
            rows.append(row)
    return pd.DataFrame(rows)


def tabulate_sphere(spectra: Spectra, alphas: Sequence[float], seed: int) -> Tabulated:
    """Project the eigenvectors of the mean FC, times those of the mean spectrum, onto three random directions."""
    n_parcels = spectra.eigenvalues.shape[1]
    mean = np.clip(spectra.eigenvalues, 0, None).mean(axis=0)
    total = sum(spectra.connectivity[unit] for unit in range(len(spectra.names)))
    _, vectors = eigendecompose(rebuild_matrix(total / len(spectra.names), diagonal=1.0, weighted=False))
    largest = np.abs(vectors).argmax(axis=0)
    vectors = vectors * np.sign(vectors[largest, np.arange(n_parcels)])
    drawn = np.random.default_rng(seed).standard_normal((n_parcels, min(3, n_parcels)))
    directions, _ = linalg.qr(drawn, mode="economic")
    parts = []
    for alpha in dict.fromkeys(alphas):
        lengths = power_weights(mean, alpha, spectra.tolerance)
        placed = dict(zip("xyz", (directions.T @ vectors) * lengths, strict=False))
        radius = lengths[min(REFERENCE_RANK, n_parcels) - 1]
        rank = np.arange(1, n_parcels + 1)
        parts.append(pd.DataFrame({"alpha": alpha, "rank": rank, **placed, "length": lengths, "radius": radius}))
    note = "Eigenvectors of the mean FC, with the largest entry positive; orthonormal random directions."
    return pd.concat(parts, ignore_index=True), {"Projection": note}


def tabulate_matrices(spectra: Spectra, alphas: Sequence[float], parcels: Sequence[str]) -> Tabulated:
    """FC^alpha of one person over its largest eigenvalue: the person whose participation ratio is the median."""
    ratios = [spectrum_summary(values, 1.0, spectra.tolerance)["participation_ratio"] for values in spectra.eigenvalues]
    person = int(np.argsort(ratios, kind="stable")[(len(ratios) - 1) // 2])
    values, vectors = eigendecompose(spectra.connectivity.connectome(person))
    first, second = np.triu_indices(len(parcels))
    names = np.array(parcels, dtype=object)
    parts = []
    for alpha in alphas:
        weights = power_weights(values, alpha, spectra.tolerance)
        matrix = spectral_map(vectors, weights / weights.max())[first, second]
        parts.append(pd.DataFrame({"alpha": alpha, "parcel": names[first], "other": names[second], "value": matrix}))
    return pd.concat(parts, ignore_index=True), {"Person": spectra.names[person]}
