"""The page of a cohort, made from the tables of ``group/`` and the quality tables; ``--reports-only`` needs no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from markupsafe import Markup

from fcpower_bids.outputs.group import ENDINGS
from fcpower_bids.outputs.tables import REMEDY
from fcpower_bids.reports.cohort.chapters import ANSWERS, CHAPTERS, NOTE, make_chapter, say_left_out
from fcpower_bids.reports.cohort.findings import (
    WORDS,
    Finding,
    answer,
    describe_finding,
    describe_identification,
    find_targets,
    known_people,
    prediction_cautions,
    rank_identification,
)
from fcpower_bids.reports.cohort.methods import group_methods
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    GroupTables,
    Section,
    missing,
    percent,
)
from fcpower_bids.reports.methods import all_references, to_html, write_citations
from fcpower_bids.reports.page import (
    Panel,
    Verdict,
    count,
    listed,
    relative_link,
    render_page,
    show_number,
    write_page,
)
from fcpower_bids.reports.svg import draw_rows, short
from fcpower_bids.settings import Settings

SHOWN = (*ENDINGS, ".json", ".toml", ".md", ".bib")
"""Files of the folder that the page leads to."""
MOST_TARGETS, MOST_NAMED = 12, 3
ALARM = "alarm"
HEADLINE_WORDS = 20


# Pages


def write_group_report(settings: Settings) -> tuple[Path, list[str]]:
    """Write ``group.html``, or ``group_NAME.html``, and return it and the results in short. Raises DatasetError."""
    tables = GroupTables(settings)
    sections = make_sections(tables)
    if methods := group_methods(tables):
        write_citations(tables.root, settings.results, methods)
    verdict = judge_cohort(tables, sections)
    files = [path for path in sorted(settings.results.glob("*")) if path.name.endswith(SHOWN)]
    text = render_page(
        "group.html",
        methods=Markup(to_html(methods, all_references(), level=1)) if methods else "",
        goes_on=(tables.root / "logs" / "CITATION.md").is_file(),
        title=f"Group report: {settings.group.name}" if settings.group.name else "Group report",
        dataset=settings.bids_dir.resolve().name,
        verdict=verdict,
        sections=sections,
        links=[(path.name, relative_link(path, tables.root)) for path in files],
    )
    page = write_page(settings.results_page, text)
    return page, short_answers(verdict, tables)


def make_sections(tables: GroupTables) -> list[Section]:
    """Make every section that has tables, in the order of the page."""
    return [section for anchor in CHAPTERS for section in make_chapter(anchor, tables)]


# The first lines


def judge_cohort(tables: GroupTables, sections: Sequence[Section] = ()) -> Verdict:
    """Sum up the tables of the group level."""
    targets, checked = find_targets(tables), tables.rows("check")
    answers = [
        (f"Prediction of {finding.target}", tuple(describe_finding(finding, tables)), "prediction")
        for finding in targets[:MOST_TARGETS]
    ]
    if len(targets) > MOST_TARGETS:
        answers.append((f"{len(targets) - MOST_TARGETS} more targets", ("See the table.",), "prediction"))
    if identified := describe_identification(tables):
        answers.append(("Identification across sessions", tuple(identified), "identification"))
    further = tuple(
        (section.title, text, section.anchor) for section in sections for text in section.answers[:MOST_TARGETS]
    )
    serious = checked[checked["level"] != NOTE].to_dict("records")
    cautions = [f"{row['finding']} {row['consequence']}" for row in serious]
    cautions += prediction_cautions(targets, tables)
    if lost := tables.lost():
        cautions.insert(0, f"{listed(lost, MOST_NAMED)}: no longer in the folder, so it is not shown. {REMEDY}")
    done = [name.replace("_", " ") for name in tables.done if name != "check"]
    if not (answers or further or done or tables.has("check")):
        return Verdict("stop", "There are no results of the group level yet.", tuple(_facts(tables)))
    lines = _sentences(targets, tables, further)
    if not lines:
        only = "The cohort was checked; no analysis was done."
        lines = [f"{listed(done, 4)}: done; the page has the tables." if done else only]
    if alarms := sum(row["level"] == ALARM for row in serious):
        lines.insert(0, f"The check found {count(alarms, 'thing')} that would mislead; read it first.")
    room = [len(" ".join(lines[: n + 1]).split()) <= HEADLINE_WORDS for n in range(len(lines))]
    return Verdict(
        "caution" if cautions else "ok",
        " ".join(lines[: max(1, sum(room))]),
        tuple(_facts(tables)),
        findings=answers,
        further=further,
        cautions=cautions,
        figures=first_figures(targets, tables),
    )


def short_answers(verdict: Verdict, tables: GroupTables) -> list[str]:
    """Return the results as lines for a terminal: a number, its interval and p for each target and each analysis."""
    lines = []
    for finding in find_targets(tables):
        lines.append(f"{finding.target}: {answer(finding, tables)}")
        if finding.added is not None:
            lines.append(f"  {finding.added.clause(tables.title(finding.best))}")
    lines += [sentence.removesuffix(".") for sentence in describe_identification(tables)]
    lines += [f"{title}: {text.removesuffix('.')}" for title, text, _ in verdict.further]
    return [*lines, *(f"{label}: {value}" for label, value in verdict.facts if label.startswith("Left out"))]


def _sentences(targets: list[Finding], tables: GroupTables, further: Sequence[tuple[str, str, str]]) -> list[str]:
    """Answers of the page, the most telling first: the headline takes as many as it has room for."""
    lines: list[str] = []
    for state, word in WORDS.items():
        names = [each.target + " within sites" * bool(each.site) for each in targets if each.state == state]
        lines += [f"{listed(names, MOST_NAMED)}: {word}."] if names else []
    for _, best in rank_identification(tables)[:1].iterrows():
        within = "" if missing(best["accuracy_within"]) else f", {percent(best['accuracy_within'])} within the own site"
        chance = "" if best["p_permutation"] < SIGNIFICANT else ", not shown to be better than chance"
        title = tables.title(best["representation"])
        lines.append(f"{title} identifies {percent(best['accuracy'])} of the scans{within}{chance}.")
    lines += [text for _, text, anchor in further if anchor == "edges" and (not lines or text.startswith(ANSWERS))]
    return lines or list(dict.fromkeys(text for _, text, _ in further))


def _facts(tables: GroupTables) -> Iterator[tuple[str, str]]:
    scans, left_out = tables.rows("scans"), tables.rows("left_out")
    if len(scans):
        people = count(scans["participant_id"].nunique(), "person")
        yield "In the cohort", f"{people}, {count(len(scans), 'scan')}"
    if predicted := known_people(tables):
        yield "Prediction", predicted
    if len(left_out):
        states = left_out["state"].astype(str).value_counts()
        yield "Analyses without tables", ", ".join(f"{n} {state}" for state, n in states.items())
    yield "Left out", say_left_out(tables) or "nothing"


# The first figures


def first_figures(findings: Sequence[Finding], tables: GroupTables) -> tuple[Panel, ...]:
    """Return the figures of prediction, one per kind of score, and of identification."""
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.label, []).append(finding)
    return (*(_draw_scores(some[:MOST_TARGETS], tables) for some in kinds.values()), *_draw_identification(tables))


def _draw_scores(findings: Sequence[Finding], tables: GroupTables) -> Panel:
    """Draw a row per target and representation: the score, and a line over the scores that chance gives."""
    first, rows, titles, numbers = findings[0], [], [], []
    for finding in findings:
        shown = finding.summary.sort_values(first.tested, ascending=False, kind="stable")
        names = list(map(tables.title, shown["representation"]))
        target = finding.target  # what is too long is cut here, where the representation stays
        titles += [f"{short(target, max(8, 32 - len(name)))}, {name}" if len(findings) > 1 else name for name in names]
        rows.append(shown.assign(chance=first.chance)[[first.tested, "chance", "score_needed", "p_max_targets"]])
        scores = ", ".join(map("{} {}".format, names, map(show_number, shown[first.tested])))
        numbers.append(f"{finding.target}: {scores}")
    label = f"{first.label} {'within sites' if first.is_within else 'of all predictions together'}"
    drawn = pd.concat(rows)
    svg = draw_rows(titles, drawn.to_numpy(dtype=float), label, first.chance)
    text = "Dashed: guessing."
    if drawn["score_needed"].notna().any():
        text = (
            "The line of a row covers what chance gives in 95 of 100 cohorts; triangles: better than chance, "
            f"corrected for representations and targets (p < {SIGNIFICANT:g}). {text}"
        )
    alt = f"{label}, by target. {'; '.join(numbers)}."
    return Panel(f"Prediction ({first.label})", text, svg, alt, sources=tables.links("prediction_summary"))


def _draw_identification(tables: GroupTables) -> Iterator[Panel]:
    rows = rank_identification(tables)
    if rows.empty:
        return
    titles = list(map(tables.title, rows["representation"]))
    values = rows.assign(p=np.nan)[["accuracy", "ci_low", "ci_high", "p"]].to_numpy(dtype=float)
    svg = draw_rows(titles, values, "share of scans recognised", float(rows["chance"].iloc[0]))
    text = (
        "Scans whose most similar scan of another session is of the same person, with their interval; dashed: guessing."
    )
    alt = f"Share of scans recognised: {', '.join(map('{} {}'.format, titles, map(percent, rows['accuracy'])))}."
    yield Panel("Identification", text, svg, alt, sources=tables.links("identification"))
