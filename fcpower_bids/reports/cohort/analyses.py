"""What the further analyses say on the page of a cohort: rules in words, and drawings of rows and of curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.evaluate import FOLD_MEAN
from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Chapter,
    GroupTables,
    missing,
    own_rows,
    percent,
    score_label,
    square,
    targets_of,
)
from fcpower_bids.reports.figures import draw_matrices
from fcpower_bids.reports.page import Panel, count
from fcpower_bids.reports.svg import Curves, draw_curves

MOST_TARGETS, BESIDE = 6, 3
"""Targets of an analysis that are drawn, and how many of them side by side in one picture; all are in the tables."""
SAME = "not distinguishable"
RANDOM = "random_filter"
IN_WORDS = {
    "n_people": "people",
    "minutes": "minutes of each scan",
    "number": "leading eigenvectors of each person",
    "alpha": "exponent α",
    "fold_mean": "mean score of the folds",
    "accuracy": "share found",
    "auc": "AUC",
}
"""Columns along which curves go, and whose means they are."""


def with_band(cells: pd.DataFrame) -> np.ndarray:
    """Return x, mean and the ends of a band of one standard deviation from columns x, mean and deviation."""
    x, mean, deviation = cells.to_numpy(dtype=float).T
    return np.column_stack([x, mean, mean - deviation, mean + deviation])


# Many entries against one: transforms, controls, encoders, parcellations


def judge(row: Mapping[Any, Any]) -> str:
    """Say in a word whether a difference is one."""
    if not row["p_holm"] < SIGNIFICANT or row["mean_difference"] == 0:
        return SAME
    return "better" if row["mean_difference"] > 0 else "worse"


def _tally(rows: pd.DataFrame) -> str:
    """``none is better, 2 are worse, 11 are not distinguishable``."""
    words = [judge(row) for row in rows.to_dict("records")]
    counted = [(words.count(word), word) for word in ("better", "worse", SAME)]
    return ", ".join(f"{number or 'none'} {'is' if number < 2 else 'are'} {word}" for number, word in counted)


def _compared(name: str, noun: str, tables: GroupTables) -> Iterator[str]:
    """Say of every target how many entries differ from FC^alpha."""
    frame, reference = tables.rows(name), tables.title("fc_power")
    frame = frame[frame["control"] != RANDOM] if "control" in frame else frame
    for target in targets_of(frame):
        tested = own_rows(frame, target).dropna(subset=["mean_difference"])
        tested = tested[tested["representation"] != tested["reference"]]
        sentence = f"of {count(len(tested), noun)} compared with {reference}, {_tally(tested)}"
        yield f"{target}: {sentence if len(tested) else f'no {noun} could be compared with {reference}'}."


def _batches(frame: pd.DataFrame) -> Iterator[list[str]]:
    """The first targets, three at a time."""
    targets = targets_of(frame)[:MOST_TARGETS]
    yield from (targets[start : start + BESIDE] for start in range(0, len(targets), BESIDE))


def _scored(name: str, tables: GroupTables) -> pd.DataFrame:
    frame = tables.rows(name)
    return frame[frame["status"] == "scored"]


def _refused(name: str, tables: GroupTables) -> pd.DataFrame:
    """Each transform or control that was refused, once."""
    frame = tables.rows(name)
    return frame[frame["status"] != "scored"].drop_duplicates("representation")


def _draw_controls(tables: GroupTables) -> Iterator[Panel]:
    """Score against the number of leading eigenvectors, raw and flattened."""
    controls = _scored("spectral_controls", tables)
    leading = controls[controls["control"].isin(("top_modes", "whole"))].sort_values("number", kind="stable")
    if (leading["control"] == "top_modes").any():
        words = {"raw": "raw eigenvalues", "power": f"flattened eigenvalues (λ^{tables.alpha:g})"}
        leading = leading.assign(weighting=leading["weighting"].map(words))
        yield from _draw_lines("leading", leading, "number", "fold_mean", tables, by="weighting", doubling=True)


def _say_encoders(tables: GroupTables) -> Iterator[str]:
    """Say which representation has the highest score of a target, and from which others it cannot be told apart."""
    scores, pairs = tables.rows("encoders"), tables.rows("encoder_comparisons")
    for target in targets_of(scores):
        of_target = own_rows(scores, target)
        within = "SitesHeldOut" in tables.facts("encoders") and of_target[FOLD_MEAN].notna().any()
        ranked_by = FOLD_MEAN if within else "pooled"  # no model can know the level of a site that is held out
        best = of_target.sort_values(ranked_by, ascending=False, kind="stable").iloc[0]
        name, others = str(best["representation"]), own_rows(pairs, target)
        tested = others[others["p_holm"].notna()] if len(others) else others
        same = [
            tables.title(row["reference"] if str(row["representation"]) == name else row["representation"])
            for row in tested.to_dict("records")
            if name in (row["representation"], row["reference"]) and judge(row) == SAME
        ]
        sentence = f"not distinguishable from {', '.join(same)}" if same else "it differs from all others"
        sentence = f"{sentence} (Holm's correction over the pairs)" if len(tested) else "not compared"
        sentence = "no score is defined" if missing(best[ranked_by]) else sentence
        highest = f"the highest {score_label(best['score'])} is that of {tables.title(name)} ({best[ranked_by]:.3f})"
        highest += " within sites that are held out" * bool(within)
        yield f"{target}: {highest}; {sentence}."


def _gains_of_power(tables: GroupTables) -> pd.DataFrame:
    gains = tables.rows("parcellation_gains")
    if gains.empty:
        return gains
    return gains[(gains["representation"] == "fc_power") & (gains["reference"] == "fc")]


def _say_sweep(tables: GroupTables) -> Iterator[str]:
    shared, pair = _gains_of_power(tables), f"{tables.title('fc_power')} against {tables.title('fc')}"
    for target in targets_of(shared):
        rows = own_rows(shared, target)
        atlases = count(len(rows), "parcellation")
        yield f"{target}: {pair} under {atlases}: {_tally(rows)} (p not corrected for their number)."


def _mean_of_sweep(tables: GroupTables) -> pd.DataFrame:
    keys = ["target", "atlas", "n_parcels", "n_people", "representation"]
    rows = tables.rows("parcellation_sweep")
    return rows.groupby(keys, sort=False, dropna=False)[["r", "auc"]].mean().reset_index() if len(rows) else rows


# Curves


def _lines(rows: pd.DataFrame, x: str, y: str, by: str, tables: GroupTables) -> Curves:
    """Mean and standard deviation along a column, of each representation or whatever else there is a curve of."""
    parts = rows.groupby(by, sort=False)
    means = {tables.title(name): part.groupby(x)[y].agg(["mean", "std"]).reset_index() for name, part in parts}
    return {name: with_band(part) for name, part in means.items() if part["mean"].notna().any()}


def _ends(lines: Curves) -> str:
    """The first and the last value of each curve."""
    ends = {name: line[[0, -1][: len(line)]] for name, line in lines.items()}
    return "; ".join(
        f"{name} " + ", ".join(f"{point[1]:.3f} at {point[0]:g}" for point in both) for name, both in ends.items()
    )


def _draw_lines(
    name: str, rows: pd.DataFrame, x: str, y: str, tables: GroupTables, by: str = "representation", **look: Any
) -> Iterator[Panel]:
    """Draw means with one standard deviation along a column, a panel for each target, three a picture."""
    for batch in _batches(rows):
        lines = {target: _lines(own_rows(rows, target), x, y, by, tables) for target in batch}
        panels = [(target, IN_WORDS.get(y, y), IN_WORDS[x], curves) for target, curves in lines.items()]
        sentence = ". ".join(f"{target}: {_ends(curves)}" for target, curves in lines.items())
        yield tables.panel(name, draw_curves(panels, **look), sentence=sentence)


def _learned(tables: GroupTables) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Figure, column of the score and curves of targets with one kind of score, then of identification."""
    curves, scans = tables.rows("learning_curves"), tables.rows("identification_curves")
    if len(curves):
        of_two = curves.groupby("target")["auc"].transform("count") > 0
        for score, part in (("r", curves[~of_two]), ("auc", curves[of_two])):
            if len(part):
                yield "learning_curves", score, part
    if len(scans):
        yield "identification_curves", "accuracy", scans.assign(target="Identification")


def _say_curves(tables: GroupTables) -> Iterator[str]:
    """Say the score with the fewest and with the most people."""
    for _, score, rows in _learned(tables):
        for target in targets_of(rows)[:MOST_TARGETS]:
            full = own_rows(rows[rows["part"] == "full"], target)
            sentence = _ends(_lines(full, "n_people", score, "representation", tables)) or "not defined"
            yield f"{target}, mean {score_label(score)} by the number of people: {sentence}."


def _draw_learning(tables: GroupTables) -> Iterator[Panel]:
    """Curves over people and over minutes; what is gained in every cell is in the tables."""
    for name, score, rows in _learned(tables):
        chance = {"auc": 0.5, "r": 0.0}.get(score, np.nan)
        whole = rows[rows["n_people"] == rows.groupby("target")["n_people"].transform("max")]
        for column, part in (("n_people", rows[rows["part"] == "full"]), ("minutes", whole)):
            if part[column].nunique() > 1:
                yield from _draw_lines(name, part, column, score, tables, origin=chance, doubling=True)


def _notes_of_curves(tables: GroupTables) -> Iterator[str]:
    name = "learning_curves" if tables.facts("learning_curves") else "identification_curves"
    yield from _facts(tables, name, "LeftOut")
    yield from map(str, tables.facts(name).get("Notes", []))


# The exponent


def _say_exponent(tables: GroupTables) -> Iterator[str]:
    """What the folds chose by each criterion."""
    optimum = tables.rows("alpha_optimum")
    for (target, criterion), rows in optimum.groupby(["target", "criterion"], sort=False) if len(optimum) else ():
        alphas = rows["alpha"].dropna().to_numpy(dtype=float)
        if not alphas.size:
            yield f"{target} ({criterion}): no fold could choose an exponent."
            continue
        low, middle, high = np.quantile(alphas, [0.25, 0.5, 0.75])
        bound, gain = (rows["at_bound"].astype(str) == "true").mean(), (rows["score"] - rows["score_at_star"]).mean()
        ends = f", {percent(bound)} of them at an end of the search, so the optimum may lie outside" if bound else ""
        yield (
            f"{target} ({criterion}): the folds choose α = {middle:.2f} (median; quartiles {low:.2f} to {high:.2f})"
            f"{ends}; its score is {'not defined' if missing(gain) else f'{gain:+.3f}'} relative to α = {ALPHA_STAR:g}."
        )


def _limits_of_exponent(tables: GroupTables) -> Iterator[str]:
    if (tables.rows("alpha")["criterion"] == "prediction").any():
        yield (
            "The curves of the prediction score the test people, so the best point of a curve is optimistic; the "
            "exponent of a fold is chosen without its test people."
        )
    yield from _facts(tables, "alpha", "Rule")


def _facts(tables: GroupTables, name: str, *keys: str) -> Iterator[str]:
    """What the sidecar of a table says."""
    yield from (str(tables.facts(name)[key]) for key in keys if key in tables.facts(name))


def _draw_exponent(tables: GroupTables) -> Iterator[Panel]:
    for _, part in tables.rows("alpha").groupby("criterion", sort=False):
        yield from _draw_lines("alpha", part, "alpha", "score", tables, "criterion", mark=ALPHA_STAR)


# The spectrum


def _say_spectrum(tables: GroupTables) -> Iterator[str]:
    means, power = tables.facts("spectrum_path").get("Means", {}), tables.title("fc_power")
    people = count(tables.rows("spectrum_path")["participant_id"].nunique(), "person")
    if {"participation_ratio", "participation_ratio_power"} <= set(means):
        yield (
            f"Over {people} the effective number of eigenvectors (participation ratio) goes from "
            f"{means['participation_ratio']:.1f} for FC to {means['participation_ratio_power']:.1f} for {power} "
            "(mean; all scans of a person together)."
        )


def _more_of_spectrum(tables: GroupTables) -> Iterator[str]:
    if clipped := int(tables.facts("spectrum_path").get("RankDeficient", 0)):
        yield (
            f"Connectomes of incomplete rank (fewer independent volumes than parcels): {count(clipped, 'person')}; "
            "eigenvalues that are zero to rounding stay zero."
        )
    yield "This describes the connectomes; it does not say whether they predict anything."


def _draw_spectrum(tables: GroupTables) -> Iterator[Panel]:
    """Eigenvalues at several exponents, one connectome at each, and the path from the identity."""
    ranks, values = tables.rows("spectrum_ranks"), tables.rows("spectrum_matrices")
    if len(ranks):
        ranks = ranks[ranks["mean"] > 0].assign(mean=lambda rows: np.log10(rows["mean"]))
        shown = [alpha for alpha in dict.fromkeys((1.0, tables.alpha, 0.6, 0.1)) if (ranks["alpha"] == alpha).any()]
        curves = {f"α = {a:g}": ranks.loc[ranks["alpha"] == a, ["rank", "mean"]].to_numpy(float) for a in shown}
        svg = draw_curves([("", "log₁₀ of the eigenvalue", "rank", curves)])
        yield tables.panel("spectra", svg, drawn=", ".join(f"{alpha:g}" for alpha in shown))
    if len(values):
        matrices = {
            f"α = {alpha:g}{' (FC)' if alpha == 1 else ''}": square(part, "parcel", "other", "value")[1]
            for alpha, part in values.groupby("alpha")
        }
        person = str(tables.facts("spectrum_matrices").get("Person", "one person"))
        svg = draw_matrices(matrices, ())
        exponents = ", ".join(f"{alpha:g}" for alpha in sorted(set(values["alpha"])))
        yield tables.panel("spectrum_matrices", svg, person=person, exponents=exponents)
    yield _draw_path(tables)


def _draw_path(tables: GroupTables) -> Panel:
    path = tables.rows("spectrum_path")
    distances = ["from_identity", "to_fc"]  # which people of incomplete rank do not have
    known = path.groupby("participant_id")[distances].transform("count").eq(path["alpha"].nunique()).all(axis=1)
    panels = []
    for title, label, columns, rows in (
        ("Effective number of eigenvectors", "participation ratio", ["participation_ratio"], path),
        ("Heat trace", "Z(α)", ["heat_trace"], path),
        ("Distance (full rank)", "log-Euclidean distance", distances, path[known]),
    ):
        means = {name: with_band(rows.groupby("alpha")[name].agg(["mean", "std"]).reset_index()) for name in columns}
        panels += [(title, label, "exponent α (1 is FC)", means)] if len(rows) else []
    first, *_, last = panels[0][-1]["participation_ratio"]
    sentence = f"participation ratio {last[1]:.1f} at α = {last[0]:g}, {first[1]:.1f} at α = {first[0]:g}"
    svg = draw_curves(panels, mark=tables.alpha)
    return tables.panel("spectrum_path", svg, alpha=f"{tables.alpha:g}", sentence=sentence)


CHAPTERS = {
    "exponent": Chapter("The exponent", "alpha", (), _say_exponent, _limits_of_exponent, _draw_exponent),
    "screen": Chapter(
        "Transforms of the connectome",
        "transform_screen",
        (
            ("transform_screen", lambda tables: _scored("transform_screen", tables)),
            ("refused_transforms", lambda tables: _refused("transform_screen", tables)),
        ),
        lambda tables: _compared("transform_screen", "transform", tables),
    ),
    "controls": Chapter(
        "Where the gain comes from",
        "spectral_controls",
        (
            ("controls", lambda tables: _scored("spectral_controls", tables)),
            ("refused_controls", lambda tables: _refused("spectral_controls", tables)),
            "spectral_matched",
        ),
        lambda tables: _compared("spectral_controls", "control", tables),
        draw=_draw_controls,
    ),
    "curves": Chapter(
        "More people, longer scans",
        "learning_curves identification_curves",
        ("learning_gains", "identification_gains"),
        _say_curves,
        _notes_of_curves,
        _draw_learning,
    ),
    "sweep": Chapter(
        "Parcellations",
        "parcellation_sweep",
        (("parcellation_sweep", _mean_of_sweep), "parcellation_gains", "parcellation_comparisons"),
        _say_sweep,
    ),
    "encoders": Chapter(
        "Comparison of encoders",
        "encoders",
        ("encoders", "encoder_pairs"),
        _say_encoders,
        lambda tables: _facts(tables, "encoders", "Probe"),
    ),
    "spectrum": Chapter("The spectrum", "spectrum_path", (), _say_spectrum, _more_of_spectrum, _draw_spectrum),
}
"""The chapters of these analyses by their anchors, in the order of the page."""
