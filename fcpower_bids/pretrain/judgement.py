"""Whether a student is better than random weights and than connectivity, on held-out people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
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
from fcpower_bids.pretrain.engine import PretrainConfig
from fcpower_bids.pretrain.selection import HeldOut, Map, encode
from fcpower_bids.schema import TABLES

MODEL, INITIAL, RANDOM, FC, FC_POWER = "model", "initial", "random-init", "fc", "fc_power"
IN_WORDS = {
    MODEL: "this model",
    INITIAL: "before training",
    RANDOM: "random weights",
    FC: "FC of the window",
    FC_POWER: "FC^α of the window",
}
"""Names of the rows of the table ``alignment``."""
COLUMNS = list(TABLES["alignment"].columns)
RANDOM_SEEDS = tuple(range(1000, 1010))
FEWEST_FAMILIES = 5
CONFIDENCE = 0.95


def judge(
    held_out: HeldOut, rows: NDArray[np.intp], config: PretrainConfig, optimism: float, model: FBert
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Compare a model with what needs no training, on the held-out people; entries of the sidecar say the verdict.

    `rows`: training recordings. `optimism`: by how much the choice of the checkpoint by these people flatters it, which
    the verdict leaves off. With too few families held out the table is empty.
    """
    corpus, window, families = held_out.corpus, config.window, held_out.corpus.families[held_out.rows]
    names = np.unique(families)
    whom = f"{len(names)} held-out {'family' if len(names) == 1 else 'families'}"
    facts = {
        "Proven": False,
        "Verdict": (
            f"The model is not proven: too few people were held out to compare it with {IN_WORDS[RANDOM]} ({whom}; "
            f"{FEWEST_FAMILIES} are needed: held_out)."
        ),
        "Bar": RANDOM,
        "Difference": None,
        "LowerLimit": None,
        "Optimism": optimism,
        "Confidence": CONFIDENCE,
        "Families": len(names),
        "Recordings": len(families),
    }
    if len(names) < FEWEST_FAMILIES:
        return pd.DataFrame(columns=COLUMNS), facts
    teacher = corpus.kernel_of(held_out.rows).cpu().double().numpy()
    people, ends = two_windows(held_out, window)
    if len(people) < 2:  # nobody is identified, and the size of a vector is known from any window
        ends = [(rows[:1], np.zeros(1, int))]
    windows = [corpus.windows(*end, window) for end in ends]

    def describe(embed: Map, kernel: FloatArray) -> dict[str, float]:
        n, accuracy = len(people), np.nan
        vectors = [embed(batch) for batch in windows]
        if n > 1:  # every person's first window looks for the last one among all, and the other way round
            unit = normalise_rows(np.concatenate(vectors), keep_constant=True)
            accuracy = identify(unit @ unit.T, np.tile(people, 2), np.repeat(["first", "last"], n)).accuracy
        return {
            "dimensions": vectors[0].shape[1],
            "cka": kernel_alignment(kernel, teacher),
            "cka_debiased": kernel_alignment(kernel, teacher, debiased=True),
            "identification": accuracy,
        }

    def ahead(model: FloatArray, others: list[FloatArray]) -> tuple[float, float]:
        """Alignment of the model minus the mean of others, and its lower limit over families and seeds."""

        def gains(kept: NDArray[np.bool_]) -> FloatArray:
            block = np.ix_(kept, kept)
            score = kernel_alignment(model[block], teacher[block], debiased=True)
            return np.array([score - kernel_alignment(K[block], teacher[block], debiased=True) for K in others])

        seeds = gains(np.ones(len(families), dtype=bool))
        difference, without = float(seeds.mean()), [gains(families != name).mean() for name in names]
        return difference, jackknife_limit(difference, without, CONFIDENCE, seeds if len(seeds) > 1 else None)

    like, shape = next(model.parameters()), config.model_config(len(corpus.parcel_names))

    def edges(x: torch.Tensor, matrix: Callable[[FloatArray], FloatArray] = pearson_connectivity) -> FloatArray:
        """Edges of windows (n, T, P), centred and of unit norm: (n, E)."""
        matrices = [matrix(np.asarray(series, np.float64)) for series in x.cpu().numpy()]
        return normalise_rows(np.stack([vectorise_edges(connectome) for connectome in matrices]))

    maps: dict[str, list[Map]] = {
        MODEL: [encode(model)],
        INITIAL: [encode(FBert(model.config, config.seed).to(like))],
        RANDOM: [encode(FBert(shape, seed).to(like)) for seed in RANDOM_SEEDS],
        FC: [edges],
        FC_POWER: [lambda x: edges(x, lambda series: power_from_series(series, corpus.alpha))],
    }
    means = held_out.average(*(embed for seeds in maps.values() for embed in seeds))
    every = iter([(vectors - vectors.mean(axis=0)) for vectors in means])
    kernels = {name: [(vectors := next(every)) @ vectors.T for _ in seeds] for name, seeds in maps.items()}
    table = []
    for name, seeds in maps.items():
        described = pd.DataFrame(map(describe, seeds, kernels[name]))
        limits = ahead(kernels[MODEL][0], kernels[name]) if name != MODEL else (np.nan, np.nan)
        scores = {column: float(described[column].to_numpy().mean()) for column in described}
        table.append({"map": name, **scores, "ahead": limits[0], "ahead_low": limits[1]})
    compared = pd.DataFrame(table, columns=COLUMNS)
    return compared, facts | _conclude(compared.set_index("map"), whom, max(optimism, 0.0))


def _conclude(rows: pd.DataFrame, whom: str, optimism: float) -> dict[str, Any]:
    """Compare with random weights, those of any seed and those at the beginning; name the best map without training."""
    worst = str(rows.loc[[INITIAL, RANDOM], "ahead_low"].idxmin())
    best = str(rows.loc[[FC, FC_POWER], "cka_debiased"].idxmax())
    gains = rows.loc[[worst, best], ["ahead", "ahead_low"]].to_numpy(float) - optimism
    (difference, low), (ahead, ahead_low) = gains.tolist()
    verdict = (
        f"The model is {'' if low > 0 else 'not proven to be '}better than {IN_WORDS[RANDOM]} on people it never saw "
        f"(debiased alignment {difference:+.3f} against {IN_WORDS[RANDOM]}, with {100 * CONFIDENCE:.0f} % confidence "
        f"above {low:+.3f}, over {whom}, less {optimism:.3f} by which choosing the checkpoint flatters it). The best "
        f"reference without steps of training is {IN_WORDS[best]} ({rows['cka_debiased'][best]:.3f}): the model is "
        f"{abs(ahead):.3f} {'above' if ahead > 0 else 'below'} it"
        f"{'' if ahead_low > 0 else ', so it is not better'}."
    )
    return {"Proven": low > 0, "Verdict": verdict, "Difference": difference, "LowerLimit": low}


def jackknife_limit(estimate: float, without: ArrayLike, confidence: float, seeds: ArrayLike | None = None) -> float:
    """Lower confidence limit of an estimate by t, from leaving units out (n,) and, if given, of a further seed (k,)."""
    values = np.asarray(without, dtype=np.float64)
    n = len(values)
    variance, freedom = (n - 1) / n * ((values - values.mean()) ** 2).sum(), float(n - 1)
    if seeds is not None:
        k = np.size(seeds)
        of_seed = (1 + 1 / k) * np.var(np.asarray(seeds, dtype=np.float64), ddof=1)
        total = variance + of_seed
        if total > 0:
            freedom = float(total**2 / (variance**2 / (n - 1) + of_seed**2 / (k - 1)))
        variance = total
    return float(estimate - stats.t.ppf(confidence, freedom) * np.sqrt(variance))


def two_windows(
    held_out: HeldOut, window: int
) -> tuple[NDArray[np.str_], list[tuple[NDArray[np.intp], NDArray[np.intp]]]]:
    """People and, of the first and the last window of each, recordings and places (of two recordings or of one)."""
    table, places = held_out.corpus.table.iloc[held_out.rows], held_out.corpus.places(window)
    apart = held_out.corpus.windows_apart(window)
    people = (table["dataset"] + "/" + table["subject"]).to_numpy(dtype=str)
    spans = {person: held_out.rows[people == person][[0, -1]] for person in np.unique(people)}
    there = {person: span for person, span in spans.items() if span[0] != span[1] or apart[span[0]] > 1}
    first, last = np.array(list(there.values()), dtype=np.intp).reshape(-1, 2).T
    return np.array(list(there), dtype=str), [(first, np.zeros_like(first)), (last, places[last] - 1)]
