"""How well each phenotype is predicted, also within sites, and how well scans identify people: chapters, first look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.sites import WITHIN
from fcpower_bids.reports.cohort.drawings import draw_scatter
from fcpower_bids.reports.cohort.findings import (
    FOUND,
    NOT_DECIDED,
    NOT_FOUND,
    NOT_TESTED,
    ONLY_SEEN,
    POOLED_MEAN,
    Finding,
    describe_finding,
    describe_power,
    describe_seen_identification,
    describe_training,
    find_targets,
    seen_names,
    seen_rows,
    small_folds,
)
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Cell,
    Grid,
    GroupTables,
    Section,
    by_representation,
    count,
    count_people,
    listed,
    missing,
    own_rows,
    percent,
    say_p,
    square,
)
from fcpower_bids.reports.kit.charts import (
    GREY,
    ROW_HEIGHT,
    ROW_WIDTH,
    draw_row_bars,
    reaching,
    rows_with_names,
    short,
    style,
)
from fcpower_bids.reports.kit.figures import draw_matrices
from fcpower_bids.reports.kit.page import Panel, show_number

MOST_TARGETS = 12
"""Targets that are drawn; of a longer list the best are, and all are in the tables."""
MOST_SCATTERS = 4
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def prediction_chapter(tables: GroupTables) -> Iterator[Section]:
    """Yield one section with the tables of all targets, and one per target that is drawn."""
    findings = find_targets(tables)
    if not findings:
        return
    drawn = findings
    if len(findings) > MOST_TARGETS:
        scores = {finding.target: float(finding.summary[finding.leading].iloc[0]) for finding in findings}
        drawn = sorted(findings, key=lambda finding: (_last(finding.p), _last(-scores[finding.target])))[:MOST_TARGETS]
    said = list(_limits(tables.facts("prediction")))
    if len(drawn) < len(findings):
        said.append(f"{len(drawn)} of {len(findings)} targets are drawn: the lowest p, then the highest scores.")
    names = ("prediction_baselines", "comparisons", "reliability")
    summary = tables.titled(tables.rows("prediction_summary")).dropna(axis=1, how="all")
    order = {target: i for i, target in enumerate(dict.fromkeys(summary["target"]))}
    summary = summary.sort_values("target", key=lambda name: name.map(order), kind="stable")
    others = {name: tables.titled(tables.rows(name)).dropna(axis=1, how="all") for name in names}
    grids = [*tables.grid("prediction_summary", summary)]
    for name, rows in others.items():
        grids += tables.grid(name, rows)
    yield Section("prediction", "Prediction of phenotypes", tuple(said), (), tuple(grids))
    for number, finding in enumerate(drawn):
        panels = tuple(panel for make in PANELS for panel in make(finding, tables))
        sentences = tuple(describe_finding(finding, tables))
        yield Section(f"target-{number}", f"Prediction of {finding.target}", sentences, panels)


def _last(number: float) -> float:
    """What sorts a number that is not known behind all others."""
    return np.inf if missing(number) else number


def _limits(facts: Mapping[str, Any]) -> Iterator[str]:
    """What the folds and ComBat leave open; how they were made is in the methods text."""
    if not facts.get("FamilyColumn"):
        yield (
            "Relatives were not declared (--family-column); relatives on both sides of a split would raise the scores."
        )
    if pairs := facts.get("AcceptedPairs"):
        named = ", ".join(" and ".join(pair) for pair in pairs)
        yield f"Accepted by name though they look like one scan, and not kept together by the folds: {named}."
    if "Permutations" in facts:
        yield f"Permutations: {facts['Permutations']}"
    if "Harmonisation" not in facts:
        return
    if left := facts["Harmonisation"]["PeopleTestedUnadjusted"]:
        people = count_people(len(left))
        yield f"Tested without ComBat, from sites too small or unseen in training: {people}."
    if shared := facts.get("TargetsThatGoWithSites", {}):
        between = [f"{percent(about['Share'])} of the variance of {target}" for target, about in shared.items()]
        yield (
            f"ComBat does not keep the target: it takes what target and site share ({listed(between, 4)} "
            f"{'lies' if len(shared) == 1 else 'lie'} between sites), so that a lower score than without it does not "
            "show that the site had made the score."
        )


# The figures of a target


def _scatter(finding: Finding, tables: GroupTables) -> Iterator[Panel]:
    facts, pairs, said = tables.facts("prediction"), {}, []
    for name, part in list(by_representation(tables.predicted(), finding.target).items())[:MOST_SCATTERS]:
        values = part.groupby("participant_id")[["observed", "predicted"]].mean().dropna().to_numpy(dtype=float)
        if len(values) >= 3:
            pairs[tables.title(name)] = values
            said.append(f"{tables.title(name)} {_describe_pairs(values)}")
    if not pairs:
        return
    residual = bool(facts.get("Preset", {}).get("covariates"))
    binary = finding.score == "auc" and not residual
    label = f"observed {short(finding.target)}" + (", residual" if residual else "")
    positive = facts.get("PositiveClasses", {}).get(finding.target)
    if binary and positive:
        label += f" (1: {short(str(positive))})"
    without = " Observed is the residual of the covariates, fitted to the training people of each fold."
    yield tables.panel(
        "scatter",
        draw_scatter(pairs, label, binary),
        said="; ".join(said),
        without=without if residual else "",
        target=finding.target,
    )


def _describe_pairs(values: np.ndarray) -> str:
    if (np.ptp(values, axis=0) == 0).any() or len(values) < 4:
        return f"r n/a, n = {len(values)}"
    r = float(np.corrcoef(values.T)[0, 1])
    z = np.arctanh(np.clip(r, -0.9999999, 0.9999999))
    low, high = np.tanh(z + np.array([-1.96, 1.96]) / np.sqrt(len(values) - 3))
    return f"r = {r:.2f} (95 % CI {low:.2f} to {high:.2f}), n = {len(values)}"


def _found(finding: Finding, parts: Mapping[str, pd.DataFrame]) -> list[str]:
    """Representations with a table that predict the target better than chance: only of these a map is drawn."""
    rows = finding.summary[finding.summary["p_max_targets"] < SIGNIFICANT]
    return [name for name in map(str, rows["representation"]) if name in parts]


def _networks(finding: Finding, tables: GroupTables) -> Iterator[Panel]:
    parts = by_representation(tables.rows("importance_networks"), finding.target)
    for name in sorted(_found(finding, parts), key=list(parts).index):
        names, values = square(parts[name], "network_a", "network_b", "importance")
        largest = float(np.nanmax(np.abs(values)))
        power = int(np.floor(np.log10(largest))) if largest > 0 else 0
        power = 0 if -1 <= power <= 2 else power
        title = tables.title(name) + (f" (values × 10{str(power).translate(RAISED)})" if power else "")
        svg = draw_matrices({title: values / 10.0**power}, [(label, i, i + 1) for i, label in enumerate(names)])
        yield tables.panel("importance_networks", svg, name_of=tables.title(name), n=len(names))


PANELS = (_scatter, _networks)
"""What makes the figures of a target, in their order."""


# Sites


def sites_chapter(tables: GroupTables) -> Iterator[Section]:
    """Scores per site and within sites."""
    grids = tuple(tables.grid("prediction_sites", score=lambda score: Cell("AUC" if score == "auc" else str(score))))
    if grids:
        yield Section("sites", "Sites", (), (), grids)


# Identification

FEWEST_DIFFERENT = 6
"""People for whom sign flips can give a p below 0.05: 2 / 2^6 is, 2 / 2^5 is not."""


def identification_rows(tables: GroupTables, unseen: bool = False) -> pd.DataFrame:
    """One row of ``identification`` per representation, the best first: over all sessions where there are several.

    `unseen`: without encoders that were trained on people there.
    """
    rows = tables.rows("identification")
    if rows.empty:
        return rows
    whole = rows[rows["first_session"].astype(str) == "all"]
    ranked = (whole if len(whole) else rows).drop_duplicates("representation")
    ranked = ranked.sort_values("accuracy", ascending=False, kind="stable")
    return ranked[~seen_rows(ranked)] if unseen else ranked


def describe_identification(tables: GroupTables) -> list[str]:
    """Say how often each representation finds the person, the best first, and whether two of them differ."""
    rows = identification_rows(tables)
    seen, said = seen_rows(rows), []
    for _, row in rows[~seen].iterrows():
        within = ""
        if not missing(row.get("chance_within")):
            within = (
                f", within the own site {percent(row['chance_within'], 1)}; among people of the own site alone it "
                f"finds {percent(row['accuracy_within'])}"
            )
        said.append(
            f"{tables.title(row['representation'])} finds the person in {percent(row['accuracy'])} of "
            f"{row['n_searches']:.0f} searches (95 % CI {percent(row['ci_low'])} to {percent(row['ci_high'])} over "
            f"people; chance {percent(row['chance'], 1)}{within}; permutation {say_p(float(row['p_permutation']))})."
            + describe_training(row)
        )
    said += [describe_seen_identification(row, tables) for _, row in rows[seen].iterrows()]
    names = seen_names(tables)
    for _, row in tables.rows("identification_comparisons").iterrows():
        if names.isdisjoint({row["representation"], row["reference"]}):
            said.append(_describe_difference(row, tables))
    return said


def _describe_difference(row: pd.Series, tables: GroupTables) -> str:
    later, earlier = tables.title(row["representation"]), tables.title(row["reference"])
    tested = (
        f"{count(int(row['only_representation']), 'search', 'searches')} only {later} gets right, "
        f"{row['only_reference']:.0f} only {earlier}; exact sign flips over people {say_p(float(row['p_people']))}"
    )
    if row["only_representation"] + row["only_reference"] < FEWEST_DIFFERENT:
        return (
            f"No evidence that {later} and {earlier} differ ({tested}); {FEWEST_DIFFERENT} people at least must differ "
            f"for a p below {SIGNIFICANT:g}."
        )
    if row["p_people"] >= SIGNIFICANT:
        needed = 100 * (row["ci_high"] - row["ci_low"]) / 2
        return f"No evidence that {later} and {earlier} differ ({tested}); {describe_power(needed, 0, ' points')}."
    return f"{later} identifies {'better' if row['difference'] > 0 else 'worse'} than {earlier} ({tested})."


def identification_chapter(tables: GroupTables) -> Iterator[Section]:
    """Accuracy, and how sure it is."""
    rows = tables.rows("identification")
    if rows.empty:
        return
    if rows["chance_within"].isna().all():
        rows = rows.drop(columns=["accuracy_within", "chance_within"])
    grids = tuple(tables.grid("identification", tables.titled(rows)))
    said = tuple(describe_identification(tables))
    yield Section("identification", "Identification across sessions", said, (), grids)


def privacy_chapter(tables: GroupTables) -> Iterator[Section]:
    """Say that connectomes identify people, with the number of this cohort."""
    rows = identification_rows(tables, unseen=True)
    if rows.empty:
        return
    best = rows.iloc[int(rows["accuracy"].to_numpy().argmax())]
    said = str(tables.facts("identification").get("Privacy", "A connectome is a fingerprint: it can link scans."))
    here = (
        f"In this cohort {tables.title(best['representation'])} finds {percent(best['accuracy'])} of the people in "
        "another session. Removing names from a shared connectome does not make it anonymous. This page shows "
        "participant labels: treat it as personal data."
    )
    yield Section("privacy", "Privacy", (said, here))


# The first look: figures of prediction and identification, and the table of targets

SPREAD = 0.42
"""Half of a row, which its representations share."""
SCORES = (
    "One mark per representation; the dashed line is guessing.",
    "A score in the shaded range of its representation could have come by chance.",
    "The cross is the score of columns that are known without a scan.",
)
RECOGNISED = (
    "Scans whose most similar scan of another session is of the same person, with their interval; dashed: guessing.",
    "The diamond and the second dashed line are among people of the own site.",
)
VERDICTS = {
    FOUND: "predicted",
    NOT_FOUND: "nothing found",
    NOT_DECIDED: "not decided: too few permutations",
    NOT_TESTED: "not tested against chance",
    ONLY_SEEN: "no score: encoders trained on these people",
}
BESIDE_SITE = {FOUND: "more than the site", NOT_FOUND: "nothing beyond the site"}


def first_figures(findings: Sequence[Finding], tables: GroupTables) -> tuple[Panel, ...]:
    """Return the figures of prediction, one per kind of score, and of identification."""
    kinds = dict.fromkeys(finding.label for finding in findings)
    of_kinds = [[one for one in findings if one.label == kind and len(one.summary)][:MOST_TARGETS] for kind in kinds]
    return (*(_scores(some, tables) for some in of_kinds if some), *_identification(tables))


def _styles(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each representation, whatever the order in which they are drawn."""
    return {name: style(number) for number, name in enumerate(sorted(names))}


def _scores(findings: Sequence[Finding], tables: GroupTables) -> Panel:
    first = findings[0]
    names = sorted({str(name) for finding in findings for name in finding.summary["representation"]})

    def by_name(column: str) -> pd.DataFrame:
        """Values of a column of the summaries by target and representation; NaN where there is none."""
        rows = [
            finding.summary.set_index("representation")[column.format(finding.score)].reindex(names).to_numpy(float)
            for finding in findings
        ]
        return pd.DataFrame(rows, columns=names)

    # what the permutations are about
    scores = by_name(first.leading if first.is_within else f"{{}}_{POOLED_MEAN}")
    order = scores.mean().sort_values(ascending=False, kind="stable").index
    titles = [tables.title(name) for name in order]
    values, needed = scores[order].to_numpy(), by_name("score_needed")[order].to_numpy()
    without = np.array([np.nan if finding.added is None else finding.added.alone for finding in findings])
    looks = [_styles(names)[name] for name in order]
    scale = reaching(values, without, needed, first.chance)
    key = dict(zip(titles, looks, strict=True))
    sheet, (chart,) = rows_with_names([one.target for one in findings], {"": scale}, ROW_WIDTH, ROW_HEIGHT, key)
    rows, places = -np.arange(len(findings), dtype=float), np.linspace(SPREAD, -SPREAD, 2 * len(titles) + 1)[1::2]
    for lane, place in enumerate(places):
        for row, end in zip(rows, needed[:, lane], strict=True):
            chart.shade(row + place, end, half=0.8 * SPREAD / len(titles))
    chart.upright(first.chance, GREY, 0.9, "4 2")
    for lane, (place, (colour, marker)) in enumerate(zip(places, looks, strict=True)):
        for row, finding in enumerate(findings):
            by_chance = f", by chance up to {needed[row, lane]:.3f}" if np.isfinite(needed[row, lane]) else ""
            entry = f"{finding.target}, {titles[lane]}: {values[row, lane]:.3f}{by_chance}"
            chart.answer(rows[row] + place, entry, SPREAD / len(titles))
        chart.marks(values[:, lane], rows + place, colour, 30, marker)
    chart.marks(without, rows, "#000", 26, "X")
    label = f"{first.label} {'within sites' if first.is_within else 'of all predictions together'}"
    chart.frame_below(label, most=6)
    there = [True, *(bool(np.isfinite(one).any()) for one in (needed, without))]
    said = []
    for finding, row in zip(findings, values, strict=True):
        each = (f"{title} {show_number(value)}" for title, value in zip(titles, row, strict=True))
        said.append(f"{finding.target}: {', '.join(each)}")
    return Panel(
        f"Prediction ({first.label})",
        " ".join(sentence for sentence, shown in zip(SCORES, there, strict=True) if shown),
        sheet.svg(),
        f"{label}, by target. {'; '.join(said)}.",
        sources=tables.links("prediction_summary", "prediction_baselines"),
    )


def _identification(tables: GroupTables) -> Iterator[Panel]:
    rows = identification_rows(tables, unseen=True)
    if rows.empty:
        return
    looks = _styles(map(str, rows["representation"]))
    titles = [tables.title(name) for name in rows["representation"]]
    accuracy, low, high, chance, within, chance_within = (
        rows[name].to_numpy(dtype=float)
        for name in ("accuracy", "ci_low", "ci_high", "chance", "accuracy_within", "chance_within")
    )
    said = ", ".join(f"{title} {percent(share)}" for title, share in zip(titles, accuracy, strict=True))
    svg = draw_row_bars(
        titles,
        accuracy,
        "share of scans recognised",
        (low, high),
        (chance, chance_within),
        within,
        [looks[str(name)][0] for name in rows["representation"]],
    )
    text = " ".join(RECOGNISED[: 2 if np.isfinite(within).any() else 1])
    sources = tables.links("identification")
    yield Panel("Identification", text, svg, f"Share of scans recognised: {said}.", sources=sources)


def targets_by_representation(findings: Sequence[Finding], tables: GroupTables) -> Grid | None:
    """Return the table, a row per target; None where nothing was predicted."""
    summary, sites = tables.rows("prediction_summary"), tables.rows("prediction_sites")
    if summary.empty or not findings:
        return None
    names = [str(name) for name in summary["representation"].unique()]
    rows = [_row(finding, own_rows(summary, finding.target), names) for finding in findings]
    header = ["Target", "Score", *map(tables.title, names), "Verdict"]
    text = (
        f"{_what_leads(findings, tables)}; the best representation of a target is bold. The p of the verdict is "
        "corrected for the number of representations and targets."
    )
    # columns to read the scores with
    columns = [("Without a scan", "the best of the site, and of all that is known together")]
    values = [[np.nan if finding.added is None else finding.added.alone for finding in findings]]
    if len(sites) and any(not finding.is_pooled for finding in findings):
        columns.append(("All predictions", "the best representation's score of all predictions together"))
        values.append([finding.pooled(finding.best) for finding in findings])
    if len(sites):
        columns.append(("Within sites", "its score among people of one site"))
        within = sites[sites["over"] == WITHIN].drop_duplicates(["target", "representation"])
        known = within.set_index(["target", "representation"])["value"]
        values.append([float(known.get((finding.target, finding.best), np.nan)) for finding in findings])
    for (title, said), column in zip(columns, values, strict=True):
        if any(not missing(value) for value in column):
            header.append(title)
            rows = [(*row, _score_cell(value)) for row, value in zip(rows, column, strict=True)]
            text += f" {title}: {said}."
    return Grid("", text, tuple(header), tuple(rows), tables.links("prediction_summary", "prediction_baselines"))


def _what_leads(findings: Sequence[Finding], tables: GroupTables) -> str:
    if any(finding.is_within for finding in findings):
        return "Score within sites, which are held out"
    pooled = [finding.is_pooled for finding in findings]
    if not any(pooled):
        return "Mean over the folds"
    why = f"since a mean over folds of {small_folds(findings, tables)} is mostly noise"
    if all(pooled):
        return f"Score of all predictions together, {why}"
    return f"Mean over the folds, or where it says 'all predictions' the score of them together, {why}"


def _row(finding: Finding, own: pd.DataFrame, names: Sequence[str]) -> tuple[Cell, ...]:
    scores = dict(zip(own["representation"].astype(str), own[finding.leading], strict=True))
    seen = set(own["representation"].astype(str)[seen_rows(own)])
    best = "" if finding.state == ONLY_SEEN else finding.best
    verdict = BESIDE_SITE.get(finding.state, VERDICTS[finding.state]) if finding.site else VERDICTS[finding.state]
    if finding.state == FOUND and finding.added is not None and not missing(finding.added.p):
        verdict = "predicted" if finding.added.adds else "predicted; nothing beyond what is known"
    cells = [
        Cell("trained on them", "n/a") if name in seen else _score_cell(scores.get(name), name == best)
        for name in names
    ]
    p = "" if missing(finding.p) else f" ({say_p(finding.p)})"
    label = f"{finding.label}, all predictions" if finding.is_pooled else finding.label
    return (Cell(finding.target), Cell(label), *cells, Cell(verdict + p))


def _score_cell(score: float | None, best: bool = False) -> Cell:
    return Cell(show_number(score), "n/a" if missing(score) else float(score or 0), best=best)
