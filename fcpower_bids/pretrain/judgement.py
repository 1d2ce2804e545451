"""Whether a student is better than random weights and than connectivity, on held-out people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from fcpower_bids.core.alignment import kernel_alignment
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import power_from_series
from fcpower_bids.core.identification import identify
from fcpower_bids.core.regression.kernels import normalise_rows
from fcpower_bids.encoders.fbert import FBert
from fcpower_bids.pretrain.configuration import PretrainConfig
from fcpower_bids.pretrain.engine import EVALUATION
from fcpower_bids.pretrain.run_state import (
    ALIGNMENT,
    CHANCE,
    FC,
    FC_POWER,
    IN_WORDS,
    INITIAL,
    MODEL,
    PCA,
    RANDOM,
)
from fcpower_bids.pretrain.selection import CONFIRM, HeldOut, Map, encode


def connectivity_edges(windows: ArrayLike) -> FloatArray:
    """Edges of FC of windows (n, T, P), centred and of unit norm: (n, E)."""
    matrices = [pearson_connectivity(np.asarray(one, np.float64)) for one in np.asarray(windows)]
    return normalise_rows(np.stack([vectorise_edges(one) for one in matrices]))


def power_edges(windows: ArrayLike, alpha: float) -> FloatArray:
    """Edges of FC^alpha of windows (n, T, P), centred and of unit norm: (n, E), the teacher of the window."""
    matrices = [power_from_series(np.asarray(one, np.float64), alpha) for one in np.asarray(windows)]
    return normalise_rows(np.stack([vectorise_edges(one) for one in matrices]))


def jackknife_limit(estimate: float, without: ArrayLike, confidence: float, seeds: ArrayLike | None = None) -> float:
    """Lower confidence limit of an estimate by t, from leaving units out (n,) and, if given, of a further seed (k,)."""
    values = np.asarray(without, dtype=np.float64)
    n = len(values)
    variance, freedom = (n - 1) / n * ((values - values.mean()) ** 2).sum(), float(n - 1)
    if seeds is not None:
        each = np.asarray(seeds, dtype=np.float64)
        k = len(each)
        of_seed = (1 + 1 / k) * each.var(ddof=1)
        total = variance + of_seed
        if total > 0:
            freedom = float(total**2 / (variance**2 / (n - 1) + of_seed**2 / (k - 1)))
        variance = total
    return float(estimate - stats.t.ppf(confidence, freedom) * np.sqrt(variance))


@dataclass(frozen=True, eq=False)
class WhitenedComponents:
    """Principal components of features, each of unit variance among those they were fitted to."""

    mean: FloatArray  # (E,)
    loadings: FloatArray  # (E, d)

    def __call__(self, features: ArrayLike) -> FloatArray:
        """Project features (n, E): array (n, d)."""
        projected: FloatArray = (np.asarray(features, np.float64) - self.mean) @ self.loadings
        return projected


def fit_components(features: ArrayLike, d: int) -> WhitenedComponents:
    """Fit the first `d` principal components, or as many as n people allow. Shapes and units: features (n, E)."""
    features = np.asarray(features, np.float64)
    mean = features.mean(axis=0)
    centred = features - mean
    values, vectors = np.linalg.eigh(centred @ centred.T)
    d = min(d, len(features) - 1)
    values, vectors = values[::-1][:d], vectors[:, ::-1][:, :d]
    return WhitenedComponents(mean, centred.T @ vectors * (np.sqrt(len(features) - 1) / values))


RANDOM_SEEDS = tuple(range(1000, 1010))
SHUFFLES = 20
MOST_FITTED = 500
"""Training windows that the principal components are fitted to."""
FEWEST_FAMILIES = 5
CONFIDENCE = 0.95


def judge(
    held_out: HeldOut, rows: NDArray[np.intp], config: PretrainConfig, chosen: bool, model: FBert
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Compare a model with what needs no training, on the held-out people; entries of the sidecar say the verdict.

    `rows`: training recordings. `chosen`: whether half of the held-out people chose the checkpoint: the verdict then
    rests on the other half. With too few families held out the table is empty.
    """
    corpus, window, everyone = held_out.corpus, config.window, held_out.corpus.families[held_out.rows]
    judged = np.flatnonzero(held_out.roles == CONFIRM) if chosen else np.arange(len(held_out.roles))
    families = everyone[judged]
    names = np.unique(families)
    whom = f"{len(names)} held-out {'family' if len(names) == 1 else 'families'}"
    whom += " that did not choose the checkpoint" if chosen else ""
    facts = {
        "Proven": False,
        "Verdict": (
            f"The model is not proven: too few people were held out to compare it with {IN_WORDS[RANDOM]} ({whom}; "
            f"{FEWEST_FAMILIES} are needed: held_out)."
        ),
        "Bar": RANDOM,
        "Difference": None,
        "LowerLimit": None,
        "Confidence": CONFIDENCE,
        "Families": len(names),
        "Recordings": len(families),
    }
    if len(np.unique(everyone)) < FEWEST_FAMILIES:
        return pd.DataFrame(columns=list(ALIGNMENT.columns)), facts
    teacher = corpus.kernel_of(held_out.rows).cpu().double().numpy()
    sites, pairs = corpus.sites[held_out.rows], two_windows(held_out, window)

    def kernel_of(one: Map) -> FloatArray:
        vectors = held_out.average(one)
        vectors = vectors - vectors.mean(axis=0)
        return np.asarray(vectors @ vectors.T)

    def describe(one: Map, kernel: FloatArray) -> dict[str, float]:
        block, n = np.ix_(judged, judged), len(pairs["person"])
        if n < 2:  # the size of a vector is known from any window
            found, dimensions = np.nan, one(corpus.windows(rows[:1], np.zeros(1, int), window)).shape[1]
        else:  # every person's first window looks for the last one among all, and the other way round
            vectors = [one(corpus.windows(pairs[f"row_{k}"], pairs[f"place_{k}"], window)) for k in (0, 1)]
            unit = normalise_rows(np.concatenate(vectors), keep_constant=True)
            sessions, dimensions = np.repeat(["first", "last"], n), vectors[0].shape[1]
            found = identify(unit @ unit.T, np.tile(pairs["person"], 2), sessions).accuracy
        return {
            "dimensions": dimensions,
            "cka": kernel_alignment(kernel, teacher),
            "cka_debiased": kernel_alignment(kernel, teacher, debiased=True),
            "cka_within": within_alignment(kernel, teacher, sites),
            "cka_judged": kernel_alignment(kernel[block], teacher[block], debiased=True),
            "identification": found,
        }

    def ahead(own: FloatArray, others: list[FloatArray]) -> tuple[float, float]:
        """Alignment of the model minus the mean of others, and its lower limit over families and seeds."""
        if len(names) < FEWEST_FAMILIES:
            return np.nan, np.nan

        def scores(kept: NDArray[np.bool_]) -> FloatArray:
            block = np.ix_(judged[kept], judged[kept])
            of_own = kernel_alignment(own[block], teacher[block], debiased=True)
            return np.array([of_own - kernel_alignment(one[block], teacher[block], debiased=True) for one in others])

        each = scores(np.ones(len(families), dtype=bool))
        difference, without = float(each.mean()), [scores(families != name).mean() for name in names]
        return difference, jackknife_limit(difference, without, CONFIDENCE, each if len(each) > 1 else None)

    maps = {MODEL: [encode(model)], **_without_training(held_out, rows, config, model)}
    kernels = {name: [kernel_of(one) for one in each] for name, each in maps.items()}
    table = []
    for name, each in maps.items():
        described = [describe(one, kernel) for one, kernel in zip(each, kernels[name], strict=True)]
        row: dict[str, Any] = {key: float(np.mean([one[key] for one in described])) for key in described[0]}
        limits = ahead(kernels[MODEL][0], kernels[name]) if name != MODEL else (np.nan, np.nan)
        table.append({"map": name, **row, "ahead": limits[0], "ahead_low": limits[1]})
    table.append({"map": CHANCE, **_chance(kernels[MODEL][0], teacher, held_out.seed, len(pairs["person"]))})
    compared = pd.DataFrame(table, columns=list(ALIGNMENT.columns))
    if len(names) >= FEWEST_FAMILIES:
        facts |= _conclude(compared.set_index("map"), whom)
    return compared, facts


def _without_training(
    held_out: HeldOut, rows: NDArray[np.intp], config: PretrainConfig, model: FBert
) -> dict[str, list[Map]]:
    """Maps without training: the model as it began and with random weights, and connectivity of the window.

    Components of connectivity are fitted to windows of training recordings.
    """
    corpus, window, like = held_out.corpus, config.window, next(model.parameters())
    shape = config.model_config(len(corpus.parcel_names))
    rng = np.random.default_rng((held_out.seed, EVALUATION, len(rows)))
    some = rng.permutation(rows)[:MOST_FITTED]
    windows = corpus.windows(some, rng.integers(0, corpus.places(window)[some]), window)
    components = fit_components(connectivity_edges(windows.cpu().numpy()), model.config.d)
    return {
        INITIAL: [encode(FBert(model.config, config.seed).to(like))],
        RANDOM: [encode(FBert(shape, seed).to(like)) for seed in RANDOM_SEEDS],
        FC: [lambda x: connectivity_edges(x.cpu().numpy())],
        FC_POWER: [lambda x: power_edges(x.cpu().numpy(), corpus.alpha)],
        PCA: [lambda x: components(connectivity_edges(x.cpu().numpy()))],
    }


def _chance(kernel: FloatArray, teacher: FloatArray, seed: int, n: int) -> dict[str, float]:
    """Alignment of shuffled people, and the share of n people that a guess recognises."""
    rng = np.random.default_rng((seed, EVALUATION, 1))
    orders = [rng.permutation(len(kernel)) for _ in range(SHUFFLES)]
    shuffled = [kernel[np.ix_(order, order)] for order in orders]
    return {
        "cka": float(np.mean([kernel_alignment(one, teacher) for one in shuffled])),
        "cka_debiased": float(np.mean([kernel_alignment(one, teacher, debiased=True) for one in shuffled])),
        "identification": 1 / n if n > 1 else np.nan,
    }


def _conclude(rows: pd.DataFrame, whom: str) -> dict[str, Any]:
    """Compare with random weights, those of any seed and those at the beginning; name the best map without training."""
    bars = rows.loc[[INITIAL, RANDOM]]
    worst = bars.loc[bars["ahead_low"].idxmin()]
    difference, low = float(worst["ahead"]), float(worst["ahead_low"])
    numbers = (
        f"debiased alignment {difference:+.3f} against {IN_WORDS[RANDOM]}, with {100 * CONFIDENCE:.0f} % confidence "
        f"above {low:+.3f}, over {whom}"
    )
    said = f"The model is {'' if low > 0 else 'not proven to be '}better than {IN_WORDS[RANDOM]} on people it never saw"
    plain = rows.loc[[FC, FC_POWER, PCA]]
    name = str(plain["cka_judged"].idxmax())
    ahead, ahead_low = float(plain.loc[name, "ahead"]), float(plain.loc[name, "ahead_low"])
    where = f"{abs(ahead):.3f} {'above' if ahead > 0 else 'below'} it"
    where += "" if ahead_low > 0 else ", so it is not better"
    best = (
        f"The best reference without steps of training is {IN_WORDS[name]} ({plain.loc[name, 'cka_judged']:.3f}): the "
        f"model is {where}."
    )
    return {"Proven": low > 0, "Verdict": f"{said} ({numbers}). {best}", "Difference": difference, "LowerLimit": low}


def within_alignment(kernel: FloatArray, teacher: FloatArray, groups: NDArray[Any]) -> float:
    """Debiased alignment of kernels (n, n) over pairs of one group, centred within it: 0 where only groups differ."""
    names = np.unique(groups)
    if len(names) < 2:
        return np.nan
    inner = np.zeros(3)
    for name in names:
        members = np.flatnonzero(groups == name)
        if len(members) >= 4:
            block = np.ix_(members, members)
            a, b = unbiased_centred(kernel[block]), unbiased_centred(teacher[block])
            inner += [(a * b).sum(), (a * a).sum(), (b * b).sum()]
    return float(inner[0] / np.sqrt(inner[1] * inner[2])) if inner.all() else np.nan


def unbiased_centred(kernel: FloatArray) -> FloatArray:
    """U-centred kernel: zero diagonal, every row sums to 0 (Szekely & Rizzo 2014)."""
    n = len(kernel)
    off = kernel - np.diag(np.diag(kernel))
    rows = off.sum(axis=1) / (n - 2)
    centred: FloatArray = off - rows[:, None] - rows[None, :] + off.sum() / ((n - 1) * (n - 2))
    return centred - np.diag(np.diag(centred))


def two_windows(held_out: HeldOut, window: int) -> dict[str, NDArray[Any]]:
    """The first and the last window of every held-out person: of two recordings, or of one that holds two windows."""
    table, places = held_out.corpus.table.iloc[held_out.rows], held_out.corpus.places(window)
    apart = held_out.corpus.windows_apart(window)
    people = (table["dataset"] + "/" + table["subject"]).to_numpy(dtype=str)
    found: list[tuple[str, int, int, int, int]] = []
    for person in np.unique(people):
        rows = held_out.rows[people == person]
        first, last = int(rows[0]), int(rows[-1])
        if first != last or apart[first] > 1:
            found.append((person, first, 0, last, int(places[last]) - 1))
    return {
        "person": np.array([one[0] for one in found], dtype=str),
        **{name: np.array([one[k] for one in found], dtype=int) for k, name in enumerate(PLACES, 1)},
    }


PLACES = ("row_0", "place_0", "row_1", "place_1")
