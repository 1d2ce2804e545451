"""Which part of each person's spectrum goes with a target: FC^alpha, cut by the rank of its eigenvalues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.analyses.engine.connectomes import PowerFamily
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.spectrum import power_weights, rank
from fcpower_bids.core.inference.permutation import largest_standardised
from fcpower_bids.records import Table
from fcpower_bids.schema import Column, TableSpec, join_columns
from fcpower_bids.slices.edges.permuted import ORDERS, TIES
from fcpower_bids.slices.edges.results import Question
from fcpower_bids.slices.edges.tables import KEYS

MOST_EDGES = 2048
"""Edges, evenly taken, whose mean t^2 is the strength of a part; fewer where the connectome has fewer."""

MODES = TableSpec(
    "edges_modes",
    "Which part of each person's spectrum goes with a target: the parts of FC^alpha that neighbouring eigenvectors "
    "make, by the rank of their eigenvalues.",
    join_columns(
        KEYS["target"],
        Column.number("first_rank", "First eigenvector of the part, from 1 for the largest eigenvalue", "From rank", 0),
        Column.number("last_rank", "Last eigenvector of the part", "to", 0),
        Column.number("share_fc", "Its share of the sum of lambda^2, mean over people: its weight in FC", "In FC", 2),
        Column.number("share_fc_power", "Its share of the sum of lambda^(2 alpha)", "In FC^α", 2),
        Column.number("strength", "Mean t^2 of the target over the edges of the part", "Mean t²", 2),
        Column.number("strength_chance", "The same, mean over permutations", "By chance", 2),
        Column.p("p_permutation", "p of that strength by permutation, uncorrected", "p (uncorrected)"),
        Column.p(
            "p_family_wise",
            "p against the largest of all parts of the target in each permutation, the logarithm of each strength in "
            "standard deviations of its own permutations: corrected for their number",
            "p (corrected)",
        ),
    ),
    ("target", "first_rank"),
)
RULE = (
    "The part of ranks a to b is the sum of lambda_i^alpha v_i v_i' over these ranks, person by person: the sign of an "
    "eigenvector drops out of it, and a rotation among equal eigenvalues. Ranks of nearby eigenvalues change places "
    "between people, so that the parts become wider by doubling. Ranks that the connectome of anyone lacks are left "
    "out. Each edge of a part is tested as other edges are. A part is curved in what edges are straight in: with "
    "covariates the probability that they give to a class is one more of them, and classes are exchanged as often as "
    "it makes likely, covariates and parts in place (Berrett et al. 2020, doi:10.1111/rssb.12340). The statistic is "
    f"the mean t^2 over {MOST_EDGES:,} edges, evenly taken, or over all where there are fewer."
)


def bounds_of_parts(n_modes: int) -> list[int]:
    """Ranks before which parts begin, and the last: 0, 1, 2, 4, 8, ...; a rest of less than half the last joins it."""
    bounds = [0, *(2**power for power in range(n_modes.bit_length()) if 2**power < n_modes)]
    if len(bounds) > 2 and n_modes - bounds[-1] < (bounds[-1] - bounds[-2]) / 2:
        bounds.pop()
    return [*bounds, n_modes]


def cut_spectra(family: PowerFamily, alpha: float) -> tuple[list[int], NDArray[np.float32], FloatArray]:
    """Bounds of the K parts, their edges (n, K, S) in FC^alpha, mean shares in FC and FC^alpha (2, K)."""
    bounds = bounds_of_parts(min(rank(values, family.tolerance) for values, _ in family.each_spectrum()))
    starts, n_modes = bounds[:-1], bounds[-1]
    first, second = np.triu_indices(family.n_parcels, 1)
    taken = np.unique(np.linspace(0, len(first) - 1, MOST_EDGES).round().astype(np.intp))
    first, second = first[taken], second[taken]
    n = family.connectivity.shape[0]
    parts, shares = np.empty((n, len(starts), len(taken)), np.float32), np.zeros((2, len(starts)))
    for person, (values, vectors) in enumerate(family.each_spectrum()):
        for row, exponent in enumerate((1.0, alpha)):
            squares = power_weights(values, 2 * exponent, family.tolerance)
            shares[row] += np.add.reduceat(squares[:n_modes], starts) / squares.sum() / n
        products = vectors[first] * power_weights(values, alpha, family.tolerance) * vectors[second]
        parts[person] = np.add.reduceat(products[:, :n_modes], starts, axis=1).T
    return bounds, parts, shares


def measure_strength(edges: ArrayLike, asked: Question) -> FloatArray:
    """Mean t^2 of the edges (n, S) of a part, as people are and in each permutation, shape (1 + B,)."""
    model, orders = asked.of_parts, asked.orders_of_parts
    residuals = model.residuals(edges)
    residuals = residuals[:, residuals.any(axis=0)]
    own = model.shrinkage(residuals)
    found = [np.mean(model.common_t(model.statistic(residuals, own)) ** 2, keepdims=True)]
    residuals = model.made_alike(residuals, own)
    for start in range(0, len(orders), ORDERS):
        some = orders[start : start + ORDERS]
        found.append((model.permuted_t(residuals, some, model.shrinkage(residuals, some)) ** 2).mean(axis=1))
    return np.concatenate(found)


def describe_modes(
    family: PowerFamily, questions: Sequence[Question], alpha: float, facts: Mapping[str, Any]
) -> dict[str, Table]:
    """Test every part of the spectrum against every target."""
    bounds, parts, (in_fc, in_power) = cut_spectra(family, alpha)
    frames = []
    for asked in questions:
        each = (measure_strength(parts[asked.people, part], asked) for part in range(parts.shape[1]))
        strengths = np.stack(list(each), axis=1)
        tested = len(asked.orders) > 0
        nothing = np.full(parts.shape[1], np.nan)
        as_strong = (strengths[1:] >= TIES * strengths[0]).sum(axis=0)
        columns = {
            "target": asked.target,
            "first_rank": [bound + 1 for bound in bounds[:-1]],
            "last_rank": bounds[1:],
            "share_fc": in_fc,
            "share_fc_power": in_power,
            "strength": strengths[0],
            "strength_chance": strengths[1:].mean(axis=0) if tested else nothing,
            "p_permutation": (1 + as_strong) / len(strengths) if tested else nothing,
            "p_family_wise": largest_standardised(np.log(strengths))[0] if tested else nothing,
        }
        frames.append(pd.DataFrame(columns))
    return {MODES.name: Table(pd.concat(frames, ignore_index=True), MODES, {**facts, "Parts": RULE})}
