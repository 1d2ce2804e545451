"""Every transform of the paper's screen on one cohort, on shared folds, against FC^alpha."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fcpower_bids.analyses.evaluate import Screen, cross_validate_anew, make_solver
from fcpower_bids.analyses.features import (
    FC,
    FC_POWER,
    AveragedEdges,
    PowerFamily,
    Representation,
    build_representations,
    combine_scans,
    transform_features,
)
from fcpower_bids.analyses.spectral_controls import filtered_features, logarithm
from fcpower_bids.analyses.study import Study, open_study
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.edges import rebuild_connectome
from fcpower_bids.core.kernels import FeatureSource
from fcpower_bids.core.krr import Regression
from fcpower_bids.core.nested import NestedResult
from fcpower_bids.parallel import track
from fcpower_bids.records import Cohort, Looked
from fcpower_bids.settings import Settings
from fcpower_bids.transforms.fitted import FACTOR_ITERATIONS, N_COMPONENTS, SUBSPACES, Subspace, Tangent, Tucker

LOG_EUCLIDEAN = "log_euclidean"
POWERS = {"power_0.25": 0.25, "power_0.5": 0.5, "power_0.75": 0.75}
NEAR = 1e-4
"""Tolerance of tangent spaces with which single precision and few passes will do: kernels are off by less than this."""
TANGENTS = {"tangent_harmonic": "harmonic", "tangent_arithmetic": "arithmetic", "tangent_riemannian": "riemannian"}

CORPUS = "tangent_corpus"
"""The row of the paper that needs recordings of other people, the mean of which is its reference."""

SCREEN: Mapping[str, str] = {
    FC_POWER: "FC^alpha with the exponent of --alpha",
    "power_0.25": "FC^0.25",
    "power_0.5": "FC^0.5, the matrix square root",
    "power_0.75": "FC^0.75",
    LOG_EUCLIDEAN: "log-Euclidean, the limit of alpha at 0",
    "tangent_harmonic": "tangent space, harmonic reference",
    "tangent_arithmetic": "tangent space, arithmetic reference of the cohort",
    "tucker": "Tucker-denoised FC",
    "tangent_riemannian": "tangent space, affine-invariant reference",
    "fisher_z": "Fisher z of the edges",
    "degree": "degree normalisation",
    FC: "raw FC",
    "pca": f"PCA of the edges, {N_COMPONENTS} components, at most a third of the people",
    "factor_analysis": f"factor analysis of the edges, {N_COMPONENTS} factors, at most a third of the people",
    "ica": f"ICA of the edges, {N_COMPONENTS} components, at most a third of the people",
    "cholesky": "Cholesky factor, with its diagonal",
    "log_cholesky": "log-Cholesky factor, with its diagonal",
    "random_projection": f"Gaussian random projection of the edges to {N_COMPONENTS} features",
    "precision": "precision, Ledoit-Wolf shrinkage",
    "partial_correlation": "partial correlation, Ledoit-Wolf shrinkage",
}
"""The rows of the paper's Table "Transforms of the FC matrix", in its order, and FC^alpha."""
GROUP_FIT = (*TANGENTS, "tucker", "pca", "factor_analysis", "ica")

FACTS = {
    "GroupFit": (
        "Group-fit rows are fitted to the training people of every outer fold (fit_transforms_on fold, at the cost "
        "of one fit and one kernel per fold), or once to all people, without any target, as in the paper "
        "(fit_transforms_on cohort). The paper measures a difference of at most 0.004; PCA of 150 people loses 0.07."
    ),
    "TangentReference": (
        "The paper's corpus reference is the mean of an external corpus: the row tangent_corpus, where "
        "tangent_reference is the table of such a mean."
    ),
    "OursWhereThePaperIsSilent": (
        "Tucker keeps a quarter as many factors as parcels and half as many directions as people; factor analysis and "
        f"ICA take as many components as PCA, factor analysis at most {FACTOR_ITERATIONS} iterations; precision and "
        "partial correlation of a person with several scans are means over the scans. Tangent spaces and Tucker are "
        "found in single precision: kernels are off by less than 1e-4 and 1e-3."
    ),
}


def analyse_transforms(cohort: Cohort, settings: Settings) -> Looked:
    """Predict from every transform on the same folds (the paper, Appendix "The transform screen"). Raises Unfit."""
    study = open_study(cohort, settings.changed(representations=(FC_POWER, FC)))
    yield {}
    screen, rows, fit_transforms_on = Screen(study, FC_POWER), ScreenRows(study), study.preset.fit_transforms_on
    entries = dict(SCREEN)
    if cohort.reference is not None:
        entries[CORPUS] = "tangent space, mean FC of tangent_reference"
    for name, words in track(entries.items(), "transforms", settings, len(entries)):
        fitted = name in GROUP_FIT
        about = {"transform": words, "fitted_to": fit_transforms_on if fitted else "n/a"}
        screen.add(name, partial(rows.make, name, fitted and fit_transforms_on == "fold"), **about)
    used = {
        "EigenvalueFloor": settings.method.eigenvalue_floor,
        "ShrinkageIntensity": settings.method.shrink_to_identity,
        "GroupFitTo": fit_transforms_on,
    }
    notes = {"NotesOfMethods": rows.notes} if rows.notes else {}
    yield screen.tables("transform_screen", FACTS | used | notes)


class ScreenRows:
    """The features of each row of the screen."""

    def __init__(self, study: Study) -> None:
        self.study, self.settings = study, study.settings
        self.connectivity = combine_scans(study.cohort, study.people.scans)
        self.family = PowerFamily(self.connectivity, study.settings, keep=True)
        self.notes: dict[str, list[str]] = {}  # of the methods, for the sidecar

    def make(self, name: str, anew: bool) -> NestedResult | Regression:
        """The regression on a row, or predictions with it fitted `anew` to the training people of every outer fold."""

        def fit(train: Rows | None) -> Regression:
            return make_solver(self.representation(name, train), self.study.preset)

        return cross_validate_anew(fit, self.study, name) if anew else fit(None)

    def representation(self, name: str, train: Rows | None = None) -> Representation:
        """Return the features of a row, computed when they are asked for."""
        compute: Callable[[], FeatureSource]
        if name in POWERS or name == FC_POWER:
            compute = partial(self.family.features, POWERS.get(name, self.settings.method.alpha))
        elif name == LOG_EUCLIDEAN:
            log = logarithm(*self.settings.method.full_rank_remedy.values())
            compute = partial(filtered_features, self.family, log)
        elif name in SUBSPACES or name in (*GROUP_FIT, CORPUS):
            compute = partial(self._fit, name, train)
        else:
            scans = self.study.people.scans
            return next(build_representations(self.study.cohort, scans, (name,), self.settings))
        return Representation(name, self.settings.group.kernel, compute)

    def _fit(self, name: str, train: Rows | None) -> FeatureSource:
        if name in SUBSPACES:
            edges = np.asarray(self.connectivity[:], dtype=float)
            n_components = N_COMPONENTS if name == "random_projection" else min(N_COMPONENTS, len(edges) // 3)
            subspace = Subspace(name, n_components, self.settings.method.random_seed)
            scores = subspace.fit_transform(edges) if train is None else subspace.fit(edges[train]).transform(edges)
            if subspace.notes:
                self.notes[name] = list(subspace.notes)
            return scores
        choices: dict[str, Any] = {"single": True} if name == "tucker" else {}
        if name in (*TANGENTS, CORPUS):
            mean = TANGENTS.get(name, "arithmetic")
            choices = {"reference": mean, "tolerance": NEAR, **self.settings.method.full_rank_remedy}
        transform = Tucker(**choices) if name == "tucker" else Tangent(**choices)
        everyone = np.arange(self.connectivity.shape[0])
        people: Sequence[Any] = _Connectomes(self.connectivity, everyone if train is None else train)
        if name == CORPUS and (reference := self.study.cohort.reference) is not None:
            people = [rebuild_connectome(reference)]  # the mean of others, which nobody here has a part in
        transform.fit(people)
        return transform_features(transform, self.connectivity, self.settings)


class _Connectomes(Sequence[FloatArray]):
    """FC of some units as matrices, each rebuilt when it is asked for."""

    def __init__(self, connectivity: AveragedEdges, units: Rows) -> None:
        self.connectivity, self.units = connectivity, units

    def __len__(self) -> int:
        return len(self.units)

    def __getitem__(self, position: int) -> FloatArray:  # type: ignore[override]
        return self.connectivity.connectome(int(self.units[position]))
