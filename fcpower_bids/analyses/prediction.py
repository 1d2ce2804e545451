"""How well phenotypes are predicted: every representation on the same folds, compared, with null and importance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fcpower_bids.analyses.alpha import FC_NESTED, nested_exponent, tabulate_alpha
from fcpower_bids.analyses.baselines import (
    NO_NULL,
    NULL_FACTS,
    Baselines,
    Null,
    choose_permutations,
    null_p_values,
    null_scores,
)
from fcpower_bids.analyses.evaluate import (
    FOLD_MEAN,
    KEYS,
    POOLED_MEAN,
    SMALL_FOLD,
    WITHIN_MEAN,
    Results,
    compare,
    comparison_facts,
    cross_validate,
    evaluate,
    fold_scores,
    notes_of,
    person_frames,
    pooled_scores,
    summarise,
)
from fcpower_bids.analyses.features import Representation, encoder_of, has_series
from fcpower_bids.analyses.scan_parts import HALVES, cut_scans
from fcpower_bids.analyses.sites import (
    harmonisation_facts,
    make_solvers,
    scores_within_sites,
    tabulate_sites,
)
from fcpower_bids.analyses.study import Study, changes_features, open_study
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.edges import edge_names, rebuild_matrix
from fcpower_bids.core.identification import disattenuated_ceiling, split_half_reliability
from fcpower_bids.core.kernels import PANEL
from fcpower_bids.core.krr import check_memory, fit_in_sample
from fcpower_bids.core.nested import NestedResult
from fcpower_bids.core.probe import standard_kernel
from fcpower_bids.errors import Unfit
from fcpower_bids.records import Blocks, Cohort, Looked, Table, tabulate
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Settings

MOST_ROWS = 2_000_000
"""With more rows `predictions` has its means over repeats in its place."""
SUMMARY = TABLES["prediction_summary"]

RELIABILITY_FACTS = {
    "Rule": (
        "Halves are those of each scan in time; the nested cross-validation is run on each half, on the same folds "
        "(the paper, Appendix F). Halves need the series of every scan; embeddings have none."
    )
}


def tabulate_people(study: Study, results: Results, facts: Mapping[str, Any]) -> dict[str, Table]:
    """Return ``predictions``, or ``prediction_means`` where it has too many rows."""
    n_rows = sum(fold.test.size for fold in study.folds) * len(study.targets) * len(results)
    whole = n_rows <= MOST_ROWS
    name = "predictions" if whole else "prediction_means"

    def blocks() -> Iterator[pd.DataFrame]:
        for block in person_frames(study, results):
            if not whole:  # person by person, in the order of their names
                people = block.groupby(["target", "representation", "participant_id"], as_index=False)
                block = people.agg(
                    n_repeats=("predicted", "size"),
                    observed=("observed", "mean"),
                    predicted=("predicted", "mean"),
                    predicted_sd=("predicted", "std"),
                )
            yield block[list(TABLES[name].columns)]

    tested = np.unique(np.concatenate([fold.test for fold in study.folds])).size
    made = Blocks(blocks, n_rows if whole else tested * len(study.targets) * len(results))
    return {name: Table(made, TABLES[name], facts)}


def tabulate_folds(study: Study, facts: Mapping[str, Any]) -> Table:
    """Return ``folds``, made fold by fold."""
    names, spec = np.array(study.people.names, dtype=object), TABLES["folds"]

    def frames() -> Iterator[pd.DataFrame]:
        for fold in study.folds:
            role, inner = np.full(len(names), "excluded", dtype=object), np.full(len(names), -1)
            role[fold.test], role[fold.train] = "test", "train"
            for number, rows in enumerate(fold.inner):
                inner[rows] = number
            frame = pd.DataFrame({"participant_id": names, "role": role, "inner_fold": inner})
            yield frame.assign(repeat=fold.repeat, fold=fold.fold)[list(spec.columns)]

    return Table(Blocks(frames, len(names) * len(study.folds)), spec, facts)


def analyse_prediction(cohort: Cohort, settings: Settings) -> Looked:
    """Predict phenotypes by nested cross-validation. Raises Unfit."""
    if changes_features(settings.group.sites) and settings.group.site_column is None:
        raise Unfit("Harmonisation needs the column of sites; give --site-column.")
    study = open_study(cohort, settings, harmonises=True)
    check_memory(len(study.people.names))
    yield {}
    results: dict[str, NestedResult] = {}
    importance, baselines, null = EdgeImportance(study), Baselines(study), Null()
    for representation, solver in make_solvers(study.representations(), study, settings.group.sites):
        entry = representation.name
        results[entry] = cross_validate(solver, study, entry)
        null |= null_scores(solver, study, entry)
        baselines.add(entry, solver)
        del solver  # The inverses of a large cohort must not be in memory together with its features.
        if not changes_features(settings.group.sites):
            importance.add(representation, results[entry])
    grid = None
    if settings.group.alpha_selection == "nested":
        grid = nested_exponent(study)
        results[FC_NESTED] = grid.result
    facts = study.facts() | {"Notes": notes_of(results), "Permutations": choose_permutations(study)[1]}
    if changes_features(settings.group.sites):
        facts |= harmonisation_facts(study)
    folds = fold_scores(study, results)
    tables = tabulate(facts, prediction=folds, prediction_pooled=pooled_scores(study, results))
    tables |= tabulate_people(study, results, facts) | {"folds": tabulate_folds(study, facts)}
    tables |= tabulate(facts | comparison_facts(study), comparisons=compare(folds, study))
    tables |= tabulate_alpha(study, grid) if grid else {}
    tables |= tabulate_reliability(study, results)
    listed = [
        {"target": target, "representation": name, "permutation": i, "score": score, "standard_error": error}
        for (target, name), scores in null.items()
        for i, (score, error) in enumerate(scores.T.tolist())
    ]
    tables |= tabulate(NULL_FACTS, null=listed) if listed else {}
    tables |= tabulate_sites(study, person_frames(study, results)) | baselines.table()
    tables[SUMMARY.name] = _summarise(tables, null, study)
    yield tables | importance.tables(IMPORTANCE_FACTS)


def _summarise(tables: dict[str, Table], null: Null, study: Study) -> Table:
    """One row per target and representation; everything in it follows from the other tables."""
    p_values, within = null_p_values(null), scores_within_sites(tables) if study.held_out else None
    frame = summarise(tables["prediction"].frame, tables["prediction_pooled"].frame)
    few = tables["prediction"].frame.groupby(KEYS, sort=False)["n_test"].median() < SMALL_FOLD
    frame["ranked_by"] = WITHIN_MEAN if within else np.where(few, POOLED_MEAN, FOLD_MEAN)
    wide: dict[Any, dict[str, Any]] = frame.to_dict("index")  # type: ignore[assignment]
    rows = [
        dict(zip(KEYS, key, strict=True)) | row | (within[key] if within else {}) | p_values.get(key, NO_NULL)
        for key, row in wide.items()
    ]
    frame = pd.DataFrame(rows)
    return Table(frame[[name for name in SUMMARY.columns if name in frame]], SUMMARY)


# --- Reliability ------------------------------------------------------------------------------------------------------


def tabulate_reliability(study: Study, results: Results) -> dict[str, Table]:
    """One row per target and representation; the sidecar says why halves are not there."""
    facts, halves = dict(RELIABILITY_FACTS), list[dict[str, NestedResult]]()
    if changes_features(study.settings.group.sites):
        facts["HalvesLeftOut"] = "The halves of scans are not harmonised."
    elif has_series(study.cohort):
        try:
            for part in HALVES:
                (half,) = cut_scans(study.cohort, [part], "FC of half scans", study.settings)
                connectomes = (made for made in study.representations(half) if not encoder_of(made.name))
                halves.append(evaluate(study, connectomes, "{} of half scans"))
        except Unfit as error:
            facts["HalvesLeftOut"] = str(error)
    of_all = pooled_scores(study, results).groupby(["target", "representation"])["r"].mean().to_dict()
    rows = []
    for pair in zip(*(person_frames(study, half) for half in halves), strict=True) if len(halves) > 1 else ():
        target, name = pair[0][["target", "representation"]].iloc[0]
        rho, sd, reliability = split_half_reliability(
            *(half.pivot(index="repeat", columns="participant_id", values="predicted") for half in pair)
        )
        row = {"target": target, "representation": name, "rho": rho, "rho_sd": sd, "reliability": reliability}
        row["r"] = r = of_all.get((target, name), np.nan)
        rows.append(row | {"ceiling": disattenuated_ceiling(r, rho)})
    return tabulate(facts, reliability=rows)


# --- Which edges and pairs of networks the predictions rest on --------------------------------------------------------


def haufe_transform(features: ArrayLike, predictions: ArrayLike, masks: ArrayLike) -> FloatArray:
    """Mean over folds of cov(X, yhat) (E[, q]) (Haufe 2014); X (n, E), yhat (F, n[, q]), trained on masks (F, n)."""
    masks = np.atleast_2d(np.asarray(masks, dtype=bool))
    predictions = np.asarray(predictions, dtype=np.float64)
    features = np.asarray(features, dtype=np.float64)
    weights = np.zeros(predictions.shape[1:])
    for mask, fold in zip(masks, predictions, strict=True):
        weights[mask] += (fold[mask] - fold[mask].mean(axis=0)) / ((mask.sum() - 1) * len(masks))
    return features.T @ weights


def network_importance(edges: ArrayLike, networks: Sequence[str]) -> tuple[list[str], FloatArray]:
    """Networks and means (N, N) of edges (E,) between or within them; NaN in those of one parcel."""
    names = list(dict.fromkeys(networks))
    matrix = rebuild_matrix(np.asarray(edges, dtype=np.float64), diagonal=np.nan, weighted=False)
    belongs = np.array([[network == name for network in networks] for name in names], dtype=np.float64)
    known = np.isfinite(matrix)
    sums, counts = (belongs @ values @ belongs.T for values in (np.where(known, matrix, 0), known.astype(np.float64)))
    return names, np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


MOST_EDGES = 5_000_000
"""Rows, above which the table of edges is left out; that of the networks is always there."""

IMPORTANCE_FACTS = {
    "Method": (
        "Haufe et al. 2014 (doi:10.1016/j.neuroimage.2013.10.067): covariance of each edge with the in-sample "
        "predictions of the training people, averaged over the outer folds of the first repeat. Positive where a "
        "stronger edge goes with a higher prediction."
    )
}


class EdgeImportance:
    """Collects the importance of the edges of one representation after the other."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.edges: list[tuple[dict[str, str], FloatArray]] = []
        self.networks: list[dict[str, Any]] = []

    def add(self, representation: Representation, result: NestedResult) -> None:
        """Compute the importance of every edge for every target; nothing where features are not edges."""
        if not representation.is_edges:
            return
        study, cohort, features = self.study, self.study.cohort, representation.features()
        folds, everyone = study.first_repeat, np.arange(len(study.people.names))
        # Targets as each fold of the first repeat defines them, (F, n, m), and whose train it.
        targets = np.stack([study.columns(fold.train) if callable(study.columns) else study.columns for fold in folds])
        masks = np.stack([np.isin(everyone, fold.train) for fold in folds])[:, :, None] & ~np.isnan(targets)
        kernel = None
        if representation.kernel == "correlation":
            kernel = representation.similarity()
        elif study.preset.fit_transforms_on == "cohort":
            kernel = standard_kernel(features, everyone, everyone)
        chosen, fitted = result.chosen[: len(masks)], np.zeros(targets.shape)  # in-sample predictions (F, n, m)
        if kernel is not None:
            for penalty in np.unique(chosen):  # all fits with one penalty share an inverse
                of, which = np.nonzero(chosen == penalty)
                sides = targets[of, :, which].T, masks[of, :, which].T, study.preset.intercept
                fitted[of, :, which] = fit_in_sample(kernel, float(penalty), *sides).T
        for place in np.ndindex(chosen.shape) if kernel is None else ():  # z-scored in every fold
            fold, one = place[0], slice(place[1], place[1] + 1)
            train = np.flatnonzero(masks[fold, :, place[1]])
            gram, whole = standard_kernel(features, train, train), np.ones((train.size, 1), dtype=bool)
            fitted[fold, train, one] = fit_in_sample(gram, float(chosen[place]), targets[fold, train, one], whole, True)
        for j, target in enumerate(study.targets):
            panels = (features[:, at : at + PANEL] for at in range(0, features.shape[1], PANEL))
            values = np.concatenate([haufe_transform(panel, fitted[:, :, j], masks[:, :, j]) for panel in panels])
            values = values / representation.weight
            keys = {"target": target.name, "representation": representation.name}
            self.edges.append((keys, values))
            names, of_pairs = network_importance(values, cohort.networks)
            for a, b in zip(*np.triu_indices(len(names)), strict=True):
                pair = {"network_a": names[a], "network_b": names[b]}
                self.networks.append({**keys, **pair, "importance": float(of_pairs[a, b])})

    def tables(self, facts: Mapping[str, Any]) -> dict[str, Table]:
        """Return ``importance_edges`` and ``importance_networks``."""
        tables, n_rows = {}, sum(len(values) for _, values in self.edges)
        if 0 < n_rows <= MOST_EDGES:
            tables["importance_edges"] = Table(Blocks(self._rows, n_rows), TABLES["importance_edges"], facts)
        else:
            too_many = f"More than {MOST_EDGES} rows; ask for fewer targets."
            facts = {**facts, "EdgesLeftOut": too_many if n_rows else "No kernel ridge on edges as they are."}
        return tables | tabulate(facts, importance_networks=self.networks)

    def _rows(self) -> Iterator[pd.DataFrame]:
        names = np.array(edge_names(self.study.cohort.parcels), dtype=object)
        for keys, values in self.edges:
            yield pd.DataFrame({**keys, "parcel_a": names[:, 0], "parcel_b": names[:, 1], "importance": values})
