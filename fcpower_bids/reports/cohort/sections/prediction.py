"""How well each phenotype is predicted: folds, differences, null, scatter, importance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.baselines import BASELINES
from fcpower_bids.analyses.features import FC
from fcpower_bids.analyses.importance import IMPORTANCE_EDGES, IMPORTANCE_PARCELS
from fcpower_bids.analyses.prediction import COMPARISONS, RELIABILITY, SUMMARY
from fcpower_bids.reports.cohort import figures as group_figures
from fcpower_bids.reports.cohort.brains import connections_panel, parcels_panel
from fcpower_bids.reports.cohort.findings import (
    Finding,
    by_representation,
    describe_difference,
    describe_finding,
    find_targets,
)
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Grid,
    GroupTables,
    Section,
    count,
    listed,
    make_grid,
    percent,
    say_p,
)
from fcpower_bids.reports.kit.figures import draw_matrices
from fcpower_bids.reports.kit.panel import Panel

MOST_TARGETS = 12
"""Targets that are drawn; of a longer list the best are, and all are in the tables."""
WITHOUT_COVARIATES = " Observed is the residual of the covariates, fitted to the training people of each fold."
MOST_SCATTERS, MOST_PAIRS = 4, 10
MOST_EDGES, LARGEST = 100, 2**26
"""Edges that are drawn, and bytes of the table beyond which none are: reading it would take longer than the page."""
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def prediction_sections(tables: GroupTables) -> list[Section]:
    """Return one section with the tables of all targets, and one per target that is drawn."""
    findings = find_targets(tables)
    if not findings:
        return []
    drawn = findings
    if len(findings) > MOST_TARGETS:
        drawn = sorted(findings, key=_rank)[:MOST_TARGETS]
    said = _protocol(tables.facts("prediction"))
    if len(drawn) < len(findings):
        said.append(f"{len(drawn)} of {len(findings)} targets are drawn: the lowest p, then the highest scores.")
    grids = prediction_grids(tables)
    sections = [Section("prediction", "Prediction of phenotypes", tuple(said), (), grids)]
    for number, finding in enumerate(drawn):
        said = describe_finding(finding, tables)
        panels = tuple(_target_panels(finding, tables))
        sections.append(Section(f"target-{number}", f"Prediction of {finding.target}", tuple(said), panels))
    return sections


def _protocol(facts: dict[str, Any]) -> list[str]:
    preset, family = facts.get("Preset") or {}, facts.get("FamilyColumn")
    numbers = (preset.get(key, "?") for key in ("n_repeats", "n_folds", "n_inner"))
    shape = "{} × {} outer and {} inner folds, protocol '{}'".format(*numbers, preset.get("name", "?"))
    if facts.get("Folds") != "K-fold":
        shape = f"{facts.get('Folds', 'folds')}, protocol '{preset.get('name', '?')}'"
    kin = "Relatives were not declared (--family-column); relatives on both sides of a split would raise the scores."
    if family:
        kin = f"Families ('{family}') are never split between training and test people."
    said = [f"Nested cross-validation ({shape}): the penalty is selected among the training people alone.", kin]
    if pairs := facts.get("AcceptedPairs"):
        named = ", ".join(" and ".join(pair) for pair in pairs)
        said.append(f"Accepted by name though they look like one scan, and not kept together by the folds: {named}.")
    said += [f"Permutations: {facts['Permutations']}"] if "Permutations" in facts else []
    return said + _harmonised(facts)


def _harmonised(facts: dict[str, Any]) -> list[str]:
    if "Harmonisation" not in facts:
        return []
    left = facts["Harmonisation"]["PeopleTestedUnadjusted"]
    shared = facts.get("TargetsThatGoWithSites", {}).items()
    said = "Site effects were taken from the features by ComBat, fitted to the training people of every fold."
    if left:
        said += (
            f" Tested unadjusted, from sites too small or unseen in training: {count(len(left), 'person', 'people')}."
        )
    if shared:
        between = listed([f"{percent(about['Share'])} of the variance of {name}" for name, about in shared], 4)
        said += (
            f" ComBat does not keep the target: it takes what target and site share ({between} "
            f"{'lies' if len(shared) == 1 else 'lie'} between sites), so that a lower score than without it does not "
            "show that the site had made the score."
        )
    return [said]


def _rank(finding: Finding) -> tuple[float, float]:
    best = float(finding.summary[finding.leading].iloc[0])
    return (finding.p if finding.p == finding.p else 1.0, -best if best == best else np.inf)


def _target_panels(finding: Finding, tables: GroupTables) -> Iterator[Panel]:
    yield from _folds_panel(finding, tables)
    yield from _null_panel(finding, tables)
    yield from _difference_panel(finding, tables)
    yield from _scatter_panel(finding, tables)
    yield from _importance_panels(finding, tables)
    yield from _parcels_panel(finding, tables)
    yield from _edges_panel(finding, tables)


def _folds_panel(finding: Finding, tables: GroupTables) -> Iterator[Panel]:
    parts = by_representation(tables.rows("prediction"), finding.target)
    scores = {tables.title(name): part[finding.score].to_numpy(dtype=float) for name, part in parts.items()}
    rows = finding.summary.set_index("representation")
    pooled = {tables.title(name): float(rows[f"{finding.score}_pooled_mean"].get(name, np.nan)) for name in parts}
    if not scores:
        return
    said = "; ".join(
        f"{title} {np.nanmean(values):.2f}" for title, values in scores.items() if np.isfinite(values).any()
    )
    yield Panel(
        f"{finding.label} of every fold",
        "Dots are folds; the diamond is their mean, the black line their quartiles, the dotted line the score of all "
        "predictions together. Folds share people, so their spread is not a standard error.",
        group_figures.draw_folds(scores, pooled, f"{finding.label} in the test people", finding.chance),
        f"{finding.label} of the folds by representation; means: {said}.",
        sources=tables.links("prediction", "prediction_pooled"),
    )


def _difference_panel(finding: Finding, tables: GroupTables) -> Iterator[Panel]:
    comparisons = tables.rows("comparisons")
    if comparisons.empty:
        return
    own = comparisons[comparisons["target"].astype(str) == finding.target].dropna(subset=["ci_low", "ci_high"])
    if own.empty:
        return
    rows = [
        (
            f"{tables.title(str(row['representation']))} − {tables.title(str(row['reference']))}",
            float(row["mean_difference"]),
            float(row["ci_low"]),
            float(row["ci_high"]),
        )
        for _, row in own.head(MOST_PAIRS).iterrows()
    ]
    scores = {
        name: part.set_index(["repeat", "fold"])[finding.score]
        for name, part in by_representation(tables.rows("prediction"), finding.target).items()
    }
    dots = [
        (scores[row["representation"]] - scores[row["reference"]]).dropna().to_numpy(dtype=float)
        for _, row in own.head(MOST_PAIRS).iterrows()
        if row["representation"] in scores and row["reference"] in scores
    ]
    yield Panel(
        "Paired differences",
        "Grey: every shared fold. Blue: mean and 95 % interval of the corrected resampled t-test; an interval that "
        "includes 0 is no evidence for a difference.",
        group_figures.draw_intervals(rows, f"difference in {finding.label}", 0.0, dots),
        " ".join(describe_difference(row, finding, tables) for _, row in own.head(MOST_PAIRS).iterrows()),
        sources=tables.links("comparisons"),
    )


def _null_panel(finding: Finding, tables: GroupTables) -> Iterator[Panel]:
    null = tables.rows("null")
    if null.empty:
        return
    parts = by_representation(null.sort_values("permutation", kind="stable"), finding.target)
    scores = {tables.title(name): part["score"].to_numpy(dtype=float) for name, part in parts.items()}
    if not scores:
        return
    own = finding.summary.set_index("representation")["p_permutation"]
    said = "; ".join(f"{tables.title(name)} {say_p(float(own.get(name, np.nan)))}" for name in parts)
    yield Panel(
        "Against chance",
        f"The line is the score of the true targets, the grey bars those of permuted ones: {said}.",
        group_figures.draw_null(scores, f"{finding.label} of all predictions of the first repeat"),
        f"Scores of permuted targets and of the true one; {said}.",
        sources=tables.links("null", "prediction_summary"),
    )


def _scatter_panel(finding: Finding, tables: GroupTables) -> Iterator[Panel]:
    predictions = tables.predicted()
    if predictions.empty:
        return
    pairs: dict[str, np.ndarray] = {}
    said = []
    for name, part in list(by_representation(predictions, finding.target).items())[:MOST_SCATTERS]:
        means = part.groupby("participant_id")[["observed", "predicted"]].mean().dropna()
        if len(means) < 3:
            continue
        values = means.to_numpy(dtype=float)
        pairs[tables.title(name)] = values
        said.append(f"{tables.title(name)} {_describe_pairs(values)}")
    if not pairs:
        return
    yield Panel(
        "Observed and predicted",
        "One dot per person, the mean of the out-of-fold predictions over repeats, with the least-squares line and the "
        f"95 % band of its mean (people taken as independent): {'; '.join(said)}. Averaging over repeats makes r "
        f"higher than that of a single repeat.{WITHOUT_COVARIATES if _is_residual(finding, tables) else ''}",
        group_figures.draw_scatter(
            pairs, _observed(finding, tables), finding.score == "auc" and not _is_residual(finding, tables)
        ),
        f"Observed against predicted {finding.target}: {'; '.join(said)}.",
        sources=tables.links("predictions", "prediction_means"),
    )


def _observed(finding: Finding, tables: GroupTables) -> str:
    """Name of the axis of the observed values."""
    name = group_figures.short(finding.target)
    if finding.score == "auc" and not _is_residual(finding, tables):
        one = tables.facts("prediction").get("PositiveClasses", {}).get(finding.target)
        return f"observed {name} (1: {group_figures.short(str(one))})" if one else f"observed {name}"
    return f"observed {name}, residual" if _is_residual(finding, tables) else f"observed {name}"


def _is_residual(finding: Finding, tables: GroupTables) -> bool:
    return bool(tables.facts("prediction").get("Preset", {}).get("covariates"))


def _describe_pairs(values: np.ndarray) -> str:
    if (np.ptp(values, axis=0) == 0).any() or len(values) < 4:
        return f"r n/a, n = {len(values)}"
    r = float(np.corrcoef(values.T)[0, 1])
    low, high = np.tanh(
        np.arctanh(np.clip(r, -0.9999999, 0.9999999)) + np.array([-1.96, 1.96]) / np.sqrt(len(values) - 3)
    )
    return f"r = {r:.2f} (95 % CI {low:.2f} to {high:.2f}), n = {len(values)}"


def found_representations(finding: Finding) -> list[str]:
    """Representations that predict the target better than chance: only of these a map is drawn."""
    rows = finding.summary[finding.summary["p_max_targets"] < SIGNIFICANT]
    return list(map(str, rows["representation"]))


def _importance_panels(finding: Finding, tables: GroupTables) -> Iterator[Panel]:
    networks = tables.rows("importance_networks")
    if networks.empty:
        return
    for name, part in by_representation(networks, finding.target).items():
        if name not in found_representations(finding):
            continue
        names, values = network_matrix(part)
        largest = float(np.nanmax(np.abs(values)))
        power = int(np.floor(np.log10(largest))) if largest > 0 else 0
        power = 0 if -1 <= power <= 2 else power
        title = tables.title(name) + (f" (values × 10{str(power).translate(RAISED)})" if power else "")
        yield Panel(
            f"Networks that matter, {tables.title(name)}",
            "Mean covariance of the edges between two networks with the prediction (Haufe transform): red where "
            "stronger edges go with higher predictions. It says what the model reads, not what causes the phenotype.",
            draw_matrices({title: values / 10.0**power}, [(label, i, i + 1) for i, label in enumerate(names)]),
            f"Importance within and between {len(names)} networks.",
            sources=tables.links("importance_networks", "importance_edges"),
        )


def _parcels_panel(finding: Finding, tables: GroupTables) -> Iterator[Panel]:
    """Importance of the parcels, of the best representation that has it; none of noise."""
    parts = by_representation(tables.rows("importance_parcels"), finding.target)
    names = [name for name in found_representations(finding) if name in parts]
    if not names:
        return
    panel = parcels_panel(
        parts[names[0]],
        IMPORTANCE_PARCELS.columns["importance"],
        f"Parcels that matter for {finding.target}, {tables.title(names[0])}",
        "Mean covariance of the edges of a parcel with the prediction (Haufe transform): red where stronger edges go "
        "with higher predictions. It says what the model reads, not what causes the phenotype. The table names the "
        "parcels with the largest.",
        tables.links("importance_parcels", "importance_edges"),
    )
    if panel:
        yield panel


def _edges_panel(finding: Finding, tables: GroupTables) -> Iterator[Panel]:
    """The most important edges of the best representation that has them; none of noise."""
    path, parts = tables.path("importance_edges"), by_representation(tables.rows("importance_parcels"), finding.target)
    name = next((name for name in found_representations(finding) if name in parts), "")
    there = tables.has("importance_edges") and path.stat().st_size <= LARGEST
    if not name or not set("xyz") <= set(parts[name].columns) or not there:
        return
    known = parts[name].dropna(subset=list("xyz")).set_index("parcel")
    places = {str(parcel): (row.x, row.y, row.z) for parcel, row in known.iterrows()}
    edges = by_representation(tables.rows("importance_edges"), finding.target)[name].dropna(subset="importance")
    order = edges["importance"].abs().sort_values(ascending=False, kind="stable").index[:MOST_EDGES]
    panel = connections_panel(
        edges.loc[order],
        places,
        IMPORTANCE_EDGES.shown("parcel_a", "parcel_b", "importance"),
        f"Connections that matter for {finding.target}, {tables.title(name)}",
        "Edges with the largest covariance with the prediction (Haufe transform), up to a hundred: red where stronger "
        "edges go with higher predictions. No edge is tested by itself"
        + ("." if name == FC else ", and each of this representation depends on all of FC: read the pattern."),
        tables.links("importance_edges"),
    )
    if panel:
        yield panel


def network_matrix(part: pd.DataFrame) -> tuple[list[str], np.ndarray]:
    """Return the networks of a target and representation, and their importance as a symmetric matrix."""
    first, second = (part[column].fillna("n/a").astype(str).tolist() for column in ("network_a", "network_b"))
    names = list(dict.fromkeys([*first, *second]))
    place = {name: i for i, name in enumerate(names)}
    values = np.full((len(names), len(names)), np.nan)
    for a, b, value in zip(first, second, part["importance"], strict=True):
        i, j = place[a], place[b]
        values[i, j] = values[j, i] = value
    return names, values


def prediction_grids(tables: GroupTables) -> tuple[Grid, ...]:
    """Return the tables that are there."""
    return (
        _summary_grid(tables),
        *_baseline_grids(tables),
        *_comparison_grids(tables),
        *_reliability_grid(tables),
    )


def _baseline_grids(tables: GroupTables) -> Iterator[Grid]:
    rows = tables.rows("prediction_baselines")
    if not rows.empty:
        yield make_grid(
            tables.titled(rows),
            BASELINES.shown(
                "target", "model", "representation", "value", "predictive_cod", "gain", "gain_cod", "p_adds"
            ),
            "Gain over trivial predictors",
            "Known without a scan: covariates, age, sex, motion, minutes and site, as far as they are there.",
            tables.links("prediction_baselines"),
        )


def _summary_grid(tables: GroupTables) -> Grid:
    summary = tables.titled(tables.rows("prediction_summary"))
    order = {target: i for i, target in enumerate(dict.fromkeys(summary["target"]))}
    summary = summary.dropna(axis=1, how="all").sort_values("target", key=lambda name: name.map(order), kind="stable")
    return make_grid(
        summary,
        SUMMARY.shown(
            "target",
            "representation",
            "n_folds",
            "r_fold_mean",
            "r_fold_sd",
            "r_pooled_mean",
            "predictive_cod_pooled_mean",
            "mae_pooled_mean",
            "auc_fold_mean",
            "auc_pooled_mean",
            "balanced_accuracy_pooled_mean",
            "p_permutation",
            "share_at_grid_edge",
            "n_trained",
        ),
        "All targets",
        "COD is 1 for perfect predictions, 0 for predicting the mean of the training people, and negative for worse.",
        tables.links("prediction_summary", "prediction", "prediction_pooled", "null", "folds"),
    )


def _comparison_grids(tables: GroupTables) -> Iterator[Grid]:
    comparisons = tables.frame("comparisons")
    if comparisons is None:
        return
    yield make_grid(
        tables.titled(comparisons),
        COMPARISONS.shown(
            "target",
            "representation",
            "reference",
            "mean_difference",
            "ci_low",
            "ci_high",
            "t",
            "df",
            "p_two_sided",
            "p_holm",
            "n_distinct",
        ),
        "Paired differences",
        str(tables.facts("comparisons").get("Rule", "Corrected resampled t-test on shared folds.")),
        tables.links("comparisons", "prediction"),
    )


def _reliability_grid(tables: GroupTables) -> Iterator[Grid]:
    reliability = tables.frame("reliability")
    if reliability is None:
        return
    yield make_grid(
        tables.titled(reliability),
        RELIABILITY.shown("target", "representation", "over", "rho", "reliability", "r", "ceiling"),
        "Reliability of the predictions",
        str(tables.facts("reliability").get("Rule", "")),
        tables.links("reliability"),
    )
