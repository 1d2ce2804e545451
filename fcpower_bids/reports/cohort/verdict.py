"""The first lines of the group page: questions, findings and limits, in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from fcpower_bids.analyses.evaluate import POOLED_MEAN
from fcpower_bids.core.differences import adjust_p_values
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
from fcpower_bids.reports.cohort.first_look import first_figures, targets_by_representation
from fcpower_bids.reports.cohort.pretraining_overlap import seen_rows
from fcpower_bids.reports.cohort.sections import page_parts
from fcpower_bids.reports.cohort.sections.identification import describe_identification, identification_rows
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Grid,
    GroupTables,
    Section,
    count,
    listed,
    missing,
    percent,
    say_p,
)
from fcpower_bids.reports.kit.panel import Panel

MOST_TARGETS = 12
MOST_SAID = 4
DESCRIPTIONS = ("motion", "spectrum")
"""Parts that describe the cohort, whatever is asked of it."""
ALARM, NOTE = "alarm", "note"
"""Levels of the findings of the check."""
FEW_IDENTIFIED = 20
"""Fewer people in the identification get a caution."""


HEADLINE_WORDS = 20
MOST_NAMED = 3
"""Targets that a headline names."""
ANSWERS = (
    ("{} can be predicted better than chance.", FOUND, False),
    ("{} can be predicted within sites.", FOUND, True),
    ("Nothing predicts {} detectably.", NOT_FOUND, False),
    ("Nothing beyond the site was shown for {}.", NOT_FOUND, True),
    ("For {} the permutations are too few to decide.", NOT_DECIDED, False),
    ("For {} the permutations are too few to decide.", NOT_DECIDED, True),
    ("Whether {} can be predicted was not tested against chance.", NOT_TESTED, False),
    ("Whether {} can be predicted was not tested against chance.", NOT_TESTED, True),
    ("For {} there is no score: every encoder was trained on these people.", ONLY_SEEN, False),
    ("For {} there is no score: every encoder was trained on these people.", ONLY_SEEN, True),
)
"""Sentence for the targets of a state, and whether they go with the site."""


@dataclass(frozen=True)
class GroupVerdict:
    """First lines of the page."""

    level: str  # ``ok``, ``caution`` or ``stop``
    headline: str  # of some 20 words
    facts: tuple[tuple[str, str], ...]  # label and value
    # a question, the sentences that answer it, the anchor of the section behind it
    findings: tuple[tuple[str, tuple[str, ...], str], ...]
    further: tuple[tuple[str, str, str], ...]  # of each further analysis and target: title, answer, anchor
    cautions: tuple[str, ...]  # limits of the findings
    overview: Grid | None = None  # targets against representations
    figures: tuple[Panel, ...] = ()  # figures of prediction and identification
    answers: tuple[str, ...] = ()  # all sentences, of which the headline has the first
    # mark of the results in the index: ``ok`` where something was found, ``caution`` where the check alarms or a part
    # failed, ``open`` where nothing was found or tested, ``stop`` where there is nothing
    mark: str = "stop"


def judge_cohort(tables: GroupTables, sections: Sequence[Section] = ()) -> GroupVerdict:
    """Sum up the tables of the group level; where that fails, say so."""
    try:
        verdict = _judge(tables, sections)
    except Exception as error:
        said = f"The tables could not be summed up. {tables.explain(error, 'summary')}"
        verdict = GroupVerdict("stop", said, (), (), (), ())
    broken = tuple(f"{problem} What it would show is left out." for problem in tables.problems.values())
    broken += tuple(f"A part of this page is missing. {failure}" for failure in tables.failures.values())
    level = "caution" if broken and verdict.level == "ok" else verdict.level
    mark = "caution" if broken else verdict.mark
    return replace(verdict, level=level, mark=mark, cautions=broken + verdict.cautions)


def _judge(tables: GroupTables, sections: Sequence[Section]) -> GroupVerdict:
    targets = find_targets(tables)
    answers = [
        (f"Prediction of {finding.target}", tuple(describe_finding(finding, tables)), "prediction")
        for finding in targets[:MOST_TARGETS]
    ]
    if len(targets) > MOST_TARGETS:
        answers.append((f"{len(targets) - MOST_TARGETS} more targets", ("See the table.",), "prediction"))
    identified = describe_identification(tables)
    if identified:
        answers.append(("Identification across sessions", tuple(identified), "identification"))
    quoted = {part.anchor for part in page_parts() if part.quoted}
    further = tuple(
        (part.title, said, part.anchor)
        for part in sections
        if part.anchor in quoted
        for said in part.answers[:MOST_TARGETS]
    )
    warned = warnings_of(tables)
    cautions = (*warned, *prediction_cautions(targets, tables))
    cautions += tuple(_identification_cautions(tables))
    checked = tables.frame("check_pairs") is not None or tables.has("check")
    done = tuple(name for name in tables.done if name != "check")
    level = "stop" if not (answers or further or checked or done) else "caution" if cautions else "ok"
    said = _sentences(targets, tables, further) or [_without_headline(done, tables, checked)]
    if alarms := count_alarms(tables):
        said.insert(0, f"The check found {count(alarms, 'thing')} that would mislead; read it first.")
    room = [len(" ".join(said[: n + 1]).split()) <= HEADLINE_WORDS for n in range(len(said))]
    headline = " ".join(said[: max(1, sum(room))])
    overview = targets_by_representation(targets, tables)
    failed = sum(str(state) == "failed" for state in tables.rows("left_out").get("state", ()))
    mark = "stop" if level == "stop" else "caution" if alarms or failed else _mark(targets, tables)
    facts, figures = tuple(_facts(tables)), first_figures(targets, tables)
    return GroupVerdict(level, headline, facts, tuple(answers), further, cautions, overview, figures, tuple(said), mark)


def short_answers(verdict: GroupVerdict, tables: GroupTables) -> list[str]:
    """Return the results as lines for a terminal: a number, its interval and p for each target and each analysis."""
    lines = []
    for finding in find_targets(tables):
        best = finding.summary.iloc[0]
        if finding.state == ONLY_SEEN:
            lines.append(f"{finding.target}: no score, since every encoder was trained on these people")
            continue
        where = " within sites" if finding.is_within else ""
        value = float(best[finding.leading] if finding.is_within else best[f"{finding.score}_{POOLED_MEAN}"])
        line = f"{finding.target}: {finding.label} {value:.2f}{where} with {tables.title(str(best['representation']))}"
        if finding.p == finding.p:
            needed = float(finding.summary["score_needed"].max())
            line += f", {say_p(finding.p)} (chance stays below {needed:.2f} in 95 of 100 cohorts)"
        lines.append(f"{line}: {finding.state}")
        if finding.added is not None:
            lines.append(f"  {finding.added.clause(tables.title(str(best['representation'])))}")
    lines += [sentence.removesuffix(".") for sentence in describe_identification(tables)]
    lines += [f"{title}: {said.removesuffix('.')}" for title, said, _ in verdict.further]
    return [*lines, *(f"{label}: {value}" for label, value in verdict.facts if label.startswith("Left out"))]


def _mark(targets: Sequence[Finding], tables: GroupTables) -> str:
    if any(one.state == FOUND for one in targets):
        return "ok"
    rows = identification_rows(tables)
    rows = rows[~seen_rows(rows)]
    return "ok" if len(rows) and (rows["p_permutation"] < SIGNIFICANT).any() else "open"


def _without_headline(done: Sequence[str], tables: GroupTables, checked: bool) -> str:
    """Summary where no person was predicted or identified."""
    if done:
        return f"{listed([name.replace('_', ' ') for name in done], 4)}: done; the page has the tables."
    return (
        "The cohort was checked; no analysis was done." if checked else "There are no results of the group level yet."
    )


def _sentences(targets: list[Finding], tables: GroupTables, further: Sequence[tuple[str, str, str]]) -> list[str]:
    """Answers of the page, the shortest of each kind first: the headline takes as many as it has room for."""
    said: list[str] = []
    for sentence, state, by_site in ANSWERS:
        names = [one.target for one in targets if one.state == state and bool(one.site) == by_site]
        if names:
            said.append(sentence.format(listed(names, MOST_NAMED)))
    rows = identification_rows(tables)
    rows = rows[~seen_rows(rows)]
    if len(rows):
        said.append(_identified(rows.iloc[0], tables))
    said += [_beside_site(one, tables) for one in targets if one.site and one.state != ONLY_SEEN]
    said += _beside_known([one for one in targets if not one.site], tables)
    answers = {part.anchor: part.answers for part in page_parts()}
    said += [one for _, one, anchor in further if answers[anchor] and (not said or one.startswith(answers[anchor]))]
    if not said and further:
        answered = list(dict.fromkeys(said for _, said, anchor in further if anchor not in DESCRIPTIONS))
        said += [*answered[:MOST_SAID], *(["More answers are below."] if len(answered) > MOST_SAID else [])]
        said = said or ["Nothing was predicted or identified; the cohort is described below."]
    return [*said, *_of_all_analyses(tables)]


def _of_all_analyses(tables: GroupTables) -> Iterator[str]:
    """Correct what the analyses of this page found for their number, as they have no permutations in common."""
    asked = {part.anchor: part.smallest_p(tables) for part in page_parts() if part.smallest_p}
    tested = {name: p for name, p in asked.items() if not missing(p)}
    if len(tested) < 2 or min(tested.values()) >= SIGNIFICANT:
        return
    corrected = dict(zip(tested, adjust_p_values(list(tested.values())).tolist(), strict=True))
    yield f"Corrected for {len(tested)} analyses (Holm): {', '.join(f'{a} {say_p(p)}' for a, p in corrected.items())}."
    if lost := [name for name, p in tested.items() if p < SIGNIFICANT <= corrected[name]]:
        yield f"Significant by itself alone, and no finding of this page: {listed(lost)}."


def _beside_known(targets: Sequence[Finding], tables: GroupTables) -> Iterator[str]:
    """Yield the gain of the connectome over what is known without a scan, of each predicted target."""
    for finding in targets:
        if finding.added is not None and finding.state == FOUND:
            name = tables.title(str(finding.summary["representation"].iloc[0]))
            yield f"{finding.target}, {finding.label}: {finding.added.clause(name)}."


def _beside_site(finding: Finding, tables: GroupTables) -> str:
    """The comparison with the best predictor without a scan, since a score that the site gives is no finding."""
    if finding.state == FOUND and finding.added is not None:
        return next(_beside_known([finding], tables))
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
    return f"{tables.title(str(best['representation']))} identifies {share} of the scans{within}."


def _facts(tables: GroupTables) -> list[tuple[str, str]]:
    facts = []
    scans, excluded = tables.frame("scans"), tables.frame("excluded")
    if scans is not None:
        n = scans["participant_id"].nunique()
        facts.append(("In the cohort", f"{count(n, 'person', 'people')}, {count(len(scans), 'scan')}"))
    if predicted := known_people(tables):
        facts.append(("Prediction", predicted))
    identified = tables.facts("identification")
    if "NumberOfPeople" in identified:
        people = count(int(identified["NumberOfPeople"]), "person", "people")
        facts.append(("Identification", f"{people}, {count(int(identified['NumberOfScans']), 'scan')}"))
    left_out = tables.frame("left_out")
    if left_out is not None:
        states = left_out["state"].astype(str).value_counts()
        facts.append(("Analyses without tables", ", ".join(f"{n} {state}" for state, n in states.items())))
    if excluded is None:
        return [*facts, ("Left out", "nothing")]
    kinds = excluded["what"].astype(str).value_counts()
    facts.append(("Left out", ", ".join(count(int(n), str(kind)) for kind, n in kinds.items())))
    return facts


def _identification_cautions(tables: GroupTables) -> list[str]:
    n = int(tables.facts("identification").get("NumberOfPeople", FEW_IDENTIFIED))
    if n >= FEW_IDENTIFIED:
        return []
    return [f"Identification among {count(n, 'person', 'people')} is easy; accuracy falls as the group grows."]


def count_alarms(tables: GroupTables) -> int:
    """Findings of the check without whose remedy the scores mislead."""
    found = tables.rows("check")
    return 0 if found.empty else int((found["level"] == ALARM).sum())


def warnings_of(tables: GroupTables) -> list[str]:
    """Every finding of the check that is more than a note, with its consequence."""
    found = tables.rows("check")
    if found.empty:
        return []
    serious = found[found["level"] != NOTE]
    return [f"{row.finding} {row.consequence}" for row in serious.itertuples()]
