"""Many entries against one: transforms, controls, encoders, parcellations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from fcpower_bids.analyses.evaluate import ROUNDING
from fcpower_bids.outputs.names import short_name
from fcpower_bids.reports.cohort.drawings import draw_curves, draw_differences, draw_folds, with_band
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Grid,
    GroupTables,
    Section,
    by_representation,
    count,
    missing,
    own_rows,
    score_label,
    targets_of,
)
from fcpower_bids.reports.kit.page import Panel, look_up

MOST_TARGETS, BESIDE = 6, 3
"""Targets that are drawn, and how many of them side by side in one picture; all are in the tables."""
LIMITS = ["mean_difference", "ci_low", "ci_high", "p_holm"]
SAME = "not distinguishable"
Row = Mapping[Any, Any] | pd.Series


# Differences in words and pictures


def batches(frame: pd.DataFrame) -> Iterator[list[str]]:
    """Targets that are drawn, some side by side."""
    targets = targets_of(frame)[:MOST_TARGETS]
    yield from (targets[start : start + BESIDE] for start in range(0, len(targets), BESIDE))


def say_difference(row: Row) -> str:
    """Say a difference with its interval and p."""
    words = f"difference in {score_label(row.get('score'))} {row['mean_difference']:+.3f}"
    if not missing(row["ci_low"]):
        words += f", 95 % CI {row['ci_low']:+.3f} to {row['ci_high']:+.3f}"
    p = float(row["p_holm"])
    if missing(p):
        return words
    return f"{words}, p {'< 0.001' if p < 0.001 else f'= {p:.3f}'} after Holm's correction"


def judge(row: Row) -> str:
    """Say in a word whether a difference is one."""
    if not row["p_holm"] < SIGNIFICANT or row["mean_difference"] == 0:
        return SAME
    return "better" if row["mean_difference"] > 0 else "worse"


def _tally(rows: pd.DataFrame) -> str:
    """``none is better, 2 are worse, 11 are not distinguishable``."""
    words = [judge(row) for row in rows.to_dict("records")]
    counted = [(words.count(word), word) for word in ("better", "worse", SAME)]
    return ", ".join(f"{number or 'none'} {'is' if number < 2 else 'are'} {word}" for number, word in counted)


def _say_all(target: str, frame: pd.DataFrame, noun: str, reference: str) -> str:
    """Say how many entries differ from the reference."""
    tested = frame.dropna(subset=["mean_difference"])
    tested = tested[tested["representation"] != tested["reference"]]
    if tested.empty:
        return f"{target}: no {noun} could be compared with {reference}."
    return f"{target}: of {count(len(tested), noun)} compared with {reference}, {_tally(tested)}."


def difference_panels(
    name: str,
    frame: pd.DataFrame,
    titles: Mapping[str, str],
    tables: GroupTables,
    key: str = "representation",
    cloud: pd.DataFrame | None = None,
) -> Iterator[Panel]:
    """Draw the differences of the entries of ``titles``, three targets a picture; ``cloud`` rows as dots."""
    for batch in batches(frame):
        parts = {target: own_rows(frame, target) for target in batch}
        kept = {
            target: part.drop_duplicates(key).set_index(key)[LIMITS].reindex(list(titles))
            for target, part in parts.items()
        }
        scores = {target: listed_scores(part) for target, part in parts.items()}
        dots = None
        if cloud is not None:
            dots = {target: own_rows(cloud, target)["mean_difference"].to_numpy(dtype=float) for target in batch}
        svg = draw_differences(
            list(titles.values()),
            {target: part.to_numpy(dtype=float) for target, part in kept.items()},
            [f"difference in {scores[target]}" for target in batch],
            SIGNIFICANT,
            dots,
        )
        said = "; ".join(f"{target}: {_tally(part.dropna(subset='mean_difference'))}" for target, part in kept.items())
        power, plain = tables.title("fc_power"), tables.title("fc")
        yield tables.panel(name, svg, n=len(titles), said=said, power=power, plain=plain)


def listed_scores(frame: pd.DataFrame) -> str:
    """How an axis calls the scores of some rows."""
    return " or ".join(dict.fromkeys(score_label(score) for score in frame["score"].dropna()))


def _refused(name: str, frame: pd.DataFrame, titles: Mapping[str, str], tables: GroupTables) -> Iterator[Grid]:
    """List the entries that are not available, each once, with the reason."""
    refused = frame[frame["status"] != "scored"].drop_duplicates("representation")
    yield from tables.grid(name, refused.assign(entry=refused["representation"].astype(str).map(titles)))


# Transforms


def screen_chapter(tables: GroupTables) -> Iterator[Section]:
    """Say which transforms differ from FC^alpha, draw all of them, list them."""
    screen = tables.rows("transform_screen")
    if screen.empty:
        return
    names, reference = list(dict.fromkeys(screen["representation"].astype(str))), tables.title("fc_power")
    short = look_up("titles", "transforms")
    titles = {name: short.get(name, tables.title(name)) for name in names}
    answers = tuple(_say_all(one, own_rows(screen, one), "transform", reference) for one in targets_of(screen))
    scored = screen[screen["status"] == "scored"]
    there = set(scored["representation"])
    drawn = {name: titles[name] for name in names if name != "fc_power" and name in there}
    panels = tuple(difference_panels("transform_screen", scored, drawn, tables))
    grids = (
        *tables.grid("transform_screen", scored.dropna(axis=1, how="all")),
        *_refused("refused_transforms", screen, titles, tables),
    )
    yield Section("screen", "Transforms of the connectome", answers, panels, grids, answers)


# Controls

RANDOM = "random_filter"
PROPER = {name.lower(): name for name in ("Pearson", "Euclidean", "Cholesky", "Wasserstein")}
WEIGHTINGS = {"raw": "λ", "power": "λ^α"}


def controls_chapter(tables: GroupTables) -> Iterator[Section]:
    """Say which controls differ from FC^alpha, draw them and the leading eigenvectors, list them all."""
    controls = tables.rows("spectral_controls")
    if controls.empty:
        return
    first, random = controls.drop_duplicates("representation"), controls["control"] == RANDOM
    titles = {str(row["representation"]): control_title(row, tables) for row in first.to_dict("records")}
    parts = {target: own_rows(controls, target) for target in targets_of(controls)}
    fixed = {target: own[own["control"] != RANDOM] for target, own in parts.items()}
    answers = tuple(_say_all(target, own, "control", tables.title("fc_power")) for target, own in fixed.items())
    said = (*answers, *(text for target, own in parts.items() for text in _say_random(target, own, tables)))
    shown = first[(first["status"] == "scored") & ~first["control"].isin((RANDOM, "top_modes"))]
    drawn = {name: titles[name] for name in map(str, shown["representation"]) if name != "fc_power"}
    scored = controls[controls["status"] == "scored"]
    cloud = scored[scored["control"] == RANDOM]
    panels = (
        *_leading(controls, tables),
        *difference_panels("controls", controls[~random], drawn, tables, cloud=cloud if len(cloud) else None),
    )
    listing = scored.assign(title=scored["representation"].astype(str).map(titles)).dropna(axis=1, how="all")
    grids = (*tables.grid("controls", listing), *_refused("refused_controls", controls, titles, tables))
    yield Section("controls", "Where the gain comes from", said, panels, grids, answers)


def control_title(row: Row, tables: GroupTables) -> str:
    """Name a control in a few words."""
    name, kind, number = str(row["representation"]), str(row["control"]), row.get("number")
    rest = " ".join(PROPER.get(word, word) for word in name.split("_")[1:])
    if kind in ("mode", "top_modes", "shared_basis"):
        weighting = WEIGHTINGS.get(str(row.get("weighting")), "n/a")
        return {
            "mode": f"eigenvector {number:g} alone",
            "top_modes": f"leading {number:g}, {weighting}",
            "shared_basis": f"shared basis, {number:g} components",
        }[kind]
    known = {"kernel": f"kernel: {rest}", "rbf": f"RBF: {rest}", RANDOM: f"random filter {rest}"}
    return known.get(kind, look_up("titles", "controls").get(name, tables.title(name)))


def _say_random(target: str, own: pd.DataFrame, tables: GroupTables) -> Iterator[str]:
    """Say how many random filters of the eigenvalues are above FC^alpha and FC."""
    reference = tables.title("fc_power")
    scores = own.drop_duplicates("representation").set_index("representation")["fold_mean"]
    random = own[own["control"] == RANDOM]["fold_mean"].dropna()
    if len(random) and {"fc", "fc_power"} <= set(scores.index):
        higher, above = (int((random > scores[name] + ROUNDING).sum()) for name in ("fc_power", "fc"))
        yield (
            f"{target}: the mean {score_label(own['score'].iloc[0])} of {len(random)} random filters of the "
            f"eigenvalues lies between {random.min():.3f} and {random.max():.3f} (median {random.median():.3f}); "
            f"{higher} {'is' if higher == 1 else 'are'} above {reference} ({scores['fc_power']:.3f}) and "
            f"{above} above FC ({scores['fc']:.3f})."
        )


def _leading(controls: pd.DataFrame, tables: GroupTables) -> Iterator[Panel]:
    """Score against the number of leading eigenvectors, raw and flattened (the paper's Table "matched")."""
    kept, matched = controls[controls["control"].isin(("top_modes", "whole"))], tables.rows("spectral_matched")
    names = {"raw": "raw eigenvalues", "power": f"flattened eigenvalues (λ^{tables.alpha:g})"}
    for batch in batches(kept) if (kept["control"] == "top_modes").any() else ():
        label = f"mean {listed_scores(kept)} of the folds"
        drawn, said, differ = [], [], list[str]()
        for target in batch:
            own, curves, words = own_rows(kept, target), {}, []
            for kind, title in names.items():
                rows = own[own["weighting"] == kind].sort_values("number", kind="stable")
                curves[title] = with_band(rows[["number", "fold_mean", "fold_sd"]])
                known = rows.dropna(subset="fold_mean")
                if len(known):
                    (first, n), (last, most) = known[["fold_mean", "number"]].iloc[[0, -1]].to_numpy(dtype=float)
                    words.append(f"{title}: {first:.3f} with {n:g}, {last:.3f} with all {most:g}")
            drawn.append((target, label, "leading eigenvectors of each person", curves))
            said.append(f"{target}, {'; '.join(words) or 'no score'}")
        for row in matched[matched["target"].isin(batch)].to_dict("records") if len(matched) else ():
            compared = f"flattened minus raw at {row['number']:g} eigenvectors: {say_difference(row)}"
            differ.append(f"{row['target']}, {compared}")
        svg, told = draw_curves(drawn, doubling=True), ". ".join([*said, *differ])
        yield tables.panel("leading", svg, len(batch) > 1, label=label, told=told, said=". ".join(said))


# Encoders

MOST_ENCODER_PAIRS = 30
"""Pairs that are drawn; those with FC come first, and all are in the table."""


def encoders_chapter(tables: GroupTables) -> Iterator[Section]:
    """Every representation under one linear probe: scores by target, every pair, and what each of them reads."""
    scores, pairs, facts = tables.rows("encoders"), tables.rows("encoder_comparisons"), tables.facts("encoders")
    if scores.empty:
        return
    answers = tuple(
        _best_encoder(one, own_rows(scores, one), own_rows(pairs, one), tables) for one in targets_of(scores)
    )
    said = [*answers, *(str(facts[key]) for key in ("Probe", "InputsNotKnown") if key in facts)]
    panels = [*_encoder_panels(scores, tables)]
    if len(pairs):
        keyed = pairs.assign(pair=pairs["representation"].astype(str) + "\t" + pairs["reference"].astype(str))
        names = sorted(dict.fromkeys(keyed["pair"]), key=lambda pair: not {"fc", "fc_power"} & set(pair.split("\t")))
        titles = {name: " − ".join(map(tables.title, name.split("\t"))) for name in names[:MOST_ENCODER_PAIRS]}
        panels += difference_panels("encoder_pairs", keyed, titles, tables, key="pair")
    shown = tables.titled(scores).assign(
        score=[score_label(score) for score in scores["score"]],
        atlas=[short_name(str(name)) for name in scores["atlas"].fillna("n/a")] if "atlas" in scores else "n/a",
    )
    grids = (*tables.grid("encoders", shown), *tables.grid("encoder_pairs"))
    yield Section("encoders", "Comparison of encoders", tuple(said), tuple(panels), grids, answers)


def _best_encoder(target: str, own: pd.DataFrame, pairs: pd.DataFrame, tables: GroupTables) -> str:
    own = own.dropna(subset=["pooled"])
    if own.empty:
        return f"{target}: no score is defined."
    best = own.iloc[int(own["pooled"].argmax())]
    name, label = str(best["representation"]), score_label(best["score"])
    said = f"{target}: the highest {label} is that of {tables.title(name)} ({best['pooled']:.3f})"
    rows = {}
    for row in pairs.to_dict("records"):
        names = [str(row["representation"]), str(row["reference"])]
        if name in names and not missing(row["p_holm"]):
            rows[names[names[0] == name]] = judge(row)
    same = [tables.title(other) for other, word in rows.items() if word == SAME]
    if not rows:
        return said + "; it could not be compared with the others."
    if not same:
        others = "the other" if len(rows) == 1 else f"all {len(rows)} others"
        return said + f"; it differs from {others} (Holm's correction)."
    return said + f"; not distinguishable from {', '.join(same)} (Holm's correction over the pairs)."


def _encoder_panels(scores: pd.DataFrame, tables: GroupTables) -> Iterator[Panel]:
    for target in targets_of(scores)[: MOST_TARGETS + 1]:
        own, parts = own_rows(scores, target), by_representation(tables.rows("encoder_folds"), target)
        if not parts:  # identification has no folds
            continue
        label, column = score_label(own["score"].iloc[0]), "auc" if (own["score"] == "auc").all() else "r"
        pooled = {tables.title(row["representation"]): float(row["pooled"]) for row in own.to_dict("records")}
        said = "; ".join(f"{title} {value:.3f}" for title, value in pooled.items())
        dots = {tables.title(name): part[column].to_numpy(dtype=float) for name, part in parts.items()}
        svg = draw_folds(dots, pooled, f"{label} in the test people", 0.5 if column == "auc" else 0.0)
        yield tables.panel("encoder_folds", svg, target=target, label=label, said=said)


# Parcellations


def sweep_chapter(tables: GroupTables) -> Iterator[Section]:
    """Scores of every parcellation, FC^alpha against FC under each, and the parcellations against each other."""
    sweep, gains = tables.rows("parcellation_sweep"), tables.rows("parcellation_gains")
    if sweep.empty or gains.empty:
        return
    shared = gains[
        (gains["people"] == "shared") & (gains["representation"] == "fc_power") & (gains["reference"] == "fc")
    ]
    pair = f"{tables.title('fc_power')} against {tables.title('fc')}"
    rows = {target: own_rows(shared, target) for target in targets_of(shared)}
    answers = tuple(
        f"{target}: {pair} under {count(len(own), 'parcellation')}: {_tally(own)} (p not corrected for their number)."
        for target, own in rows.items()
    )
    atlases = {name: short_name(name) for name in dict.fromkeys(sweep["atlas"].astype(str))}
    panels = tuple(difference_panels("parcellation_gains", shared, atlases, tables, key="atlas"))

    def named(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
        short = {column: [short_name(str(name)) for name in frame[column]] for column in columns if column in frame}
        return tables.titled(frame).assign(**short)

    keys = ["target", "atlas", "people", "n_parcels", "n_people", "representation"]
    means = sweep.groupby(keys, sort=False, dropna=False)[["r", "auc"]].agg(["mean", "std"])
    means.columns = ["r_mean", "r_std", "auc_mean", "auc_std"]
    pairs = tables.rows("parcellation_comparisons")
    grids = (
        *tables.grid("parcellation_sweep", named(means.reset_index(), "atlas").dropna(axis=1, how="all")),
        *tables.grid("parcellation_gains", named(gains, "atlas")),
        *(tables.grid("parcellation_comparisons", named(pairs, "atlas", "reference")) if len(pairs) else ()),
    )
    yield Section("sweep", "Parcellations", answers, panels, grids, answers)
