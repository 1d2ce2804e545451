"""The chapters of the page of a cohort: each has a title, its tables, a rule that says what they say, and drawings."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.evaluate import FOLD_MEAN
from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.reports.cohort.findings import (
    SAME,
    describe_identification,
    find_targets,
    judge,
    say_compared,
    tally,
)
from fcpower_bids.reports.cohort.methods import counted_kinds, read_choices
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Chapter,
    GroupTables,
    Section,
    by_representation,
    missing,
    own_rows,
    percent,
    score_label,
    square,
    targets_of,
)
from fcpower_bids.reports.figures import draw_matrices
from fcpower_bids.reports.page import Grid, Panel, count, listed
from fcpower_bids.reports.svg import Curves, draw_curves, short

MOST_DRAWN, MOST_SCATTERS = 12, 4
MOST_TARGETS, BESIDE = 6, 3
"""Targets of an analysis that are drawn as curves, and how many of them side by side; all are in the tables."""
NOTE = "note"
ANSWERS = SINGLE, NETWORK = "Single connections", "No single connection, but a network of them,"
"""How the sentences begin that say that connections were found."""
IN_WORDS = {
    "n_people": "people",
    "minutes": "minutes of each scan",
    "alpha": "exponent α",
    "accuracy": "share found",
    "auc": "AUC",
}
"""Columns along which curves go, and whose means they are."""


def make_chapter(anchor: str, tables: GroupTables) -> Iterator[Section]:
    """Yield the section of a chapter, if one of its tables has rows; of a check without findings, too."""
    chapter = CHAPTERS[anchor]
    if not any(len(tables.rows(name)) or (name == "check" and tables.has(name)) for name in chapter.needed.split()):
        return
    answers, grids = tuple(chapter.answer(tables)), list[Grid]()
    for grid in chapter.grids:
        grids += tables.grid(grid) if isinstance(grid, str) else tables.grid(grid[0], grid[1](tables))
    sentences = (*answers, *chapter.more(tables))
    yield Section(anchor, chapter.title, sentences, tuple(chapter.draw(tables)), tuple(grids), answers)


def _facts(name: str, key: str, tables: GroupTables) -> Iterator[str]:
    """What the sidecar of a table says under a key, where there may be several sentences."""
    if said := tables.facts(name).get(key):
        yield from map(str, said if isinstance(said, list) else [said])


# Who took part, and motion


def _say_check(tables: GroupTables) -> Iterator[str]:
    rows = tables.rows("check")
    serious = int((rows["level"] != NOTE).sum())
    said = f"{count(serious, 'thing')} to look at, {count(len(rows) - serious, 'note')}."
    yield said if serious else "Nothing was found that would mislead."


def say_left_out(tables: GroupTables) -> str:
    """``1 recording, 2 values``; nothing where none was left out."""
    kinds, counted = tables.rows("excluded")["what"].astype(str).value_counts(), counted_kinds(read_choices(tables))
    return ", ".join(count(int(n), str(kind)) for kind, n in kinds.items() if kind in counted)


def _describe_cohort(tables: GroupTables) -> Iterator[str]:
    """Who is left out, and notes."""
    left_out = say_left_out(tables)
    yield f"Left out: {left_out}." if left_out else "No person and no recording was left out at group level."
    notes = (_facts(name, "CohortNotes", tables) for name in ("scans", "prediction"))
    yield from dict.fromkeys(note for of_table in notes for note in of_table)


def _say_motion(tables: GroupTables) -> Iterator[str]:
    summary = tables.rows("qcfc_summary")
    shares = zip(map(tables.title, summary["representation"]), summary["share_significant"], strict=True)
    texts = ", ".join(f"{name} {percent(share, 1)}" for name, share in shares)
    yield f"Edges that go with motion (q < {SIGNIFICANT:g}): {texts}."


def _draw_motion(tables: GroupTables) -> Iterator[Panel]:
    """Draw how many edges go with mean FD how much; the tables have what chance gives, and what distance does."""
    edges = tables.rows("qcfc")
    if len(edges):
        edges = edges.dropna(subset="r")
        bins = np.linspace(-1, 1, 41) * max(0.1, float(edges["r"].abs().max()))
        shares = {
            tables.title(name): np.column_stack([(bins[1:] + bins[:-1]) / 2, 100 * np.histogram(r, bins)[0] / len(r)])
            for name, r in edges.groupby("representation", sort=False)["r"]
        }
        svg = draw_curves([("", "edges (%)", "correlation with mean FD", shares)], 0.0)
        yield tables.panel("motion", svg, sentence=" ".join(_say_motion(tables)))


# Prediction


def _limits_of_prediction(tables: GroupTables) -> Iterator[str]:
    """What the folds and ComBat leave open."""
    facts = tables.facts("prediction")
    if not facts.get("FamilyColumn"):
        yield (
            "Relatives were not declared (--family-column); relatives on both sides of a split would raise the scores."
        )
    if pairs := facts.get("AcceptedPairs"):
        named = ", ".join(" and ".join(pair) for pair in pairs)
        yield f"Accepted by name though they look like one scan, and not kept together by the folds: {named}."
    yield from (f"Permutations: {said}" for said in _facts("prediction", "Permutations", tables))
    if left := facts.get("Harmonisation", {}).get("PeopleTestedUnadjusted"):
        yield f"Tested without ComBat, from sites too small or unseen in training: {count(len(left), 'person')}."


def _summary(tables: GroupTables) -> pd.DataFrame:
    """The rows of ``prediction_summary``, those of a target together."""
    summary = tables.rows("prediction_summary")
    return pd.concat([own_rows(summary, target) for target in targets_of(summary)])


def _draw_predictions(tables: GroupTables) -> Iterator[Panel]:
    """Draw the targets with the lowest p."""
    for finding in sorted(find_targets(tables), key=lambda finding: np.nan_to_num(finding.p, nan=np.inf))[:MOST_DRAWN]:
        yield from _scatter(finding.target, tables)
        yield from _networks(finding.target, tables)


def _scatter(target: str, tables: GroupTables) -> Iterator[Panel]:
    """Draw the out-of-fold predictions of everyone, means over repeats, against what was observed."""
    facts, people = tables.facts("prediction"), tables.rows("predictions")
    people = tables.rows("prediction_means") if people.empty else people
    residual = bool(facts.get("Preset", {}).get("covariates"))
    positive = facts.get("PositiveClasses", {}).get(target)
    label = f"observed {short(target)}" + (", residual" if residual else f" (1: {positive})" if positive else "")
    panels, sentences = [], []
    for name, part in list(by_representation(people, target).items())[:MOST_SCATTERS]:
        means = part.groupby("participant_id")[["observed", "predicted"]].mean().dropna()
        if len(means) > 2:
            title, r = tables.title(name), means.corr().iloc[0, 1]
            panels.append((title, "predicted, out of fold", label, {title: means.to_numpy(dtype=float)}))
            sentences.append(f"{title} {'r n/a' if missing(r) else f'r = {r:.2f}'}, n = {len(means)}")
    if panels:
        without = " Observed is the residual of the covariates, fitted to the training people of each fold."
        words = {"sentence": "; ".join(sentences), "without": without if residual else "", "target": target}
        yield tables.panel("scatter", draw_curves(panels, points=True), **words)


def _networks(target: str, tables: GroupTables) -> Iterator[Panel]:
    """Draw what the networks contribute, of representations that predict the target better than chance."""
    summary = own_rows(tables.rows("prediction_summary"), target)
    significant = set(summary.loc[summary["p_max_targets"] < SIGNIFICANT, "representation"])
    for name, part in by_representation(tables.rows("importance_networks"), target).items():
        if name in significant:
            names, values = square(part, "network_a", "network_b", "importance")
            title = tables.title(name)
            svg = draw_matrices({title: values}, [(label, i, i + 1) for i, label in enumerate(names)])
            yield tables.panel("importance_networks", svg, name_of=title, n=len(names), target=target)


# Connections


def _say_edges(tables: GroupTables) -> Iterator[str]:
    """One sentence per answer, with the targets that have it."""
    names: dict[str, list[str]] = {}
    for target, part in tables.rows("edges_summary").groupby("target", sort=False):
        names.setdefault(_answer_edges(part), []).append(str(target))
    for answer, targets in names.items():
        yield answer.format(listed(targets, 6))


def _limits_of_edges(tables: GroupTables) -> Iterator[str]:
    n = tables.rows("edges_summary")["target"].nunique()
    if n > 1 and any(sentence.startswith(ANSWERS) for sentence in _say_edges(tables)):
        yield f"The p of connections are not corrected for the number of targets ({n})."
    yield from _facts("edges_summary", "LeftOut", tables)


def _answer_edges(part: pd.DataFrame) -> str:
    """By the smallest p corrected for all edges and representations; that of networks by Bonferroni for the latter."""
    if (part["n_permutations"] == 0).all():
        return "Whether any connection goes with {} was not tested: no permutations were run (--permutations)."
    if part["smallest_p"].min() >= SIGNIFICANT:
        return "For {} the permutations are too few, or the blocks too small, to decide."
    if part["p_max"].min() < SIGNIFICANT:
        return f"{SINGLE} go with {{}}."
    if len(part) * part["p_component"].min() < SIGNIFICANT:
        return f"{NETWORK} goes with {{}}."
    return "For {} no connection was found."


# Many entries against one: transforms, controls, encoders, parcellations


def _say_encoders(tables: GroupTables) -> Iterator[str]:
    """Say which representation has the highest score of a target, and from which others it cannot be told apart."""
    scores, pairs = tables.rows("encoders"), tables.rows("encoder_comparisons")
    for target in targets_of(scores):
        of_target, others = own_rows(scores, target), own_rows(pairs, target)
        within = "SitesHeldOut" in tables.facts("encoders") and of_target[FOLD_MEAN].notna().any()
        ranked_by = FOLD_MEAN if within else "pooled"  # no model can know the level of a site that is held out
        best = of_target.sort_values(ranked_by, ascending=False, kind="stable").iloc[0]
        name = str(best["representation"])
        if missing(best[ranked_by]):
            yield f"{target}: no score is defined."
            continue
        tested = others.dropna(subset="p_holm")
        of_best = tested[tested[["representation", "reference"]].eq(name).any(axis=1)].to_dict("records")
        alike = [(row["representation"], row["reference"]) for row in of_best if judge(row) == SAME]
        same = [tables.title(other) for pair in alike for other in pair if other != name]
        sentence = f"not distinguishable from {listed(same, 3)}" if same else "it differs from all others"
        sentence = f"{sentence} (Holm's correction over the pairs)" if len(tested) else "not compared"
        highest = f"the highest {score_label(best['score'])} is that of {tables.title(name)} ({best[ranked_by]:.3f})"
        yield f"{target}: {highest}{' within sites that are held out' * bool(within)}; {sentence}."


def _say_sweep(tables: GroupTables) -> Iterator[str]:
    gains, pair = tables.rows("parcellation_gains"), f"{tables.title('fc_power')} against {tables.title('fc')}"
    shared = gains[(gains["representation"] == "fc_power") & (gains["reference"] == "fc")]
    for target in targets_of(shared):
        rows = own_rows(shared, target)
        atlases = count(len(rows), "parcellation")
        yield f"{target}: {pair} under {atlases}: {tally(rows)} (p not corrected for their number)."


def _mean_of_sweep(tables: GroupTables) -> pd.DataFrame:
    keys = ["target", "atlas", "n_parcels", "n_people", "representation"]
    return tables.rows("parcellation_sweep").groupby(keys, sort=False, dropna=False)[["r", "auc"]].mean().reset_index()


# Curves


def _banded(rows: pd.DataFrame, x: str, y: str) -> np.ndarray:
    """Return a column x, the means of y there, and the ends of a band of one standard deviation."""
    places, mean, deviation = rows.groupby(x)[y].agg(["mean", "std"]).reset_index().to_numpy(dtype=float).T
    return np.column_stack([places, mean, mean - deviation, mean + deviation])


def _lines(rows: pd.DataFrame, x: str, y: str, by: str, tables: GroupTables) -> Curves:
    """Mean and standard deviation along a column, of each representation or whatever else there is a curve of."""
    parts = rows.dropna(subset=y).groupby(by, sort=False)[rows.columns]
    return {tables.title(name): _banded(part, x, y) for name, part in parts}


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
    targets = targets_of(rows)[:MOST_TARGETS]
    for start in range(0, len(targets), BESIDE):
        lines = {target: _lines(own_rows(rows, target), x, y, by, tables) for target in targets[start : start + BESIDE]}
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
    yield from _facts(name, "LeftOut", tables)
    yield from _facts(name, "Notes", tables)


# The exponent, and the spectrum


def _say_exponent(tables: GroupTables) -> Iterator[str]:
    """What the folds chose by each criterion."""
    optimum = tables.rows("alpha_optimum")
    for (target, criterion), rows in optimum.groupby(["target", "criterion"], sort=False):
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


def _draw_exponent(tables: GroupTables) -> Iterator[Panel]:
    for _, part in tables.rows("alpha").groupby("criterion", sort=False):
        yield from _draw_lines("alpha", part, "alpha", "score", tables, "criterion", mark=ALPHA_STAR)


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
            "their eigenvalues of zero stay zero."
        )


def _draw_spectrum(tables: GroupTables) -> Iterator[Panel]:
    """Eigenvalues at several exponents, one connectome at each, and the path from the identity."""
    ranks, values, path = map(tables.rows, ("spectrum_ranks", "spectrum_matrices", "spectrum_path"))
    if len(ranks):
        ranks = ranks[ranks["mean"] > 0].assign(mean=lambda rows: np.log10(rows["mean"]))
        shown = [alpha for alpha in dict.fromkeys((1.0, tables.alpha, 0.6, 0.1)) if (ranks["alpha"] == alpha).any()]
        curves = {f"α = {a:g}": ranks.loc[ranks["alpha"] == a, ["rank", "mean"]].to_numpy(float) for a in shown}
        svg = draw_curves([("", "log₁₀ of the eigenvalue", "rank", curves)])
        yield tables.panel("spectra", svg, drawn=", ".join(f"{alpha:g}" for alpha in shown))
    if len(values):
        matrices = {f"α = {a:g}": square(part, "parcel", "other", "value")[1] for a, part in values.groupby("alpha")}
        person = str(tables.facts("spectrum_matrices").get("Person", "one person"))
        yield tables.panel("spectrum_matrices", draw_matrices(matrices, ()), person=person, exponents=listed(matrices))
    distances = ["from_identity", "to_fc"]  # which people of incomplete rank do not have
    known = path.groupby("participant_id")[distances].transform("count").eq(path["alpha"].nunique()).all(axis=1)
    panels = [
        (title, label, "exponent α (1 is FC)", {name: _banded(rows, "alpha", name) for name in columns})
        for title, label, columns, rows in (
            ("Effective number of eigenvectors", "participation ratio", ["participation_ratio"], path),
            ("Heat trace", "Z(α)", ["heat_trace"], path),
            ("Distance (full rank)", "log-Euclidean distance", distances, path[known]),
        )
        if len(rows)
    ]
    first, *_, last = panels[0][-1]["participation_ratio"]
    sentence = f"participation ratio {last[1]:.1f} at α = {last[0]:g}, {first[1]:.1f} at α = {first[0]:g}"
    svg = draw_curves(panels, mark=tables.alpha)
    yield tables.panel("spectrum_path", svg, alpha=f"{tables.alpha:g}", sentence=sentence)


CHAPTERS: dict[str, Chapter] = {
    "check": Chapter("Check before the first model", "check", ("check", "check_pairs"), more=_say_check),
    "cohort": Chapter("Cohort", "excluded scans left_out", ("left_out", "excluded"), more=_describe_cohort),
    "motion": Chapter("Motion (QC-FC)", "qcfc_summary", ("qcfc_summary",), _say_motion, draw=_draw_motion),
    "prediction": Chapter(
        "Prediction of phenotypes",
        "prediction_summary",
        (("prediction_summary", _summary), "prediction_baselines", "comparisons", "reliability"),
        more=_limits_of_prediction,
        draw=_draw_predictions,
    ),
    "sites": Chapter("Sites", "prediction_sites", ("prediction_sites",)),
    "edges": Chapter(
        "Connections that go with a phenotype",
        "edges_summary",
        ("edges_summary", "edges", "edges_components"),
        _say_edges,
        _limits_of_edges,
    ),
    "identification": Chapter("Identification", "identification", ("identification",), more=describe_identification),
    "exponent": Chapter("The exponent", "alpha", (), _say_exponent, partial(_facts, "alpha", "Rule"), _draw_exponent),
    "screen": Chapter(
        "Transforms of the connectome",
        "transform_screen",
        ("transform_screen",),
        partial(say_compared, "transform_screen", "transform"),
    ),
    "controls": Chapter(
        "Where the gain comes from",
        "spectral_controls",
        ("controls", "spectral_matched"),
        partial(say_compared, "spectral_controls", "control"),
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
        partial(_facts, "encoders", "Probe"),
    ),
    "spectrum": Chapter("The spectrum", "spectrum_path", (), _say_spectrum, _more_of_spectrum, _draw_spectrum),
}
"""The chapters by their anchors, in the order of the page."""
