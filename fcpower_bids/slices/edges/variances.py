"""Variances of groups whose ratio is much the same for all edges: each edge's own is drawn to that of all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from fcpower_bids.core.arrays import FloatArray

STEPS = 50
"""Of Newton's iteration for the inverse of the trigamma function, which needs fewer than ten."""
LEAST_EXCESS = 1e-6
"""Variance of log ratios between edges that is none: all edges have one ratio."""


@dataclass(frozen=True, eq=False)
class Shrinkage:
    """How far the variance of each of G groups goes by all edges, in each of B permutations."""

    # (G, B): share of an edge's own variance in it; the rest is what the variance of everyone makes likely
    own: FloatArray
    ratio: FloatArray  # (G, B): variance of the group over that of everyone, common to all edges


def learn_shrinkage(rests: FloatArray, freedom: FloatArray) -> Shrinkage:
    """Ratios of variances over all edges, and how much they truly differ between edges.

    Source: the empirical Bayes of Smyth 2004 (doi:10.2202/1544-6115.1027), of the log ratio of the variances of groups.

    Shapes and units: sums of squares (G, B, E), freedom (G,).
    """
    n_groups, n_orders, n_edges = rests.shape
    if n_groups < 2 or n_edges < 2:
        return Shrinkage(*np.ones((2, n_groups, n_orders)))
    half = freedom / 2
    logs = np.log(np.maximum(rests, np.finfo(float).tiny)) - special.digamma(half)[:, None, None]
    logs -= np.log(2)  # each is without bias for the log variance
    logs -= logs.mean(axis=0)
    chance = (1 - 1 / n_groups) * special.polygamma(1, half).sum()
    excess = (logs.var(axis=2, ddof=1).sum(axis=0) - chance) / (n_groups - 1)
    ratio = np.exp(logs.mean(axis=2))
    ratio /= freedom @ ratio / freedom.sum()
    prior = 2 * _inverse_trigamma(np.maximum(excess, LEAST_EXCESS))
    own = np.where(excess > LEAST_EXCESS, freedom[:, None] / (freedom[:, None] + prior), 0.0)
    return Shrinkage(own, ratio)


def _inverse_trigamma(values: FloatArray) -> FloatArray:
    """Where the trigamma function has these values, by Newton's iteration (Smyth 2004, appendix)."""
    x = 0.5 + 1 / values
    for _ in range(STEPS):
        trigamma = special.polygamma(1, x)
        x = x + trigamma * (1 - trigamma / values) / special.polygamma(2, x)
    return np.asarray(x)


def join_variances(
    rests: FloatArray, weights: FloatArray, freedom: FloatArray, shrinkage: Shrinkage
) -> tuple[FloatArray, FloatArray]:
    """Variance of the slope, sum over groups of weight times variance, and its degrees of freedom, each (B, E).

    Degrees of freedom by Satterthwaite: those of Welch where each edge goes by its own, all where one ratio serves all.

    Shapes and units: sums of squares (G, B, E), weights (G,), freedom (G,).
    """
    own, ratio, whole = shrinkage.own, shrinkage.ratio, freedom.sum()
    weights, df = weights[:, None], freedom[:, None]
    borrowed = (1 - own) * ratio
    share = weights * own / df + (weights * borrowed).sum(axis=0) / (ratio * whole)
    # of the sampling of the squares, and of how much the ratio of an edge may differ from that of all
    uncertain = np.sqrt(share**2 * df + weights**2 * own * (1 - own) / df)
    pooled, total, squared = np.zeros((3, *rests.shape[1:]))
    for rest, each, one in zip(rests, ratio, share, strict=True):
        pooled += rest / (each * whole)[:, None]
        total += rest * one[:, None]
    for rest, from_own, from_all in zip(rests, uncertain * own / df, uncertain * borrowed, strict=True):
        part = rest * from_own[:, None]
        part += pooled * from_all[:, None]
        part *= part
        squared += part
    found = total * total
    found /= np.maximum(squared, np.finfo(float).tiny, out=squared)
    return total, np.clip(found, freedom.min(), whole, out=found)
