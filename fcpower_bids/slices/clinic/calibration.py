"""How wide the intervals of a model are, and whether a new scan is like those of its people."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.scoring import main_score
from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.analyses.engine.targets import Target, join_target_builders
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.connectome.edges import rebuild_matrix
from fcpower_bids.core.connectome.summary import connectome_summary
from fcpower_bids.core.regression.folds import family_numbers
from fcpower_bids.core.regression.ridge_model import predict_from_arrays, ridge_model_arrays
from fcpower_bids.core.regression.scores import score_predictions
from fcpower_bids.records import Cohort
from fcpower_bids.schema import Column, TableSpec, join_columns
from fcpower_bids.slices.clinic.equations import cautious_radius, group_radius, measured_coverage, site_radius

MATCHED, FACTOR = 20, 1.5
"""Scans are compared with those of similar motion and length, by this factor, where there are so many."""
SEX = ("sex", "gender")
"""Columns of a phenotype table, in lower case."""
QUALITY = ("mean_fd", "seconds", "degrees_of_freedom")

REFERENCE = TableSpec(
    "reference",
    "The training scans in a few numbers each, without names and in an arbitrary order.",
    join_columns(
        Column.number("scan", "Number of the scan, arbitrary", digits=0),
        Column.text(
            "measure",
            "Output",
            levels={
                "mean_fc": "mean of all correlations",
                "within NETWORK": "mean correlation within a network",
                "participation_ratio": "effective number of eigenvalues of FC",
                "similarity": "how like the other training people the scan is, by models that had not seen it",
                "mean_fd": "mean framewise displacement, mm",
                "seconds": "seconds of cleaned series",
                "degrees_of_freedom": "degrees of freedom left by cleaning",
                "age": "age, where a phenotype table has it",
                "female": "1 for female, 0 for male, where a phenotype table says so",
            },
        ),
        Column.number("value", "Its value"),
    ),
    ("scan", "measure"),
)


UNUSUAL = TableSpec(
    "predicted/target-TARGET-REPRESENTATION_reference",
    "How unusual the connectome of a scan is against the training scans of a model.",
    join_columns(
        Column.text("scan", "Name of the scan", "Scan"),
        Column.text("measure", "Quantity, as in reference.tsv of the model", "Measure"),
        Column.number("value", "Of this scan", "Value"),
        Column.number("mean", "Mean of the training scans", "Reference mean"),
        Column.number("sd", "Standard deviation of the training scans", "Reference SD"),
        Column.number("z", "Distance from the mean in standard deviations", "z", digits=1),
        Column.number("percentile", "Per cent of the training scans with a smaller value", "Percentile", digits=0),
        Column.number("scans", "Training scans that are compared", "Scans", digits=0),
        Column.flag("matched", "Whether these have about the same motion and length, within a factor of 1.5"),
        Column.flag("same_sex", "Whether these are of people of the same sex"),
    ),
    ("scan", "measure"),
)


def compare_with_reference(
    reference: pd.DataFrame, summary: Mapping[str, float], seconds: float, mean_fd: float, female: float = np.nan
) -> list[dict[str, float | str | bool]]:
    """Say how unusual a connectome is.

    It is compared with scans of similar motion and length and the same sex where there are enough, else with those of
    similar motion and length, else with those of the same sex, else with all.
    """
    wide = reference.pivot_table(index="scan", columns="measure", values="value", aggfunc="first")
    alike = np.ones(len(wide), dtype=bool)
    for name, own in (("seconds", seconds), ("mean_fd", mean_fd)):
        values = wide[name].to_numpy(dtype=float) if name in wide else np.full(len(wide), np.nan)
        with np.errstate(invalid="ignore"):
            alike &= (values <= own * FACTOR) & (values * FACTOR >= own)
    own_sex = (wide["female"] == female).to_numpy() if "female" in wide else np.zeros(len(wide), dtype=bool)
    choices = ((alike & own_sex, True, True), (alike, True, False), (own_sex, False, True))
    everyone = (np.ones(len(wide), dtype=bool), False, False)
    chosen, matched, same_sex = next((each for each in choices if each[0].sum() >= MATCHED), everyone)
    rows: list[dict[str, float | str | bool]] = []
    for name, value in summary.items():
        if name not in wide:
            continue
        column = wide.loc[chosen, name]
        known = column.dropna().to_numpy(dtype=float)
        mean, sd = float(known.mean()), float(known.std(ddof=1)) if len(known) > 1 else np.nan
        rows.append(
            {
                "measure": name,
                "value": value,
                "mean": mean,
                "sd": sd,
                "z": (value - mean) / sd if sd > 0 else np.nan,
                "percentile": 100 * float(np.mean(known < value)),
                "scans": len(known),
                "matched": matched,
                "same_sex": same_sex,
            }
        )
    return rows


def drawn_from(values: NDArray[np.float64]) -> Rows:
    """Order values by their digests: arbitrary, and no seed and no list of the participants can undo it."""
    digests = [hashlib.sha256(np.float64(value).tobytes()).digest() for value in values]
    return np.array(sorted(range(len(digests)), key=digests.__getitem__), dtype=np.intp)


def is_female(column: pd.Series) -> pd.Series:
    """Say 1 where a table has F, female or woman, 0 for M, male or man, NaN for all else, codes too."""
    words = column.astype(object).map(lambda cell: str(cell).strip().casefold())
    return words.map({"f": 1.0, "female": 1.0, "woman": 1.0, "m": 0.0, "male": 0.0, "man": 0.0}).astype(float)


def reference_scans(
    cohort: Cohort, rows: Rows, similarity: NDArray[np.float64], people: Mapping[str, pd.Series]
) -> pd.DataFrame:
    """Describe scans of a cohort, in the order that `drawn_from` gives to their similarity.

    Shapes and units: rows (n,), similarity (n,).
    """
    parts = []
    for number, place in enumerate(drawn_from(similarity)):
        scan = cohort.scans.iloc[rows[place]]
        fc = rebuild_matrix(np.asarray(cohort.edges[rows[place]], dtype=float), 1.0, weighted=False)
        found = connectome_summary(fc, cohort.networks) | {"similarity": float(similarity[place])}
        found |= {name: float(scan[name]) for name in QUALITY if name in scan}
        found |= {name: float(values.get(str(scan["participant_id"]), np.nan)) for name, values in people.items()}
        parts += [(number, name, value) for name, value in found.items() if np.isfinite(value)]
    return pd.DataFrame(parts, columns=list(REFERENCE.columns))


LEVEL = 0.9
SITE, FOLD = "site", "fold"
FEWEST_TRAINING = 4
"""A site is not held out where fewer people would be left to train on."""

RESIDUALS = TableSpec(
    "residuals",
    "Predictions of scans that the model had not seen, one row per scan and way of holding out; no names.",
    join_columns(
        Column.text(
            "held_out",
            "Unit that was held out",
            levels={SITE: "all people of a site", FOLD: "a part of the people, families whole"},
        ),
        Column.text("group", "Site, or number of the fold"),
        Column.number("person", "Number of the person, arbitrary", digits=0),
        Column.number("residual", "Predicted minus observed, in the unit of the target"),
        Column.text("observed_class", "Class, for a target of two classes; n/a for numbers"),
        Column.number("similarity", "How like the training people the scan is"),
    ),
)


@dataclass(frozen=True, eq=False)
class Ingredients:
    """Parts of a fold of the model.

    Attributes
    ----------
    features, single : ndarray, shape (n, E), (n_scans, E)
        Of the people, and of their single scans.
    person : ndarray of int, shape (n_scans,)
        Row of the person of each single scan.
    known : ndarray of int
        People whose target is known.
    penalty : float
    kernel : str
    intercept : bool
    """

    features: FloatArray
    single: FloatArray
    person: Rows
    known: Rows
    penalty: float
    kernel: str
    intercept: bool


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions of models for scans that they have not seen.

    Attributes
    ----------
    residuals : pandas.DataFrame
        `RESIDUALS`.
    similarity : ndarray, shape (n_scans,)
        Of each scan to the training people of the fold that held it out.
    scores : mapping
        How well each site was predicted by the others, and each fold: scans, mean error, mean absolute error, and r
        or, for two classes, scans and the area under the curve alone; NaN where all were observed equal.
    """

    residuals: pd.DataFrame
    similarity: FloatArray
    scores: dict[str, dict[str, dict[str, float]]]


def held_out_residuals(study: Study, given: Ingredients, seed: int) -> HeldOut:
    """Predict every single scan by models that have seen neither its person nor, where sites are known, its site.

    Single scans, because these are what a model is given later: averages over sessions would promise too much. The
    penalty is that of the whole model.
    """
    built = join_target_builders(study.targets, study.people.covariates)
    target = study.targets[0]
    parts, similarity = [], np.full(len(given.person), np.nan)
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for held_out, group, test, train in _splits(study, given.known, seed):
        values = (built(train) if callable(built) else built)[:, 0]
        arrays = ridge_model_arrays(given.features[train], values[train], given.penalty, given.kernel, given.intercept)
        scans = np.flatnonzero(np.isin(given.person, test))
        found = predict_from_arrays(arrays, given.single[scans])
        # classes stay 0 and 1 where covariates were regressed from what the model is trained on
        observed = (target.measures[:, 0] if target.is_binary else values)[given.person[scans]]
        part = pd.DataFrame({"held_out": held_out, "group": group, "person": given.person[scans]})
        part["residual"] = found.predicted[:, 0] - observed
        scores.setdefault(held_out, {})[group] = _score(target, observed, found.predicted[:, 0])
        pair = (str(negative_class(study)), str(target.positive))
        part["observed_class"] = [pair[int(high)] if target.is_binary else None for high in observed > 0.5]
        part["similarity"] = found.similarity
        parts.append(part)
        if held_out == FOLD:
            similarity[scans] = found.similarity
    return HeldOut(_without_order(pd.concat(parts, ignore_index=True)), similarity, scores)


def _without_order(residuals: pd.DataFrame) -> pd.DataFrame:
    """Number people and order rows by `drawn_from`: a seed and a list of the participants would undo a draw."""
    of_person = residuals[residuals["held_out"] == FOLD].groupby("person")["residual"].mean()
    number = {person: place for place, person in enumerate(of_person.index[drawn_from(of_person.to_numpy())])}
    shuffled = residuals.assign(person=residuals["person"].map(number)).iloc[
        drawn_from(residuals["residual"].to_numpy())
    ]
    return shuffled.sort_values(["held_out", "group"], kind="stable", ignore_index=True)


def _score(target: Target, observed: FloatArray, predicted: FloatArray) -> dict[str, float]:
    """Scores of one held-out group, by the names of `HeldOut`."""
    score = score_predictions("auc" if target.is_binary else "pearson", observed, predicted)
    told = {"Scans": float(len(observed)), main_score(target): float(score)}
    if target.is_binary:
        return told
    error = predicted - observed
    return told | {"MeanError": float(error.mean()), "MAE": float(np.abs(error).mean())}


def _splits(study: Study, known: Rows, seed: int) -> Iterator[tuple[str, str, Rows, Rows]]:
    """Yield what is held out, its name, test and training people; relatives of test people do not train."""
    families = family_numbers(study.people.families, len(study.people.names))
    for fold, test in enumerate(study.protocol.divide(known, seed)):
        yield FOLD, str(fold), test, np.setdiff1d(known, test)
    sites = study.people.sites
    if sites is None:
        return
    for site in sorted(set(sites[known].tolist())):
        test = known[sites[known] == site]
        train = known[~np.isin(families[known], families[test])]
        if len(train) >= FEWEST_TRAINING:
            yield SITE, site, test, train


@dataclass(frozen=True, eq=False)
class Evidence:
    """The residuals that speak for a person to come: of held-out sites, else of held-out people of the same sites.

    Attributes
    ----------
    rows : pandas.DataFrame
        `RESIDUALS`.
    by_site : bool
    """

    rows: pd.DataFrame
    by_site: bool

    @classmethod
    def of(cls, residuals: pd.DataFrame) -> Evidence:
        """Choose them."""
        sites = residuals[residuals["held_out"] == SITE]
        by_site = sites["group"].nunique() > 1
        return cls(sites if by_site else residuals[residuals["held_out"] == FOLD], by_site)

    @property
    def groups(self) -> NDArray[np.generic]:
        """Units that were held out together."""
        return self.rows["group"].to_numpy()

    @property
    def members(self) -> NDArray[np.generic]:
        """Population of a further member: sites, else people."""
        return self.groups if self.by_site else self.rows["person"].to_numpy()

    @property
    def values(self) -> FloatArray:
        """Residuals."""
        return self.rows["residual"].to_numpy(dtype=float)


def negative_class(study: Study) -> str | None:
    """The class that is coded as 0; None for a target of numbers."""
    target = study.targets[0]
    if not target.is_binary:
        return None
    return next(str(each) for each in study.people.phenotypes[target.name].dropna() if str(each) != target.positive)


def interval_facts(residuals: pd.DataFrame) -> dict[str, object]:
    """Radii of the intervals with the coverage that they claim, and the one measured on what was held out.

    A person of a further site is promised something by residuals of held-out sites only; a model without sites says
    what holds for people of its own site.
    """
    chosen = Evidence.of(residuals)
    radius_of = site_radius if chosen.by_site else group_radius
    radius = radius_of(chosen.values, chosen.members, LEVEL)
    coverage = measured_coverage(chosen.values, chosen.groups, LEVEL, chosen.members, radius_of)
    facts: dict[str, object] = {
        "HoldsFor": "a person of a site like these" if chosen.by_site else "a person like these, of the same site",
        "HeldOut": SITE if chosen.by_site else FOLD,
        "NominalCoverage": radius.level,
        "Radius": radius.value,
        "MeasuredCoverage": float(np.nanmean(coverage)),
        "LeastCoverageOfAGroup": float(np.nanmin(coverage)),
        "Groups": len(coverage),
        "Scans": len(chosen.values),
    }
    if chosen.by_site:
        cautious = cautious_radius(chosen.values, chosen.groups, LEVEL)
        if np.isfinite(cautious.value):
            # with few sites the ordinary interval is widened by more than the worst of them
            facts["NewSiteRadius"] = max(cautious.value, radius.value)
            facts["ShareOfSitesCovered"] = cautious.level
        facts["BiasOfSites"] = {
            str(name): float(each) for name, each in chosen.rows.groupby("group")["residual"].mean().items()
        }
    return facts


def class_radii(residuals: pd.DataFrame) -> dict[str, float]:
    """For two classes: how far from a class the score of 90 % of its members stays, by class."""
    chosen = Evidence.of(residuals)
    return {
        str(name): group_radius(part["residual"], part["group" if chosen.by_site else "person"], LEVEL).value
        for name, part in chosen.rows.groupby("observed_class")
    }
