"""Who trains and who is held out; one half of these chooses the checkpoint, the other measures the optimism."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.encoders.checkpoints import ModelCard
from fcpower_bids.encoders.training_people import people_digests, series_digests
from fcpower_bids.errors import DatasetError, Unfit
from fcpower_bids.pretrain.configuration import PretrainConfig, cka, cka_debiased
from fcpower_bids.pretrain.corpus import Corpus
from fcpower_bids.pretrain.engine import EVALUATION, SPLIT, draw_batch

Map = Callable[[torch.Tensor], FloatArray]
"""Windows (n, T, P) to vectors (n, d)."""

TRAIN, SELECT, CONFIRM = 0, 1, 2
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
        """Score a model: alignments over all held-out recordings, and over each half."""
        E = torch.from_numpy(self.average(encode(model)))
        K = self.corpus.kernel_of(self.rows).cpu().double()
        out = {"cka": float(cka(E, K)), "cka_debiased": float(cka_debiased(E, K))}
        for name, half in (("select", SELECT), ("confirm", CONFIRM)):
            members = torch.from_numpy(np.flatnonzero(self.roles == half))
            out[name] = float(cka_debiased(E[members], K[members][:, members]))
        return out

    def average(self, one: Map, batch: int = 256) -> FloatArray:
        """Mean over `VIEWS` windows of what a map makes of every held-out recording: (m, d)."""
        places = self.corpus.places(self.window)[self.rows]
        views = (self._view(one, places, view, batch) for view in range(VIEWS))
        total: FloatArray = reduce(np.add, views)  # features of FC are large: one view in memory at a time
        return total / VIEWS

    def _view(self, one: Map, places: NDArray[np.intp], view: int, batch: int) -> FloatArray:
        members, starts = draw_batch(places, len(places), (self.seed, EVALUATION, view), "recordings")
        first = starts[np.argsort(members)]
        parts = (slice(start, start + batch) for start in range(0, len(places), batch))
        each = (one(self.corpus.windows(self.rows[part], first[part], self.window)) for part in parts)
        return np.concatenate(list(each))


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
    # selected, confirmed: its score by the people that chose it, and by others, or less the optimism
    selected: float
    confirmed: float
    optimism: float  # mean, over both roles of the halves, of (score on the choosing half - score on the other half)


def choose_checkpoint(scores: ArrayLike, together: ArrayLike | None = None) -> Choice:
    """Choose the checkpoint with the best score on the first half, or, as in the paper, with the best of both."""
    scores = np.asarray(scores, dtype=np.float64)
    whole = scores[:, 0] if together is None else np.asarray(together, dtype=np.float64)
    if not len(scores) or not np.isfinite([*scores.T, whole]).all():
        raise Unfit("A checkpoint can only be chosen by finite scores; look at the loss in the log.")
    first, second = scores.argmax(axis=0)
    optimism = float(scores[first, 0] - scores[first, 1] + scores[second, 1] - scores[second, 0]) / 2
    best = int(whole.argmax())
    confirmed = float(scores[best, 1]) if together is None else float(whole[best]) - optimism
    return Choice(best, float(whole[best]), confirmed, optimism)


READ_WINDOW = 200
"""Timepoints of the windows of the ``windows`` read, as in the paper's comparison at 2.4 minutes."""


@dataclass(frozen=True, eq=False)
class Division:
    """Recordings that train and that are held out."""

    # rows, held_out: positions in the table of the corpus
    rows: NDArray[np.intp]
    held_out: NDArray[np.intp]
    roles: NDArray[np.intp]  # of each held-out recording: `SELECT` or `CONFIRM`
    places: NDArray[np.intp]  # windows that can be cut out of each recording of the corpus
    # signatures of parts of the recordings that train, and of those held out, and the recording of each
    signatures: tuple[tuple[list[str], NDArray[np.intp]], ...]


def divide(corpus: Corpus, config: PretrainConfig) -> Division:
    """Hold out whole families; recordings without a window take no part. Raises DatasetError."""
    places = corpus.places(config.window)
    roles = split_families(corpus.families, config.held_out, config.seed)
    rows = np.flatnonzero((roles == TRAIN) & (places > 0))
    held_out = np.flatnonzero((roles != TRAIN) & (places > 0))
    signatures = tuple(corpus.signatures(each, config.window) for each in (rows, held_out))
    _refuse_twins(corpus.table["id"], *signatures)
    return Division(rows, held_out, roles[held_out], places, signatures)


def _refuse_twins(
    names: pd.Series, trains: tuple[list[str], NDArray[np.intp]], judges: tuple[list[str], NDArray[np.intp]]
) -> None:
    """Refuse one scan, or a part of it, under two names of which one trains and the other judges."""
    known = dict(zip(*trains, strict=True))
    twins = sorted({(known[one], row) for one, row in zip(*judges, strict=True) if one in known})
    if twins:
        one, other = (names.iloc[row] for row in twins[0])
        raise DatasetError(
            f"{one} and {other} are the same scan under two names (pairs of this kind: {len(twins)}), and the model "
            "would be judged on what it learned from: pack into a new folder without one of the two."
        )


def write_card(corpus: Corpus, division: Division, config: PretrainConfig, loss: str, training: str) -> ModelCard:
    """Return the card of a model of these people, without a verdict."""
    table = corpus.table.iloc[division.rows]
    times, bands = table["TR"], table["band"].unique()
    people = list(zip(corpus.table["dataset"], corpus.table["subject"], strict=True))
    trained_on, apart = (
        people_digests(corpus.sha256, [people[i] for i in rows]) for rows in (division.rows, division.held_out)
    )
    cited = table[["dataset", "citation"]].drop_duplicates().to_numpy()
    citations = "; ".join(sorted(f"{dataset}: {text}" for dataset, text in cited if text != "n/a"))
    return ModelCard(
        roi_labels=corpus.parcel_names,
        atlas=corpus.atlas,
        alpha=corpus.alpha,
        band=_edges(bands[0]) if len(bands) == 1 else None,
        tr_range=(float(times.min()), float(times.max())) if times.notna().all() else None,
        window=config.window,
        read_window=max(READ_WINDOW, config.window),
        teacher=f"correlation kernel of FC^{corpus.alpha:g} of whole recordings; {loss}",
        training=training,
        corpus_sha256=corpus.sha256,
        purpose="research",
        corpus_revision=corpus.revision,
        corpus_licences=_counted(table["licence"]),
        corpus_cleaning=_counted(_cleaning(table)),
        corpus_space=_counted(table["space"]),
        corpus_citation=citations or "n/a",
        seed=config.seed,
        trained_on=trained_on,
        held_out=apart,
        series_trained_on=series_digests(corpus.sha256, division.signatures[0][0]),
        series_held_out=series_digests(corpus.sha256, division.signatures[1][0]),
    )


def _edges(band: str) -> tuple[float, float] | None:
    try:
        low, high = map(float, band.split())
    except ValueError:  # none is stated, or one edge is open
        return None
    return low, high


def _counted(each: pd.Series) -> str:
    counts = each.fillna("n/a").value_counts()
    return ", ".join(f"{name} ({number} recording{'s' * (number != 1)})" for name, number in counts.items())


def _cleaning(table: pd.DataFrame) -> pd.Series:
    """Strategy and pass-band of each recording in words."""
    band = ", " + table["band"].str.replace(" ", " to ") + " Hz"
    return table["cleaning"] + band.where(table["band"] != "n/a", "")
