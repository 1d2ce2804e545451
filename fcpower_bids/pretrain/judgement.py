"""Who is held out, what chooses the checkpoint (held-out families, or an external cohort), and the verdict on it.

All who are held out choose; two halves of them measure the optimism of the choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import special
from torch import nn

from fcpower_bids.analyses.targets import Target, join_target_builders
from fcpower_bids.core.alignment import kernel_alignment
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome import pearson_connectivity, power_from_series
from fcpower_bids.core.edges import vectorise_edges
from fcpower_bids.core.folds import PAPER, replicated_folds
from fcpower_bids.core.identification import identify
from fcpower_bids.core.kernels import normalise_rows
from fcpower_bids.core.nested import nested_cv
from fcpower_bids.core.probe import LinearProbe
from fcpower_bids.encoders.checkpoints import NO, ModelCard, find_in_training, people_digests
from fcpower_bids.encoders.embedding import SeriesEncoder
from fcpower_bids.encoders.fbert import FBert
from fcpower_bids.errors import DatasetError, Unfit
from fcpower_bids.pretrain.corpus import Corpus
from fcpower_bids.pretrain.engine import EVALUATION, SPLIT, PretrainConfig, draw_batch
from fcpower_bids.schema import TABLES

Map = Callable[[torch.Tensor], FloatArray]
"""Windows (n, T, P) to vectors (n, d)."""
TRAIN, SELECT, CONFIRM = 0, 1, 2
TWINS = 1 - 1e-6
"""Similarity to the teacher from which two recordings are one scan."""
MINIMUM = 5
"""Recordings that a half needs: the unbiased alignment is undefined below four."""
VIEWS = 8
"""Windows per held-out recording whose embeddings are averaged, as in the ``windows`` read."""


def split_families(families: ArrayLike, share: float, seed: int) -> NDArray[np.intp]:
    """Assign whole families to training, selection and confirmation. Shapes and units: families (n,); returns (n,)."""
    unique, member = np.unique(np.asarray(families), return_inverse=True)
    role = np.full(len(unique), TRAIN)
    held_out = np.random.default_rng((seed, SPLIT)).permutation(len(unique))[: round(share * len(unique))]
    role[held_out[::2]] = SELECT
    role[held_out[1::2]] = CONFIRM
    return role[member]


@dataclass(frozen=True)
class HeldOut:
    """The recordings kept out of training, with fixed windows, so that scores of different steps are comparable."""

    corpus: Corpus
    rows: NDArray[np.intp]  # (m,)
    roles: NDArray[np.intp]  # (m,): `SELECT` or `CONFIRM`
    window: int
    seed: int

    @property
    def sufficient(self) -> bool:
        """Whether both halves are large enough for a choice."""
        return min(int((self.roles == half).sum()) for half in (SELECT, CONFIRM)) >= MINIMUM

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Score a model: alignments over all held-out recordings, with a standard error, and over each half."""
        vectors = self.average(encode(model))[0]
        if not np.isfinite(vectors).all():  # as the loss of the next step will say
            return {}
        E, K = vectors - vectors.mean(axis=0), self.corpus.kernel_of(self.rows).cpu().double().numpy()
        whole, halves = np.ones(len(E), dtype=bool), {"select": self.roles == SELECT, "confirm": self.roles == CONFIRM}
        out = {"cka": kernel_alignment(E @ E.T, K)}

        def debiased(rows: NDArray[np.bool_]) -> float:
            return kernel_alignment(E[rows] @ E[rows].T, K[np.ix_(rows, rows)], debiased=True)

        out |= {name: debiased(rows) for name, rows in {"cka_debiased": whole, **halves}.items()}
        families = self.corpus.families[self.rows]
        without = [debiased(families != family) for family in np.unique(families)]
        return out | {"cka_se": float(np.sqrt((len(without) - 1) * np.var(without)))}

    def average(self, *maps: Map, batch: int = 256) -> list[FloatArray]:
        """Mean over `VIEWS` windows of what each map makes of every held-out recording: (m, d)."""
        places = self.corpus.places(self.window)[self.rows]
        totals = [np.zeros(1)] * len(maps)
        for view in range(VIEWS):  # one view in memory at a time
            members, starts = draw_batch(places, len(places), (self.seed, EVALUATION, view), "recordings")
            first, parts = starts[np.argsort(members)], list[list[FloatArray]]()
            for some in (slice(start, start + batch) for start in range(0, len(places), batch)):
                windows = self.corpus.windows(self.rows[some], first[some], self.window)
                parts.append([embed(windows) for embed in maps])
            totals = [
                total + np.concatenate(part) for total, part in zip(totals, zip(*parts, strict=True), strict=True)
            ]
        return [total / VIEWS for total in totals]


def encode(model: nn.Module) -> Map:
    """Embeddings of windows by a model, without its dropout."""
    place = next(model.parameters())

    @torch.no_grad()
    def embed(windows: torch.Tensor) -> FloatArray:
        training = model.training
        vectors: FloatArray = model.eval()(windows.to(place)).double().cpu().numpy()
        model.train(training)
        return vectors

    return embed


@dataclass(frozen=True)
class Choice:
    """The chosen checkpoint."""

    position: int  # which of the checkpoints
    selected: float  # its score by the people that chose it
    confirmed: float  # the same less the optimism
    optimism: float  # mean, over both roles of the halves, of (score on the choosing half - score on the other half)


def choose_checkpoint(scores: ArrayLike, together: ArrayLike, errors: ArrayLike | None = None) -> Choice:
    """Choose the checkpoint with the best score of all, as in the paper, or the latest that is as good.

    Scores (k, 2) of the halves, together (k,) of all, in the order of steps. With standard errors (k,) of the latter
    the latest checkpoint within one of the best is chosen: the noise of few people does not choose an early one.
    """
    scores, whole = np.asarray(scores, dtype=np.float64), np.asarray(together, dtype=np.float64)
    if not len(scores) or not np.isfinite([*scores.T, whole]).all():
        raise Unfit("A checkpoint can only be chosen by finite scores; look at the loss in the log.")
    first, second = scores.argmax(axis=0)
    optimism = float(scores[first, 0] - scores[first, 1] + scores[second, 1] - scores[second, 0]) / 2
    best = int(whole.argmax())
    if errors is not None:
        best = int(np.flatnonzero(whole >= whole[best] - np.nan_to_num(np.asarray(errors, dtype=float))[best])[-1])
    return Choice(best, float(whole[best]), float(whole[best]) - optimism, optimism)


def divide(corpus: Corpus, config: PretrainConfig) -> tuple[NDArray[np.intp], HeldOut]:
    """The recordings that train, and those of held-out families, as far as they have a window. Raises DatasetError."""
    places = corpus.places(config.window)
    roles = split_families(corpus.families, config.held_out, config.seed)
    rows = np.flatnonzero((roles == TRAIN) & (places > 0))
    held_out = np.flatnonzero((roles != TRAIN) & (places > 0))
    twins = np.argwhere(corpus.kernel.cpu().numpy()[np.ix_(rows, held_out)] > TWINS)
    if len(twins):
        first, second = corpus.table["id"].iloc[[rows[twins[0, 0]], held_out[twins[0, 1]]]]
        raise DatasetError(
            f"{first} and {second} are the same scan under two names (pairs of this kind: {len(twins)}), and the model "
            "would be judged on what it learned from: pack into a new folder without one of the two."
        )
    return rows, HeldOut(corpus, held_out, roles[held_out], config.window, config.seed)


def write_card(rows: NDArray[np.intp], held_out: HeldOut, config: PretrainConfig, training: str) -> ModelCard:
    """Return the card of a model of these people, without a verdict."""
    corpus, table = held_out.corpus, held_out.corpus.table.iloc[rows]
    times, bands = table["TR"], table["band"].unique()
    people = list(zip(corpus.table["dataset"], corpus.table["subject"], strict=True))
    trained_on, apart = (
        people_digests(corpus.sha256, [people[i] for i in members]) for members in (rows, held_out.rows)
    )
    cited = table[["dataset", "citation"]].drop_duplicates().to_numpy()
    citations = "; ".join(sorted(f"{dataset}: {text}" for dataset, text in cited if text != "n/a"))
    try:
        low, high = map(float, bands[0].split())
        band = (low, high) if len(bands) == 1 else None
    except ValueError:  # none is stated, or one edge is open
        band = None
    licences = table["licence"].value_counts().items()
    return ModelCard(
        roi_labels=corpus.parcel_names,
        atlas=corpus.atlas,
        alpha=corpus.alpha,
        band=band,
        tr_range=(float(times.min()), float(times.max())) if times.notna().all() else None,
        window=config.window,
        read_window=max(ModelCard.read_window, config.window),
        teacher=f"correlation kernel of FC^{corpus.alpha:g} of whole recordings; loss {config.loss}",
        training=training,
        corpus_sha256=corpus.sha256,
        purpose="research",
        corpus_revision=corpus.revision,
        corpus_licences=", ".join(f"{name} ({n} recording{'s' * (n != 1)})" for name, n in licences),
        corpus_citation=citations or "n/a",
        seed=config.seed,
        trained_on=trained_on,
        held_out=apart,
    )


# --- An external cohort ---------------------------------------------------------------------------------------------


REPEATS = 5
"""Of ten folds: a quarter of those of the paper, at every checkpoint."""
FEWEST = 20
"""People of a half that ten folds can be made of."""


@dataclass(frozen=True, eq=False)
class ExternalCohort:
    """Scans of people whom no model of the run is trained on."""

    name: str  # its dataset, by which an encoder knows its people
    parcels: tuple[str, ...]
    series: tuple[tuple[FloatArray, ...], ...]  # of N scans: the runs, (T, P) each
    people: NDArray[np.str_]  # (N,): of each scan
    sessions: NDArray[np.str_]  # (N,)
    families: NDArray[np.str_]  # (n,): of the people in the order of their names
    targets: tuple[Target, ...]  # of the same people; none for identification alone

    @property
    def names(self) -> NDArray[np.str_]:
        """The people, shape (n,)."""
        return np.unique(self.people)

    def known_to(self, card: ModelCard) -> ModelCard:
        """Return the card with these people among those who choose the checkpoint. Raises DatasetError."""
        if seen := sum(find_in_training(card, self.name, person) != NO for person in self.people):
            raise DatasetError(
                f"{seen} scans of probe are in the corpus too, and the probe must be of others: pack a corpus "
                "without these people, or give another cohort."
            )
        if missing := sorted(set(card.roi_labels) - set(self.parcels)):
            raise DatasetError(
                f"The cohort of probe lacks {len(missing)} parcels of the corpus ({', '.join(missing[:3])}): run the "
                f"participant level on it with the atlas of the corpus ({card.atlas})."
            )
        people = people_digests(card.corpus_sha256, [(self.name, person) for person in self.names])
        return replace(card, held_out=tuple(sorted({*card.held_out, *people})))

    def score(self, model: nn.Module, card: ModelCard) -> dict[str, float]:
        """Score a model by all people, and by each half of the families."""
        training = model.training
        encoder = SeriesEncoder("probed", model.eval(), card, {})  # type: ignore[arg-type]
        whole = [np.concatenate(scan) for scan in self.series]  # the runs of a session are one sequence
        E = encoder.embed(whole, self.parcels, np.nan).astype(float)
        model.train(training)
        roles = split_families(self.families, 1.0, 0)
        everyone = np.ones(len(roles), dtype=bool)
        scores = {"probe": self._probe(E, everyone), "probe_identification": self._identify(E, everyone)}
        choose = self._probe if self.targets else self._identify
        return scores | {"select": choose(E, roles == SELECT), "confirm": choose(E, roles == CONFIRM)}

    def _probe(self, E: FloatArray, chosen: NDArray[np.bool_]) -> float:
        """Mean over targets of the pooled out-of-fold r of a linear probe: that of the paper, with fewer repeats."""
        if not self.targets:
            return np.nan
        features = np.stack([E[self.people == name].mean(axis=0) for name in self.names[chosen]])
        folds = replicated_folds(len(features), PAPER.n_folds, PAPER.n_inner, REPEATS, families=self.families[chosen])
        targets = [replace(target, measures=target.measures[chosen]) for target in self.targets]
        built = join_target_builders(targets, np.empty((len(features), 0)))
        result = nested_cv(LinearProbe(features, PAPER.penalties), built, folds, PAPER.selection)
        return float(result.pooled_scores("pearson").mean())

    def _identify(self, E: FloatArray, chosen: NDArray[np.bool_]) -> float:
        """Share of scans that find their person in another session by correlation; NaN where there are none."""
        rows = np.isin(self.people, self.names[chosen])
        if (np.unique(self.people[rows], return_counts=True)[1] > 1).sum() < 2:
            return np.nan
        unit = normalise_rows(E[rows], keep_constant=True)
        return identify(unit @ unit.T, self.people[rows], self.sessions[rows]).accuracy


# --- The verdict: better than random weights and than connectivity, on held-out people --------------------------------

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
    held_out: HeldOut, config: PretrainConfig, optimism: float, model: FBert
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Compare a model with what needs no training, on the held-out people; entries of the sidecar say the verdict.

    `optimism`: by how much the choice of the checkpoint by these people flatters it, which
    the verdict leaves off. With too few families held out the table is empty.
    """
    corpus, families = held_out.corpus, held_out.corpus.families[held_out.rows]
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
    table, ours = [], np.empty(0)
    for name, seeds in maps.items():
        vectors = [next(every) for _ in seeds]
        kernels = [each @ each.T for each in vectors]
        row: dict[str, Any] = {"map": name, "dimensions": vectors[0].shape[1]}
        row["cka"] = float(np.mean([kernel_alignment(kernel, teacher) for kernel in kernels]))
        row["cka_debiased"] = float(np.mean([kernel_alignment(kernel, teacher, debiased=True) for kernel in kernels]))
        if name == MODEL:
            ours = kernels[0]
        else:
            row["ahead"], row["ahead_low"] = ahead(ours, kernels)
        table.append(row)
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
    return float(estimate - special.stdtrit(freedom, confidence) * np.sqrt(variance))
