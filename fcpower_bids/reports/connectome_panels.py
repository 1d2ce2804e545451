"""Panels about connectomes: matrices, spectrum, exponents, embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fcpower_bids.core.connectivity import covered_parcels
from fcpower_bids.derivatives.tables import read_json, read_table
from fcpower_bids.reports import figures
from fcpower_bids.reports.accounts import read_numbers
from fcpower_bids.reports.context import Context, Panel
from fcpower_bids.reports.matrices import encode_matrix, network_spans

TITLES = {
    "pearsoncorrelation": "FC",
    "partialcorrelation": "Partial correlation",
    "precision": "Precision",
    "fisherz": "Fisher z of FC",
    "logeuclidean": "Logarithm of FC",
    "degree": "FC over its degrees",
    "cholesky": "Cholesky factor of FC",
    "logcholesky": "Log-Cholesky factor of FC",
}
"""By the label in the file name; a transform that is not here is shown by its label."""


def make_connectomes(context: Context) -> Iterator[Panel]:
    """FC and its transforms, to be read cell by cell."""
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
        "Each matrix has a colour scale of its own. Grey: a parcel without a value."
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
    """Name a connectome as a reader would: ``FC``, ``FC^0.35``, ``Partial correlation``."""
    facts = read_json(path.with_suffix(".json"))
    entities = dict(part.split("-", 1) for part in path.name.split("_") if "-" in part)  # type: ignore[misc]
    label = entities.get("desc") or entities["stat"]
    if label.startswith("power") and "Alpha" in facts:
        return f"FC^{facts['Alpha']:g}"
    return TITLES.get(label, label)


def make_eigenvalues(context: Context) -> Iterator[Panel]:
    """Eigenvalues of FC before and after flattening."""
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
