"""An external cohort at every checkpoint: probe and identification; the optimism is measured on two halves."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fcpower_bids.analyses.targets import Target, join_target_builders
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.identification import identify
from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.kernels import normalise_rows
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.core.regression.presets import PAPER
from fcpower_bids.core.regression.probe import LinearProbe
from fcpower_bids.encoders.checkpoints import ModelCard
from fcpower_bids.encoders.embedding import SeriesEncoder
from fcpower_bids.encoders.training_people import (
    NO,
    find_in_training,
    part_signatures,
    people_digests,
    series_digests,
)
from fcpower_bids.errors import DatasetError
from fcpower_bids.pretrain.selection import CONFIRM, SELECT, split_families

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
        targets = tuple(replace(each, measures=each.measures[there]) for each in self.targets)
        series = tuple(scan for scan in runs if scan)
        return replace(
            self,
            series=series,
            people=self.people[kept],
            sessions=self.sessions[kept],
            families=self.families[there],
            targets=targets,
        )

    def known_to(self, card: ModelCard) -> ModelCard:
        """Return the card with these people among those who choose the checkpoint. Raises DatasetError."""
        scans = list(zip(self.people, self.series, strict=True))
        states = [
            find_in_training(card, self.name, person, run, self.parcels)[0] for person, scan in scans for run in scan
        ]
        if seen := sum(state != NO for state in states):
            raise DatasetError(
                f"{seen} scans of probe are in the corpus too, and the probe must be of others: pack a corpus "
                "without these people, or give another cohort."
            )
        if missing := sorted(set(card.roi_labels) - set(self.parcels)):
            raise DatasetError(
                f"The cohort of probe lacks {len(missing)} parcels of the corpus ({', '.join(missing[:3])}): run the "
                f"participant level on it with the atlas of the corpus ({card.atlas})."
            )
        columns = [self.parcels.index(name) for name in card.roi_labels]
        salt, window = card.corpus_sha256, card.window
        parts = [
            run[first : first + window, columns]
            for scan in self.series
            for run in scan
            for first in range(0, len(run) - window + 1, window)
        ]
        people = people_digests(salt, [(self.name, person) for person in self.names])
        digests = series_digests(salt, part_signatures(np.array(parts)))
        return replace(
            card,
            held_out=tuple(sorted({*card.held_out, *people})),
            series_held_out=tuple(sorted({*card.series_held_out, *digests})),
        )

    def score(self, model: nn.Module, card: ModelCard) -> dict[str, float]:
        """Score a model by all people, and by each half of the families."""
        training = model.training
        encoder = SeriesEncoder("probed", model.eval(), card, {})  # type: ignore[arg-type]
        runs = [run for scan in self.series for run in scan]
        vectors = encoder.embed(runs, self.parcels, np.nan).astype(float)
        model.train(training)
        scans = np.repeat(np.arange(len(self.series)), [len(scan) for scan in self.series])
        E = np.stack([vectors[scans == scan].mean(axis=0) for scan in range(len(self.series))])
        roles = split_families(self.families, 1.0, 0)
        everyone = np.ones(len(roles), dtype=bool)
        found = {"probe": self._probe(E, everyone), "probe_identification": self._identify(E, everyone)}
        choose = self._probe if self.targets else self._identify
        return found | {"select": choose(E, roles == SELECT), "confirm": choose(E, roles == CONFIRM)}

    @property
    def column(self) -> str:
        """Column of the log that the checkpoint is chosen by."""
        return "probe" if self.targets else "probe_identification"

    def _probe(self, E: FloatArray, chosen: NDArray[np.bool_]) -> float:
        """Mean over targets of the pooled out-of-fold r of a linear probe: that of the paper, with fewer repeats."""
        if not self.targets:
            return np.nan
        features = np.stack([E[self.people == name].mean(axis=0) for name in self.names[chosen]])
        folds = replicated_folds(len(features), PAPER.n_folds, PAPER.n_inner, REPEATS, families=self.families[chosen])
        targets = [replace(each, measures=each.measures[chosen]) for each in self.targets]
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
