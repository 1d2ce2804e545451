"""Site effects taken from the features of people, as the training people of every fold tell them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from fcpower_bids.analyses.engine.cross_validation import make_solver
from fcpower_bids.analyses.engine.representations import Representation
from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.core.arrays import Rows
from fcpower_bids.core.regression.combat import SMALLEST_SITE, HarmonisedFeatures, fit_combat
from fcpower_bids.core.regression.kernels import FeatureSource
from fcpower_bids.core.regression.ridge import Solver
from fcpower_bids.errors import Unfit
from fcpower_bids.predictors import PREDICTORS, entry_name, join_representations
from fcpower_bids.settings import GroupLevel

NONE, COMBAT = "none", "combat"

RULE = (
    "ComBat (Johnson et al. 2007, parametric empirical Bayes) of every feature, estimated on the training people of "
    "each fold whose target is known and applied to everyone; the inner folds share it. People of a site with fewer "
    f"than {SMALLEST_SITE} training people are not adjusted, and nobody is where fewer than two sites are left."
)


def check_harmonisation(settings: GroupLevel) -> None:
    """Refuse a harmonisation that would tell the model what it is to predict, or that knows no sites.

    Raises
    ------
    Unfit
        There is no site column, or a target is among what is kept.
    """
    if settings.site_column is None:
        raise Unfit("Harmonisation needs the column of sites; give --site-column.")
    measures = [name for text in settings.composite for name in text.partition("=")[2].split(",")]
    for name in settings.harmonise_keep:
        if name in settings.targets or name in [each.strip() for each in measures]:
            raise Unfit(
                f"'{name}' is to be predicted, and kept by the harmonisation: that would write it into the features of "
                "the people who are tested. Take it out of --harmonise-keep."
            )
        if name == settings.site_column:
            raise Unfit(f"'{name}' is the column of sites, whose effects go. Take it out of --harmonise-keep.")


def harmonise(representation: Representation, study: Study) -> Representation:
    """Have the predictors of a representation take its features without site effects, fitted in every fold.

    A kernel of harmonised features does not follow from that of the features, since every edge has its own scale: each
    fold costs a pass over the features and a kernel.
    """
    sites, kept = study.people.sites, study.people.kept
    if sites is None:
        raise ValueError("Harmonisation was asked for without sites.")

    def fitted(train: Rows) -> FeatureSource:
        features = representation.features()
        return HarmonisedFeatures(features, fit_combat(features, sites, kept, train), sites, kept)

    representation.fitted = fitted
    return representation


def make_solvers(
    representations: Iterable[Representation], study: Study, harmonisation: str
) -> Iterator[tuple[str, Representation, Solver]]:
    """Yield the regression of every predictor on every representation, with the name of the entry.

    One representation is in memory at a time. Predictors that take all together come last; of the others' features
    they keep what they need: the kernels, or where features are harmonised the features too.
    """
    chosen = dict.fromkeys(study.settings.predictors)
    joint = [name for name in chosen if PREDICTORS[name].joint]
    passed: list[Representation] = []
    for representation in representations:
        if harmonisation != NONE:
            harmonise(representation, study)
        for name in (each for each in chosen if each not in joint):
            yield entry_name(representation.name, name), representation, make_solver(representation, study.preset, name)
        if joint:
            representation.keep_similarity()
            passed.append(representation)
    together = join_representations([each.name for each in passed])
    for name in joint:
        yield entry_name(together, name), passed[0], PREDICTORS[name]().mix(passed, study.preset)


def harmonisation_facts(study: Study) -> dict[str, Any]:
    """Say, for a sidecar, what was done and to whom it was not."""
    unadjusted = people_unadjusted(study)
    return {
        "Harmonisation": {
            "Method": RULE,
            "Keeps": list(study.settings.harmonise_keep),
            "PeopleTestedUnadjusted": unadjusted,
        }
    }


def people_unadjusted(study: Study) -> list[str]:
    """Names of the people who are tested in a fold that cannot adjust them, for one of the targets."""
    found: set[int] = set()
    sites = np.asarray(study.people.sites)
    for fold in study.folds:
        for target in study.targets:
            names, counts = np.unique(sites[fold.train[target.known[fold.train]]], return_counts=True)
            known = names[counts >= SMALLEST_SITE]
            found |= set((fold.test if len(known) < 2 else fold.test[~np.isin(sites[fold.test], known)]).tolist())
    return sorted(study.people.names[row] for row in found)
