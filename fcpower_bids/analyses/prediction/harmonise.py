"""The regressions of a prediction, with site effects taken from the features by a method that a slice brings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fcpower_bids.analyses.engine.representations import Representation
from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.analyses.evaluate import make_solver
from fcpower_bids.core.regression.krr import Regression
from fcpower_bids.registry import Registry
from fcpower_bids.settings import GroupLevel
from fcpower_bids.settings.group import HOLD_OUT, PERMUTE


@dataclass(frozen=True)
class Harmoniser:
    """A method of ``--sites``."""

    check: Callable[[GroupLevel], None]  # refuses choices that would give the target to the model
    # has the predictors of a representation take its features without site effects, fitted in every fold
    apply: Callable[[Representation, Study], Representation]
    facts: Callable[[Study], dict[str, Any]]  # entries of the sidecar


HARMONISERS = Registry("harmonisation", {"combat": "fcpower_bids.slices.sites.combat:BY_COMBAT"})


def changes_features(sites: str) -> bool:
    """Whether this choice of ``--sites`` takes site effects from the features."""
    return sites not in (PERMUTE, HOLD_OUT)


def make_solvers(
    representations: Iterable[Representation], study: Study, sites: str
) -> Iterator[tuple[Representation, Regression]]:
    """Yield the regression on every representation, one in memory at a time."""
    for representation in representations:
        if changes_features(sites):
            HARMONISERS[sites].apply(representation, study)
        yield representation, make_solver(representation, study.preset)
