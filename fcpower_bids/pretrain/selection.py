"""Who trains and who is held out, and what chooses the checkpoint: held-out families, or an external cohort.

All who are held out choose; two halves of them measure the optimism of the choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from fcpower_bids.analyses.targets import Target, join_target_builders
from fcpower_bids.core.alignment import kernel_alignment
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.identification import identify
from fcpower_bids.core.regression.folds import PAPER, replicated_folds
from fcpower_bids.core.regression.kernels import normalise_rows
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.core.regression.probe import LinearProbe
from fcpower_bids.encoders.checkpoints import NO, ModelCard, find_in_training, people_digests
from fcpower_bids.encoders.embedding import SeriesEncoder
from fcpower_bids.errors import DatasetError, Unfit
from fcpower_bids.pretrain.corpus import Corpus
from fcpower_bids.pretrain.engine import EVALUATION, SPLIT, PretrainConfig, draw_batch

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
    # selected, confirmed: its score by the people that chose it, and less the optimism
    selected: float
    confirmed: float
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


READ_WINDOW = 200
"""Timepoints of the windows of the ``windows`` read, as in the paper's comparison at 2.4 minutes."""


def divide(corpus: Corpus, config: PretrainConfig) -> tuple[NDArray[np.intp], HeldOut]:
    """The recordings that train, and those of the families that are held out, as far as they have a window.

    One scan under two names of which one trains and the other judges is refused. Raises DatasetError.
    """
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
    edges = ", " + table["band"].str.replace(" ", " to ") + " Hz"

    def counted(values: pd.Series) -> str:
        counts = values.fillna("n/a").value_counts()
        return ", ".join(f"{name} ({number} recording{'s' * (number != 1)})" for name, number in counts.items())

    return ModelCard(
        roi_labels=corpus.parcel_names,
        atlas=corpus.atlas,
        alpha=corpus.alpha,
        band=band,
        tr_range=(float(times.min()), float(times.max())) if times.notna().all() else None,
        window=config.window,
        read_window=max(READ_WINDOW, config.window),
        teacher=f"correlation kernel of FC^{corpus.alpha:g} of whole recordings; loss {config.loss}",
        training=training,
        corpus_sha256=corpus.sha256,
        purpose="research",
        corpus_revision=corpus.revision,
        corpus_licences=counted(table["licence"]),
        corpus_cleaning=counted(table["cleaning"] + edges.where(table["band"] != "n/a", "")),
        corpus_space=counted(table["space"]),
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
    # people, sessions: (N,): of each scan
    people: NDArray[np.str_]
    sessions: NDArray[np.str_]
    families: NDArray[np.str_]  # (n,): of the people in the order of their names
    targets: tuple[Target, ...]  # of the same people; none for identification alone

    @property
    def names(self) -> NDArray[np.str_]:
        """The people, shape (n,)."""
        return np.unique(self.people)

    def long_enough(self, window: int) -> ExternalCohort:
        """Leave out runs that are shorter than a window. Raises DatasetError."""
        runs = [tuple(run for run in scan if len(run) >= window) for scan in self.series]
        kept = np.array([bool(scan) for scan in runs])
        there = np.isin(self.names, self.people[kept])
        if there.sum() < 2 * FEWEST:
            raise DatasetError(
                f"The cohort of probe has {there.sum()} people with {window} volumes or more, and {2 * FEWEST} are "
                "needed: a probe of fewer would choose by chance."
            )
        return replace(
            self,
            series=tuple(scan for scan in runs if scan),
            people=self.people[kept],
            sessions=self.sessions[kept],
            families=self.families[there],
            targets=tuple(replace(target, measures=target.measures[there]) for target in self.targets),
        )

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
