"""The regressions of a prediction, with site effects taken from the features by a method that a slice brings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fcpower_bids.analyses.engine.cross_validation import make_solver
from fcpower_bids.analyses.engine.representations import Representation
from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.core.regression.ridge import Solver
from fcpower_bids.plugins import places
from fcpower_bids.predictors import PREDICTORS, entry_name, join_representations
from fcpower_bids.registry import Registry
from fcpower_bids.settings import GroupLevel

NONE = "none"


@dataclass(frozen=True)
class Harmoniser:
    """A method of ``--harmonise``."""

    check: Callable[[GroupLevel], None]  # refuses choices that would give the target to the model
    # has the predictors of a representation take its features without site effects, fitted in every fold
    apply: Callable[[Representation, Study], Representation]
    facts: Callable[[Study], dict[str, Any]]  # entries of the sidecar


HARMONISERS = Registry("harmonisation", places("harmonisers"))


def make_solvers(
    representations: Iterable[Representation], study: Study, harmonisation: str
) -> Iterator[tuple[str, Representation, Solver]]:
    """Yield the regression of every predictor on every representation, one in memory at a time; joint ones last."""
    chosen = dict.fromkeys(study.settings.predictors)
    joint = [name for name in chosen if PREDICTORS[name].joint]
    passed: list[Representation] = []
    for representation in representations:
        if harmonisation != NONE:
            HARMONISERS[harmonisation].apply(representation, study)
        for name in (each for each in chosen if each not in joint):
            yield entry_name(representation.name, name), representation, make_solver(representation, study.preset, name)
        if joint:
            representation.keep_similarity()
            passed.append(representation)
    together = join_representations([each.name for each in passed])
    for name in joint:
        yield entry_name(together, name), passed[0], PREDICTORS[name]().mix(passed, study.preset)
