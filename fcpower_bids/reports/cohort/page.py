"""The page of a cohort, made from the tables of ``group/`` and the quality tables; ``--reports-only`` needs no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from fcpower_bids.analyses.evaluate import POOLED_MEAN
from fcpower_bids.errors import Incomplete
from fcpower_bids.outputs.group import ENDINGS
from fcpower_bids.reports.cohort import comparisons, curves, edges, people, prediction
from fcpower_bids.reports.cohort.findings import (
    FOUND,
    NOT_DECIDED,
    NOT_FOUND,
    NOT_TESTED,
    ONLY_SEEN,
    Finding,
    describe_finding,
    find_targets,
    known_people,
    prediction_cautions,
)
from fcpower_bids.reports.cohort.methods import group_methods, read_choices
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Grid,
    GroupTables,
    Section,
    count,
    count_people,
    listed,
    missing,
    percent,
    say_p,
)
from fcpower_bids.reports.kit.methods import all_references, to_html, write_citations
from fcpower_bids.reports.kit.page import Panel, relative_link, render_page, write_page
from fcpower_bids.settings import Places
from fcpower_bids.settings.command import command_of

CHAPTERS: dict[str, Callable[[GroupTables], Iterator[Section]]] = {
    "check": people.check_chapter,
    "cohort": people.cohort_chapter,
    "motion": people.motion_chapter,
    "prediction": prediction.prediction_chapter,
    "sites": prediction.sites_chapter,
    "edges": edges.edges_chapter,
    "identification": prediction.identification_chapter,
    "exponent": curves.exponent_chapter,
    "screen": comparisons.screen_chapter,
    "controls": comparisons.controls_chapter,
    "curves": curves.curves_chapter,
    "sweep": comparisons.sweep_chapter,
    "encoders": comparisons.encoders_chapter,
    "spectrum": curves.spectrum_chapter,
    "privacy": prediction.privacy_chapter,
}
"""What makes the sections of each chapter, the first with its anchor, in the order of the page."""
SHOWN = (*ENDINGS, ".json", ".toml", ".md", ".bib")
"""Files of the folder that the page leads to."""
MOST_TARGETS = 12
MOST_SAID = 4
DESCRIPTIONS = ("motion", "spectrum")
"""Chapters that describe the cohort, whatever is asked of it."""
ALARM, NOTE = "alarm", "note"
"""Levels of the findings of the check."""
FEW_IDENTIFIED = 20
"""Fewer people in the identification get a caution."""
HEADLINE_WORDS = 20
MOST_NAMED = 3
"""Targets that a headline names."""
ANSWERS = {
    FOUND: ("{} can be predicted better than chance.", "{} can be predicted within sites."),
    NOT_FOUND: ("Nothing predicts {} detectably.", "Nothing beyond the site was shown for {}."),
    NOT_DECIDED: ("For {} the permutations are too few to decide.",) * 2,
    NOT_TESTED: ("Whether {} can be predicted was not tested against chance.",) * 2,
    ONLY_SEEN: ("For {} there is no score: every encoder was trained on these people.",) * 2,
}
"""Sentences for the targets of a state: those that do not go with the site, and those that do."""


@dataclass(frozen=True)
class GroupVerdict:
    """First lines of the page."""

    level: str  # ``ok``, ``caution`` or ``stop``
    headline: str  # of some 20 words
    facts: tuple[tuple[str, str], ...] = ()  # label and value
    # a question, the sentences that answer it, the anchor of the section behind it
    findings: tuple[tuple[str, tuple[str, ...], str], ...] = ()
    further: tuple[tuple[str, str, str], ...] = ()  # of each further analysis and target: title, answer, anchor
    cautions: tuple[str, ...] = ()  # limits of the findings
    overview: Grid | None = None  # targets against representations
    figures: tuple[Panel, ...] = ()  # figures of prediction and identification
    answers: tuple[str, ...] = ()  # all sentences, of which the headline has the first


# Pages


def write_group_report(settings: Places) -> tuple[Path, list[str]]:
    """Write ``group.html``, or ``group_NAME.html``, and the index where there are several. Raises Incomplete.

    Returns the page and the results in short, line by line.
    """
    tables = GroupTables(settings)
    sections = make_sections(tables)
    methods = problem = ""
    try:
        methods = group_methods(tables)
        if methods:
            write_citations(tables.root, settings.results, methods)
    except Exception as error:
        methods, problem = "", f"The methods text could not be made. {tables.explain(error, 'methods')}"
    verdict = judge_cohort(tables, sections)
    files = [path for path in sorted(settings.results.glob("*")) if path.name.endswith(SHOWN)]
    text = render_page(
        "group.html",
        command=command_of(read_choices(tables)),
        methods=Markup(to_html(methods, all_references(), level=1)) if methods else "",
        without_methods=problem,
        title=f"Group report: {settings.name}" if settings.name else "Group report",
        dataset=settings.bids_dir.resolve().name,
        verdict=verdict,
        sections=sections,
        links=[(path.name, relative_link(path, tables.root)) for path in files],
    )
    page = write_page(settings.results_page, text)
    if tables.failures:
        reasons = " ".join(tables.failures.values())
        raise Incomplete(f"A part of {page.name} is missing. {reasons}") from tables.causes[0]
    return page, short_answers(verdict, tables)


def make_sections(tables: GroupTables) -> list[Section]:
    """Make every section that has tables, in the order of the page; where one cannot be made, it says why."""
    sections: list[Section] = []
    for anchor, make in CHAPTERS.items():
        try:
            sections += list(make(tables))
        except Exception as error:
            said = f"This part could not be made. {tables.explain(error, anchor)}"
            sections.append(Section(anchor, anchor.capitalize(), (said,)))
    return sections


# The first lines


def judge_cohort(tables: GroupTables, sections: Sequence[Section] = ()) -> GroupVerdict:
    """Sum up the tables of the group level; where that fails, say so."""
    try:
        verdict = _judge(tables, sections)
    except Exception as error:
        verdict = GroupVerdict("stop", f"The tables could not be summed up. {tables.explain(error, 'summary')}")
    broken = tuple(f"{problem} What it would show is left out." for problem in tables.problems.values())
    broken += tuple(f"A part of this page is missing. {failure}" for failure in tables.failures.values())
    level = "caution" if broken and verdict.level == "ok" else verdict.level
    return replace(verdict, level=level, cautions=broken + verdict.cautions)


def _judge(tables: GroupTables, sections: Sequence[Section]) -> GroupVerdict:
    targets, checked = find_targets(tables), tables.rows("check")
    answers = [
        (f"Prediction of {finding.target}", tuple(describe_finding(finding, tables)), "prediction")
        for finding in targets[:MOST_TARGETS]
    ]
    if len(targets) > MOST_TARGETS:
        answers.append((f"{len(targets) - MOST_TARGETS} more targets", ("See the table.",), "prediction"))
    if identified := prediction.describe_identification(tables):
        answers.append(("Identification across sessions", tuple(identified), "identification"))
    further = tuple(
        (section.title, said, section.anchor) for section in sections for said in section.answers[:MOST_TARGETS]
    )
    serious = checked[checked["level"] != NOTE] if len(checked) else checked
    cautions = [f"{row['finding']} {row['consequence']}" for row in serious.to_dict("records")]
    cautions += prediction_cautions(targets, tables)
    n = int(tables.facts("identification").get("NumberOfPeople", FEW_IDENTIFIED))
    if n < FEW_IDENTIFIED:
        cautions.append(f"Identification among {count_people(n)} is easy; accuracy falls as the group grows.")
    was_checked = tables.has("check")
    done = tuple(name for name in tables.done if name != "check")
    level = "stop" if not (answers or further or was_checked or done) else "caution" if cautions else "ok"
    said = _sentences(targets, tables, further) or [_without_headline(done, was_checked)]
    alarms = int((checked["level"] == ALARM).sum()) if len(checked) else 0
    if alarms:
        said.insert(0, f"The check found {count(alarms, 'thing')} that would mislead; read it first.")
    room = [len(" ".join(said[: n + 1]).split()) <= HEADLINE_WORDS for n in range(len(said))]
    return GroupVerdict(
        level,
        " ".join(said[: max(1, sum(room))]),
        tuple(_facts(tables)),
        tuple(answers),
        further,
        tuple(cautions),
        prediction.targets_by_representation(targets, tables),
        prediction.first_figures(targets, tables),
        tuple(said),
    )


def short_answers(verdict: GroupVerdict, tables: GroupTables) -> list[str]:
    """Return the results as lines for a terminal: a number, its interval and p for each target and each analysis."""
    lines = []
    for finding in find_targets(tables):
        if finding.state == ONLY_SEEN:
            lines.append(f"{finding.target}: no score, since every encoder was trained on these people")
            continue
        where, name = " within sites" if finding.is_within else "", tables.title(finding.best)
        column = finding.leading if finding.is_within else f"{finding.score}_{POOLED_MEAN}"
        line = f"{finding.target}: {finding.label} {float(finding.summary[column].iloc[0]):.2f}{where} with {name}"
        if not missing(finding.p):
            needed = float(finding.summary["score_needed"].max())
            line += f", {say_p(finding.p)} (chance stays below {needed:.2f} in 95 of 100 cohorts)"
        lines.append(f"{line}: {finding.state}")
        if finding.added is not None:
            lines.append(f"  {finding.added.clause(name)}")
    lines += [sentence.removesuffix(".") for sentence in prediction.describe_identification(tables)]
    lines += [f"{title}: {said.removesuffix('.')}" for title, said, _ in verdict.further]
    return [*lines, *(f"{label}: {value}" for label, value in verdict.facts if label.startswith("Left out"))]


def _without_headline(done: Sequence[str], checked: bool) -> str:
    """Summary where no person was predicted or identified."""
    if done:
        return f"{listed([name.replace('_', ' ') for name in done], 4)}: done; the page has the tables."
    if checked:
        return "The cohort was checked; no analysis was done."
    return "There are no results of the group level yet."


def _sentences(targets: list[Finding], tables: GroupTables, further: Sequence[tuple[str, str, str]]) -> list[str]:
    """Answers of the page, the shortest of each kind first: the headline takes as many as it has room for."""
    said: list[str] = []
    for state, by_site in product(ANSWERS, (False, True)):
        names = [finding.target for finding in targets if finding.state == state and bool(finding.site) == by_site]
        if names:
            said.append(ANSWERS[state][by_site].format(listed(names, MOST_NAMED)))
    rows = prediction.identification_rows(tables, unseen=True)
    if len(rows):
        said.append(_identified(rows.iloc[0], tables))
    said += [_beside_site(finding, tables) for finding in targets if finding.site and finding.state != ONLY_SEEN]
    for finding in targets:
        if not finding.site and finding.added is not None and finding.state == FOUND:
            said.append(_beside_known(finding, tables))
    said += [text for _, text, anchor in further if anchor == "edges" and (not said or text.startswith(edges.ANSWERS))]
    if not said and further:
        answered = list(dict.fromkeys(text for _, text, anchor in further if anchor not in DESCRIPTIONS))
        said += [*answered[:MOST_SAID], *(["More answers are below."] if len(answered) > MOST_SAID else [])]
        said = said or ["Nothing was predicted or identified; the cohort is described below."]
    return said


def _beside_known(finding: Finding, tables: GroupTables) -> str:
    """The gain of the connectome over what is known without a scan."""
    assert finding.added is not None
    return f"{finding.target}, {finding.label}: {finding.added.clause(tables.title(finding.best))}."


def _beside_site(finding: Finding, tables: GroupTables) -> str:
    """The comparison with the best predictor without a scan, since a score that the site gives is no finding."""
    if finding.state == FOUND and finding.added is not None:
        return _beside_known(finding, tables)
    if finding.state == FOUND:
        return f"{finding.target}: {finding.beside_site('where')}; more than the site was shown."
    if finding.state == NOT_FOUND:
        return f"{finding.target}: {finding.beside_site('but')}: nothing beyond the site was shown."
    return f"{finding.target}: {finding.beside_site('and')}; whether there is more than the site is not decided."


def _identified(best: pd.Series, tables: GroupTables) -> str:
    """Of the representation that finds most people; a share that chance may give is not called an identification."""
    share = percent(best["accuracy"])
    if best["p_permutation"] >= SIGNIFICANT:
        return f"No person is identified better than by chance (at most {share} of the searches find the person)."
    within = "" if missing(best["accuracy_within"]) else f", {percent(best['accuracy_within'])} within the own site"
    return f"{tables.title(best['representation'])} identifies {share} of the scans{within}."


def _facts(tables: GroupTables) -> Iterator[tuple[str, str]]:
    scans, excluded, left_out = (tables.rows(name) for name in ("scans", "excluded", "left_out"))
    if len(scans):
        yield "In the cohort", f"{count_people(scans['participant_id'].nunique())}, {count(len(scans), 'scan')}"
    if predicted := known_people(tables):
        yield "Prediction", predicted
    facts = tables.facts("identification")
    if "NumberOfPeople" in facts:
        yield "Identification", f"{count_people(facts['NumberOfPeople'])}, {count(int(facts['NumberOfScans']), 'scan')}"
    if len(left_out):
        states = left_out["state"].astype(str).value_counts()
        yield "Analyses without tables", ", ".join(f"{n} {state}" for state, n in states.items())
    kinds = excluded["what"].astype(str).value_counts().items() if len(excluded) else ()
    yield "Left out", ", ".join(count(int(n), str(kind)) for kind, n in kinds) or "nothing"
