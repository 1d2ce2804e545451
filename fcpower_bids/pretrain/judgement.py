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


@dataclass(frozen=True)
class Verdict:
    """Worth of a model on people that it never saw."""

    proven: bool  # whether it is better than the bar, with `CONFIDENCE`
    sentence: str
    bar: str = RANDOM  # row of the table that it must exceed
    # difference, low: debiased alignment of the model minus that of the bar, and its lower limit
    difference: float | None = None
    low: float | None = None
    # n_families, n_recordings: that it rests on
    n_families: int = 0
    n_recordings: int = 0

    def facts(self) -> dict[str, Any]:
        """Entries of the sidecar of the table."""
        return {
            "Proven": self.proven,
            "Verdict": self.sentence,
            "Bar": self.bar,
            "Difference": self.difference,
            "LowerLimit": self.low,
            "Confidence": CONFIDENCE,
            "Families": self.n_families,
            "Recordings": self.n_recordings,
        }


@dataclass(frozen=True, eq=False)
class Judge:
    """The held-out people and what is compared on them."""

    held_out: HeldOut
    rows: NDArray[np.intp]  # training recordings
    config: PretrainConfig
    chosen: bool  # whether half of the held-out people chose the checkpoint: the verdict then rests on the other half

    @property
    def possible(self) -> bool:
        """Whether enough families were held out."""
        return len(set(self.held_out.corpus.families[self.held_out.rows].tolist())) >= FEWEST_FAMILIES

    def untested(self) -> Verdict:
        """The verdict where too few families were held out to compare the model with random weights."""
        families = self.held_out.corpus.families[self.held_out.rows][self._judged]
        n = len(set(families.tolist()))
        return Verdict(
            False,
            f"The model is not proven: too few people were held out to compare it with {IN_WORDS[RANDOM]} "
            f"({_whom(n, self.chosen)}; {FEWEST_FAMILIES} are needed: held_out).",
            RANDOM,
            n_families=n,
            n_recordings=len(families),
        )

    def conclude(self, model: FBert) -> tuple[pd.DataFrame, Verdict]:
        """Compare the model where enough people were held out; else an empty table."""
        if not self.possible:
            return pd.DataFrame(columns=list(ALIGNMENT.columns)), self.untested()
        return self.compare(model)

    def compare(self, model: FBert) -> tuple[pd.DataFrame, Verdict]:
        """Score the model and what needs no training."""
        teacher = self.held_out.corpus.kernel_of(self.held_out.rows).cpu().double().numpy()
        # F-BERT of the same size with random weights, by many seeds, and a trained model as it began.
        shape, like = self.config.model_config(len(self.held_out.corpus.parcel_names)), next(model.parameters())
        random = [encode(FBert(shape, seed).to(like)) for seed in RANDOM_SEEDS]
        initial = encode(FBert(model.config, self.config.seed).to(like))
        each = {MODEL: [encode(model)], INITIAL: [initial], RANDOM: random, **self._plain(model)}
        kernels = {name: [self._kernel(one) for one in maps] for name, maps in each.items()}
        ahead = {name: self._ahead(kernels[MODEL][0], kernels[name], teacher) for name in each if name != MODEL}
        rows = [
            {
                "map": name,
                **_mean([self._row(one, kernel, teacher) for one, kernel in zip(maps, kernels[name], strict=True)]),
                **dict(zip(("ahead", "ahead_low"), ahead.get(name, (np.nan, np.nan)), strict=True)),
            }
            for name, maps in each.items()
        ]
        rows.append({"map": CHANCE, **self._chance(kernels[MODEL][0], teacher)})
        table = pd.DataFrame(rows, columns=list(ALIGNMENT.columns))
        return table, self._judge(table)

    def _plain(self, model: FBert) -> dict[str, list[Map]]:
        """Connectivity of the window, and its components in windows of training recordings."""
        corpus, window = self.held_out.corpus, self.config.window
        rng = np.random.default_rng((self.held_out.seed, EVALUATION, len(self.rows)))
        chosen = rng.permutation(self.rows)[:MOST_FITTED]
        windows = corpus.windows(chosen, rng.integers(0, corpus.places(window)[chosen]), window)
        components = fit_components(connectivity_edges(windows.cpu().numpy()), model.config.d)
        return {
            FC: [lambda x: connectivity_edges(x.cpu().numpy())],
            FC_POWER: [lambda x: power_edges(x.cpu().numpy(), corpus.alpha)],
            PCA: [lambda x: components(connectivity_edges(x.cpu().numpy()))],
        }

    def _kernel(self, one: Map) -> FloatArray:
        vectors = self.held_out.average(one)
        vectors = vectors - vectors.mean(axis=0)
        kernel: FloatArray = vectors @ vectors.T
        return kernel

    @property
    def _judged(self) -> NDArray[np.intp]:
        """Positions among the held-out recordings of those that the verdict rests on."""
        roles = self.held_out.roles
        return np.flatnonzero(roles == CONFIRM) if self.chosen else np.arange(len(roles))

    def _row(self, one: Map, kernel: FloatArray, teacher: FloatArray) -> dict[str, float]:
        judged = np.ix_(self._judged, self._judged)
        sites = self.held_out.corpus.sites[self.held_out.rows]
        identification, dimensions = self._identify(one)
        return {
            "dimensions": dimensions,
            "cka": kernel_alignment(kernel, teacher),
            "cka_debiased": kernel_alignment(kernel, teacher, debiased=True),
            "cka_within": within_alignment(kernel, teacher, sites),
            "cka_judged": kernel_alignment(kernel[judged], teacher[judged], debiased=True),
            "identification": identification,
        }

    def _identify(self, one: Map) -> tuple[float, int]:
        """Search every person's first window among the last windows of all, and the other way round."""
        pairs = two_windows(self.held_out, self.config.window)
        corpus = self.held_out.corpus
        n = len(pairs["person"])
        if n < 2:  # the size of a vector is known from any window
            return np.nan, one(corpus.windows(self.rows[:1], np.zeros(1, int), self.config.window)).shape[1]
        vectors = [one(corpus.windows(pairs[f"row_{k}"], pairs[f"place_{k}"], self.config.window)) for k in (0, 1)]
        rows = normalise_rows(np.concatenate(vectors), keep_constant=True)
        sessions = np.repeat(["first", "last"], n)
        return identify(rows @ rows.T, np.tile(pairs["person"], 2), sessions).accuracy, vectors[0].shape[1]

    def _chance(self, kernel: FloatArray, teacher: FloatArray) -> dict[str, float]:
        rng = np.random.default_rng((self.held_out.seed, EVALUATION, 1))
        orders = [rng.permutation(len(kernel)) for _ in range(SHUFFLES)]
        shuffled = [kernel[np.ix_(order, order)] for order in orders]
        n = len(two_windows(self.held_out, self.config.window)["person"])
        return {
            "cka": float(np.mean([kernel_alignment(one, teacher) for one in shuffled])),
            "cka_debiased": float(np.mean([kernel_alignment(one, teacher, debiased=True) for one in shuffled])),
            "identification": 1 / n if n > 1 else np.nan,
        }

    def _ahead(self, own: FloatArray, others: list[FloatArray], teacher: FloatArray) -> tuple[float, float]:
        """Alignment of the model minus the mean of others, and its lower limit over families and seeds."""
        judged = self._judged
        families = self.held_out.corpus.families[self.held_out.rows][judged]
        names = np.unique(families)
        if len(names) < FEWEST_FAMILIES:
            return np.nan, np.nan

        def scores(kept: NDArray[np.bool_]) -> FloatArray:
            block = np.ix_(judged[kept], judged[kept])
            of_own = kernel_alignment(own[block], teacher[block], debiased=True)
            return np.array([of_own - kernel_alignment(one[block], teacher[block], debiased=True) for one in others])

        each = scores(np.ones(len(families), dtype=bool))
        difference = float(each.mean())
        without = [scores(families != name).mean() for name in names]
        return difference, jackknife_limit(difference, without, CONFIDENCE, each if len(each) > 1 else None)

    def _judge(self, table: pd.DataFrame) -> Verdict:
        """Compare with random weights: those of any seed, and those that the training began with."""
        families = self.held_out.corpus.families[self.held_out.rows][self._judged]
        n = len(set(families.tolist()))
        if n < FEWEST_FAMILIES:
            return self.untested()
        rows = table.set_index("map")
        bars = rows.loc[[INITIAL, RANDOM]]
        worst = bars.loc[bars["ahead_low"].idxmin()]
        difference, low = float(worst["ahead"]), float(worst["ahead_low"])
        said = _say(difference, low, n, self.chosen, IN_WORDS[RANDOM])
        return Verdict(low > 0, f"{said} {_best(rows)}", RANDOM, difference, low, n, len(families))


def _best(rows: pd.DataFrame) -> str:
    """Say which reference without training is the best, and where the model stands to it."""
    plain = rows.loc[[name for name in (FC, FC_POWER, PCA) if name in rows.index]]
    name = str(plain["cka_judged"].idxmax())
    ahead, low = float(plain.loc[name, "ahead"]), float(plain.loc[name, "ahead_low"])
    where = f"{abs(ahead):.3f} {'above' if ahead > 0 else 'below'} it" + ("" if low > 0 else ", so it is not better")
    return (
        f"The best reference without steps of training is {IN_WORDS[name]} ({plain.loc[name, 'cka_judged']:.3f}): the "
        f"model is {where}."
    )


def _whom(n: int, chosen: bool) -> str:
    people = f"{n} held-out {'family' if n == 1 else 'families'}"
    return f"{people} that did not choose the checkpoint" if chosen else people


def _say(difference: float, low: float, n: int, chosen: bool, bar: str) -> str:
    numbers = (
        f"debiased alignment {difference:+.3f} against {bar}, with {100 * CONFIDENCE:.0f} % confidence above "
        f"{low:+.3f}, over {_whom(n, chosen)}"
    )
    if low > 0:
        return f"The model is better than {bar} on people it never saw ({numbers})."
    return f"The model is not proven to be better than {bar} on people it never saw ({numbers})."


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


def _mean(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
