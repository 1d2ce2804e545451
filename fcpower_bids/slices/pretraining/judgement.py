"""Whether a student is better than random weights and than connectivity, on held-out people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import power_from_series
from fcpower_bids.core.filters.alignment import kernel_alignment
from fcpower_bids.core.inference.identification import identify
from fcpower_bids.core.inference.jackknife import jackknife_limit
from fcpower_bids.core.regression.kernels import normalise_rows
from fcpower_bids.encoders.fbert import FBert
from fcpower_bids.slices.pretraining.configuration import PretrainConfig
from fcpower_bids.slices.pretraining.engine import EVALUATION
from fcpower_bids.slices.pretraining.run_state import ALIGNMENT
from fcpower_bids.slices.pretraining.selection import CONFIRM, HeldOut, Map, encode

Features = Callable[[NDArray[np.floating]], FloatArray]
"""Windows (n, T, P) to features (n, E)."""


def connectivity_edges(windows: ArrayLike) -> FloatArray:
    """Edges of FC of every window, centred and of unit norm.

    Shapes and units: windows (n, T, P).
    """
    return _unit_edges(pearson_connectivity(np.asarray(one, np.float64)) for one in np.asarray(windows))


def power_edges(windows: ArrayLike, alpha: float) -> FloatArray:
    """Edges of FC^alpha of every window, centred and of unit norm: the teacher of the window."""
    return _unit_edges(power_from_series(np.asarray(one, np.float64), alpha) for one in np.asarray(windows))


def _unit_edges(matrices: Iterable[FloatArray]) -> FloatArray:
    return normalise_rows(np.stack([vectorise_edges(one) for one in matrices]))


@dataclass(frozen=True, eq=False)
class WhitenedComponents:
    """Principal components of features, each of unit variance among those they were fitted to.

    Attributes
    ----------
    mean : ndarray, shape (E,)
    loadings : ndarray, shape (E, d)
    """

    mean: FloatArray
    loadings: FloatArray

    def __call__(self, features: ArrayLike) -> FloatArray:
        """Project features (n, E): array (n, d)."""
        projected: FloatArray = (np.asarray(features, np.float64) - self.mean) @ self.loadings
        return projected


def fit_components(features: ArrayLike, d: int) -> WhitenedComponents:
    """Fit the first `d` principal components, or as many as n people allow.

    Shapes and units: features (n, E).
    """
    features = np.asarray(features, np.float64)
    mean = features.mean(axis=0)
    centred = features - mean
    values, vectors = np.linalg.eigh(centred @ centred.T)
    d = min(d, len(features) - 1)
    values, vectors = values[::-1][:d], vectors[:, ::-1][:, :d]
    return WhitenedComponents(mean, centred.T @ vectors * (np.sqrt(len(features) - 1) / values))


MODEL, RANDOM, FC, FC_POWER, PCA, CHANCE = "model", "random-init", "fc", "fc_power", "pca", "chance"
RANDOM_SEEDS = tuple(range(1000, 1003))
SHUFFLES = 20
MOST_FITTED = 500
"""Training windows that the principal components are fitted to."""
FEWEST_FAMILIES = 5
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Verdict:
    """Worth of a model on people whom it never saw.

    Attributes
    ----------
    proven : bool
        Whether it is better than random weights, with `CONFIDENCE`.
    sentence : str
    difference, low : float or None
        Debiased alignment of the model minus that of random weights, and its lower limit.
    n_families, n_recordings : int
        That it rests on.
    """

    proven: bool
    sentence: str
    difference: float | None = None
    low: float | None = None
    n_families: int = 0
    n_recordings: int = 0

    def facts(self) -> dict[str, Any]:
        """Entries of the sidecar of the table."""
        return {
            "Proven": self.proven,
            "Verdict": self.sentence,
            "Difference": self.difference,
            "LowerLimit": self.low,
            "Confidence": CONFIDENCE,
            "Families": self.n_families,
            "Recordings": self.n_recordings,
        }


@dataclass(frozen=True, eq=False)
class Judge:
    """The held-out people and what is compared on them.

    Attributes
    ----------
    held_out : HeldOut
    rows : ndarray of int
        Training recordings.
    config : PretrainConfig
    chosen : bool
        Whether half of the held-out people chose the checkpoint: the verdict then rests on the other half.
    """

    held_out: HeldOut
    rows: NDArray[np.intp]
    config: PretrainConfig
    chosen: bool

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
            "The model is not proven: too few people were held out to compare it with random weights "
            f"({_whom(n, self.chosen)}; {FEWEST_FAMILIES} are needed: --held-out).",
            n_families=n,
            n_recordings=len(families),
        )

    def compare(self, model: FBert) -> tuple[pd.DataFrame, Verdict]:
        """Score the model and what needs no training."""
        teacher = self.held_out.corpus.kernel_of(self.held_out.rows).cpu().double().numpy()
        random = [FBert(model.config, seed).to(next(model.parameters())) for seed in RANDOM_SEEDS]
        each = {MODEL: [encode(model)], RANDOM: [encode(one) for one in random], **self._plain(model)}
        kernels = {name: [self._kernel(one) for one in maps] for name, maps in each.items()}
        rows = [
            {
                "map": name,
                **_mean([self._row(one, kernel, teacher) for one, kernel in zip(maps, kernels[name], strict=True)]),
            }
            for name, maps in each.items()
        ]
        rows.append({"map": CHANCE, **self._chance(kernels[MODEL][0], teacher)})
        return pd.DataFrame(rows, columns=list(ALIGNMENT.columns)), self._judge(kernels, teacher)

    def _plain(self, model: FBert) -> dict[str, list[Map]]:
        """Connectivity of the window, and whitened components fitted to one window of training recordings."""
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
        datasets = self.held_out.corpus.table["dataset"].to_numpy()[self.held_out.rows]
        identification, dimensions = self._identify(one)
        return {
            "dimensions": dimensions,
            "cka": kernel_alignment(kernel, teacher),
            "cka_debiased": kernel_alignment(kernel, teacher, debiased=True),
            "cka_within": within_alignment(kernel, teacher, datasets),
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

    def _judge(self, kernels: Mapping[str, list[FloatArray]], teacher: FloatArray) -> Verdict:
        """Compare with random weights; the uncertainty is that of leaving out one family at a time."""
        judged = self._judged
        families = self.held_out.corpus.families[self.held_out.rows][judged]
        names = np.unique(families)
        if len(names) < FEWEST_FAMILIES:
            return self.untested()

        def gain(kept: NDArray[np.bool_]) -> float:
            block = np.ix_(judged[kept], judged[kept])
            scores = {
                name: np.mean([kernel_alignment(one[block], teacher[block], debiased=True) for one in kernels[name]])
                for name in (MODEL, RANDOM)
            }
            return float(scores[MODEL] - scores[RANDOM])

        difference = gain(np.ones(len(families), dtype=bool))
        low = jackknife_limit(difference, [gain(families != name) for name in names], CONFIDENCE)
        n = len(names)
        return Verdict(low > 0, _say(difference, low, n, self.chosen), difference, low, n, len(families))


def _whom(n: int, chosen: bool) -> str:
    whom = f"{n} held-out {'family' if n == 1 else 'families'}"
    return f"{whom} that did not choose the checkpoint" if chosen else whom


def _say(difference: float, low: float, n: int, chosen: bool) -> str:
    numbers = (
        f"debiased alignment {difference:+.3f} against random weights, with {100 * CONFIDENCE:.0f} % confidence above "
        f"{low:+.3f}, over {_whom(n, chosen)}"
    )
    if low > 0:
        return f"The model is better than random weights on people it never saw ({numbers})."
    return f"The model is not proven to be better than random weights on people it never saw ({numbers})."


def within_alignment(kernel: FloatArray, teacher: FloatArray, groups: NDArray[Any]) -> float:
    """Debiased alignment over pairs of one group, centred within it, all groups together.

    Alignment that only separates groups (datasets, sites) is 0 here.

    Shapes and units: kernel (n, n), teacher (n, n), groups (n,).
    """
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
