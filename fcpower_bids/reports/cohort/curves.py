"""Curves: more people and longer scans with the gains of every cell, and the spectra along the exponent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.reports.cohort.comparisons import MOST_TARGETS
from fcpower_bids.reports.cohort.drawings import draw_curves, draw_gains, draw_sphere, with_band
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Grid,
    GroupTables,
    Section,
    count,
    count_people,
    own_rows,
    percent,
    score_label,
    targets_of,
)
from fcpower_bids.reports.kit.figures import draw_matrices
from fcpower_bids.reports.kit.page import Panel

MOST_PAIRS = 3
MOST_EXPONENTS = 12
"""Targets whose curve against the exponent is drawn."""
DRAWN_EXPONENTS = (0.6, 0.1)
"""Beside FC and FC^alpha."""
BINS_TOGETHER = 4
"""Bins of the histogram that are drawn as one."""
UNKNOWN = -1.0
"""In place of minutes where no repetition time is known: the cell is of whole scans."""


def curves_chapter(tables: GroupTables) -> Iterator[Section]:
    """Curves over people and minutes, and the gains of every cell."""
    curves, scans = tables.rows("learning_curves"), tables.rows("identification_curves")
    if curves.empty and scans.empty:
        return
    answered = targets_of(curves)[:MOST_TARGETS] if len(curves) else []
    shown = [(one, own_rows(curves, one), own_rows(tables.rows("learning_gains"), one)) for one in answered]
    shown += [("Identification", scans, tables.rows("identification_gains"))] if len(scans) else []
    said, panels = list[str](), list[Panel]()
    for name, rows, gains in shown:
        score = "accuracy" if rows is scans else "auc" if rows["auc"].notna().any() else "r"
        said.append(_say_curves(name, rows, score, "share found" if rows is scans else score_label(score), tables))
        panels += _curves(name, rows, gains, score, said[-1], tables)
    answers = tuple(said)
    facts = tables.facts("learning_curves") or tables.facts("identification_curves")
    said += [str(facts[key]) for key in ("LeftOut",) if key in facts]
    said += [str(note) for note in facts.get("Notes", [])]
    grids = list[Grid]()
    for name, old, new in (
        ("learning_gains", "p_greater is one-sided; cells", "Cells"),
        ("identification_gains", "p_greater", "p (better)"),
    ):
        grids += tables.grid(name, text=str(tables.facts(name).get("GainRule", "")).replace(old, new))
    yield Section("curves", "More people, longer scans", tuple(said), tuple(panels), tuple(grids), answers)


def _say_curves(name: str, rows: pd.DataFrame, score: str, label: str, tables: GroupTables) -> str:
    """Say the score at the smallest and the largest cell."""
    parts = []
    for representation, part in rows.groupby("representation", sort=False):
        means = part.groupby(["minutes", "n_people"])[score].mean()
        if means.notna().any():
            (minutes, people), (most_minutes, most_people) = means.index[0], means.index[-1]
            said = f"{tables.title(representation)} {means.iloc[0]:.3f} with {people:.0f} people and {minutes:.1f} min"
            if len(means) > 1:
                said += f", {means.iloc[-1]:.3f} with {most_people:.0f} and {most_minutes:.1f} min"
            parts.append(said)
    return f"{name}, mean {label}: {'; '.join(parts) or 'not defined'}."


def _curves(
    name: str, rows: pd.DataFrame, gains: pd.DataFrame, score: str, sentence: str, tables: GroupTables
) -> Iterator[Panel]:
    """Curves over people and over minutes, then the gains of every cell; of a target, or of identification."""
    found = score == "accuracy"
    label, kind = "share found" if found else score_label(score), "identification" if found else "learning"
    chance = {"auc": 0.5, "r": 0.0}.get(score, np.nan)
    drawn = []
    for kept, column, horizontal, title in (
        (
            rows[rows["part"] == "full"],
            "n_people",
            "people to choose from" if found else "training people",
            "Full scans",
        ),
        (rows[rows["n_people"] == rows["n_people"].max()], "minutes", "minutes of each scan", "All people"),
    ):
        if kept[column].nunique() > 1:
            cells = {
                tables.title(representation): part.groupby(column)[score].agg(["mean", "std"]).reset_index()
                for representation, part in kept.groupby("representation", sort=False)
            }
            curves = {representation: with_band(part) for representation, part in cells.items()}
            drawn.append((title, label, horizontal, curves))
    if drawn:
        yield tables.panel(
            f"{kind}_curves",
            draw_curves(drawn, chance, doubling=True),
            len(drawn) > 1,
            target=name,
            label=label,
            said=sentence,
            axes=" and ".join(horizontal for _, _, horizontal, _ in drawn),
        )
    if len(gains):
        yield _gains(name, gains, label, kind, tables)


def _gains(name: str, gains: pd.DataFrame, label: str, kind: str, tables: GroupTables) -> Panel:
    gains = gains.fillna({"minutes": UNKNOWN})
    pairs = list(gains.groupby(["representation", "reference"], sort=False))
    people, minutes = (sorted(gains[column].unique()) for column in ("n_people", "minutes"))
    matrices, said = {}, []
    for (later, earlier), part in sorted(pairs, key=lambda pair: pair[0][1] != "fc")[:MOST_PAIRS]:
        title = f"{tables.title(later)} − {tables.title(earlier)}"
        clear = (part["ci_low"] > 0) | (part["ci_high"] < 0)
        if "p_two_sided" in part:
            clear = part["p_two_sided"] < SIGNIFICANT
        place = part["minutes"].map(minutes.index), part["n_people"].map(people.index)
        values, marked = np.full((len(minutes), len(people)), np.nan), np.zeros((len(minutes), len(people)), dtype=bool)
        values[place], marked[place] = part["mean_difference"], clear
        matrices[title], known = (values, marked), values[np.isfinite(values)]
        said.append(
            f"{title}: from {known.min():+.3f} to {known.max():+.3f}, positive in {int((known > 0).sum())} of "
            f"{count(known.size, 'cell')}, distinguishable from 0 in {int(marked.sum())}"
            if known.size
            else f"{title}: not defined"
        )
    unknown = any(np.isnan(values).any() for values, _ in matrices.values())
    lengths = ["whole scan" if length == UNKNOWN else f"{length:.3g}" for length in minutes]
    return tables.panel(
        f"{kind}_gains",
        draw_gains(matrices, lengths, [f"{n:.0f}" for n in people]),
        len(matrices) > 1,
        target=name,
        label=label,
        grey="Grey: not known. " if unknown else "",
        said=". ".join(said),
    )


# The exponent

OPTIMISM = (
    "The curves of the prediction score the test people, so the best point of a curve is optimistic; the exponent "
    "of a fold is chosen without its test people."
)
CRITERIA = {"prediction": "prediction: score in the test people", "alignment": "alignment with the target"}


def exponent_chapter(tables: GroupTables) -> Iterator[Section]:
    """Curves of both criteria against the exponent as far as they were computed, and what the folds chose."""
    curve = tables.rows("alpha")
    if curve.empty:
        return
    optimum, facts = tables.rows("alpha_optimum"), tables.facts("alpha")
    targets = targets_of(curve)[:MOST_EXPONENTS]
    chosen = tuple(said for target in targets for said in _chosen(target, own_rows(optimum, target)))
    said = [*chosen, *([OPTIMISM] if (curve["criterion"] == "prediction").any() else [])]
    said += [str(facts["Rule"])] if "Rule" in facts else []
    panels = tuple(_exponent_panel(target, own_rows(curve, target), tables) for target in targets)
    yield Section("exponent", "The exponent", tuple(said), panels, answers=chosen)


def _chosen(target: str, optimum: pd.DataFrame) -> Iterator[str]:
    """One sentence per criterion."""
    for criterion, own in optimum.groupby("criterion", sort=False) if len(optimum) else ():
        alphas = own["alpha"].dropna().to_numpy(dtype=float)
        if not alphas.size:
            yield f"{target} ({criterion}): no fold could choose an exponent."
            continue
        low, middle, high = np.quantile(alphas, [0.25, 0.5, 0.75])
        bound, gain = (own["at_bound"].astype(str) == "true").mean(), (own["score"] - own["score_at_star"]).mean()
        at_bound = (
            f", {percent(bound)} of them at an end of the search, so the optimum may lie outside" if bound else ""
        )
        yield (
            f"{target} ({criterion}): the folds choose α = {middle:.2f} (median; quartiles {low:.2f} to {high:.2f})"
            f"{at_bound}; its score in the table is {gain:+.3f} relative to α = {ALPHA_STAR:g} (mean)."
        )


def _exponent_panel(target: str, curve: pd.DataFrame, tables: GroupTables) -> Panel:
    curves, panels = {}, []
    for criterion, part in curve.groupby("criterion", sort=False):
        title, scores = CRITERIA.get(str(criterion), str(criterion)), part.groupby("alpha")["score"]
        ends = (scores.mean(), scores.quantile(0.25), scores.quantile(0.75))
        curves[title] = np.column_stack([ends[0].index.to_numpy(dtype=float), *ends])
        unit = "score" if criterion == "prediction" else "alignment"
        panels.append((title, unit, "exponent α", {title: curves[title]}))
    said = "; ".join(
        f"{title}: highest mean at α = {values[np.nanargmax(values[:, 1]), 0]:g}" for title, values in curves.items()
    )
    svg = draw_curves(panels, mark=ALPHA_STAR)
    return tables.panel("alpha", svg, len(curves) > 1, target=target, star=f"{ALPHA_STAR:g}", said=said)


# The spectrum


def spectrum_chapter(tables: GroupTables) -> Iterator[Section]:
    """Say how even the spectra become, and draw their path from the identity to FC."""
    path = tables.rows("spectrum_path")
    if path.empty:
        return
    panels = (*_spectra(tables), *_matrices(tables), _path(path, tables), *_sphere(tables))
    said = tuple(_say_spectrum(path, tables))
    yield Section("spectrum", "The spectrum", said, panels, answers=said[:1])


def _say_spectrum(path: pd.DataFrame, tables: GroupTables) -> Iterator[str]:
    facts, power = tables.facts("spectrum_path"), tables.title("fc_power")
    means: dict[str, Any] = facts.get("Means", {})
    if {"participation_ratio", "participation_ratio_power"} <= set(means):
        yield (
            f"Over {count_people(path['participant_id'].nunique())} the effective number of eigenvectors "
            f"(participation ratio) goes from {means['participation_ratio']:.1f} for FC to "
            f"{means['participation_ratio_power']:.1f} for {power} (mean; all scans of a person together)."
        )
    if {"first_to_twentieth", "first_to_twentieth_power"} <= set(means):
        yield (
            f"The first eigenvalue is {means['first_to_twentieth']:.1f} times the twentieth in FC and "
            f"{means['first_to_twentieth_power']:.1f} times in {power}."
        )
    if clipped := int(facts.get("RankDeficient", 0)):
        yield (
            f"{count_people(clipped)} {'has' if clipped == 1 else 'have'} connectomes of incomplete rank "
            "(fewer independent volumes than parcels): eigenvalues that are zero to rounding stay zero."
        )
    yield "This describes the connectomes; it does not say whether they predict anything."


def _spectra(tables: GroupTables) -> Iterator[Panel]:
    """Histograms of the eigenvalues and their mean by rank, FC and FC^alpha in the colours that they have elsewhere."""
    histogram, ranks = tables.rows("spectrum_histogram"), tables.rows("spectrum_ranks")
    if histogram.empty or ranks.empty:
        return
    shares, means = dict[str, np.ndarray](), dict[str, np.ndarray]()
    for alpha in dict.fromkeys((1.0, tables.alpha, *DRAWN_EXPONENTS)):
        name, part = f"α = {alpha:g}", histogram[histogram["alpha"] == alpha]
        if len(part):
            bins = part.assign(middle=(part["low"] + part["high"]) / 2).groupby(np.arange(len(part)) // BINS_TOGETHER)
            columns = bins.agg({"middle": "mean", "share": "sum"}).to_numpy(dtype=float)
            known = np.flatnonzero(columns[:, 1])
            shares[name] = columns[known[0] : known[-1] + 1] * [1, 100]
        part = ranks[(ranks["alpha"] == alpha) & (ranks["mean"] > 0)]
        if len(part):
            means[name] = part[["rank", "mean"]].assign(mean=np.log10(part["mean"])).to_numpy(dtype=float)
    place = "log₁₀ of the eigenvalue"
    panels = [
        ("Where the eigenvalues lie", "eigenvalues (%)", place, shares),
        ("Mean eigenvalue by rank", place, "rank", means),
    ]
    yield tables.panel("spectra", draw_curves(panels, 0.0), drawn=", ".join(name[4:] for name in shares))


def _matrices(tables: GroupTables) -> Iterator[Panel]:
    table = tables.rows("spectrum_matrices")
    if table.empty:
        return
    matrices = {
        float(str(alpha)): from_triangle(part["value"].to_numpy(dtype=float)) for alpha, part in table.groupby("alpha")
    }
    person = str(tables.facts("spectrum_matrices").get("Person", "one person"))
    exponents = ", ".join(f"{alpha:g}" for alpha in matrices)
    # one scale, which the first and the last do not set
    beside = np.abs(np.concatenate([matrix[np.triu_indices(len(matrix), 1)] for matrix in matrices.values()][1:-1]))
    titled = {f"α = {alpha:g}{' (FC)' if alpha == 1 else ''}": matrix for alpha, matrix in matrices.items()}
    svg = draw_matrices(titled, (), max(float(np.percentile(beside, 95)), 1e-6), columns=len(titled))
    yield tables.panel("spectrum_matrices", svg, person=person, exponents=exponents)


def from_triangle(values: np.ndarray) -> np.ndarray:
    """Return the symmetric matrix (P, P) of its upper triangle, row by row, with the diagonal."""
    size = int((np.sqrt(8 * len(values) + 1) - 1) / 2)
    matrix = np.empty((size, size))
    first, second = np.triu_indices(size)
    matrix[first, second] = matrix[second, first] = values
    return matrix


def _path(path: pd.DataFrame, tables: GroupTables) -> Panel:
    distances = ["from_identity", "to_fc"]
    known = path.groupby("participant_id")[distances].transform("count").eq(path["alpha"].nunique()).all(axis=1)

    def mean(column: str, rows: pd.DataFrame = path) -> np.ndarray:
        return with_band(rows.groupby("alpha")[column].agg(["mean", "std"]).reset_index())

    horizontal, ratio = "exponent α (1 is FC)", mean("participation_ratio")
    heat = "Heat trace" if known.any() else "Heat trace (distances need full rank)"
    panels = [
        ("Effective number of eigenvectors", "participation ratio", horizontal, {"mean over people": ratio}),
        (heat, "Z(α)", horizontal, {"mean over people": mean("heat_trace")}),
    ]
    if known.any():
        names = zip(("from the identity", "to FC"), distances, strict=True)
        away = {name: mean(column, path[known]) for name, column in names}
        panels.append(("Distance", "log-Euclidean distance", horizontal, away))
    said = f"participation ratio {ratio[-1, 1]:.1f} at α = {ratio[-1, 0]:g}, {ratio[0, 1]:.1f} at α = {ratio[0, 0]:g}"
    svg = draw_curves(panels, mark=tables.alpha)
    return tables.panel("spectrum_path", svg, alpha=f"{tables.alpha:g}", said=said)


def _sphere(tables: GroupTables) -> Iterator[Panel]:
    sphere = tables.rows("spectrum_sphere")
    if sphere.empty or not (sphere["radius"] > 0).all():
        return
    modes = {}
    for alpha, part in sphere.groupby("alpha", sort=False):
        title = "FC" if alpha == 1 else tables.title("fc_power")
        modes[title] = (part[["x", "y"]].to_numpy(dtype=float), float(part["radius"].iloc[0]))
    said = "; ".join(
        f"{title}: {int((np.linalg.norm(places, axis=1) > radius).sum())}" for title, (places, radius) in modes.items()
    )
    yield tables.panel("spectrum_sphere", draw_sphere(modes), said=said, modes=" and ".join(modes))
