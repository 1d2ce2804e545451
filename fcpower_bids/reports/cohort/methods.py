"""The methods text of the group level, from the settings and the sidecars of the tables that are there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.tables import Facts, read_toml
from fcpower_bids.registry import load
from fcpower_bids.reports.cohort.findings import known_people
from fcpower_bids.reports.cohort.tables import GroupTables, count
from fcpower_bids.reports.kit.methods import FOLDER, fill, fill_part
from fcpower_bids.settings.command import command_of
from fcpower_bids.settings.group import HOLD_OUT, is_composite
from fcpower_bids.transforms import TRANSFORMS

SELECTIONS = {"task_id": "the tasks", "session_label": "the sessions"}
"""Choices of recordings, as the text calls them."""
OVER = {"pooled": "over all inner folds together", "mean": "averaged over the inner folds"}
SCORES = {
    "pearson": "correlation of prediction and target",
    "mse": "mean squared error",
    "predictive_cod": "predictive coefficient of determination",
}
PREPROCESSED = re.compile(r"fmriprep\d*|nibabies")
"""Names of derivatives that are read at participant level."""
SHOWN = ("criterion", "transform", "representation", "participant_id", "alpha", "n_people", "minutes", "atlas", "sites")
"""Columns whose values the text names or counts."""


@dataclass(frozen=True)
class Paragraph:
    """Facts of the text about one table of a finished analysis."""

    analysis: str
    table: str
    # jinja; it sees ``one``, the facts of the paragraph, with ``chosen``, ``prediction`` and ``identification``
    template: Path
    # takes the `GroupTables` and the name of the table; returns ``one``
    facts: Callable[[GroupTables, str], Mapping[str, Any]]
    heading: bool = False  # whether it brings a heading of its own, or is a part of the further analyses


def read_choices(tables: GroupTables) -> dict[str, Any]:
    """Return the choices that the tables were made by; nothing where the file is not there or damaged."""
    path = tables.settings.results_record
    try:
        return Facts(path, read_toml(path))
    except (OSError, ValueError, DatasetError):
        return {}


FURTHER = (
    "edges:METHODS",
    "spectrum:METHODS_SCREEN",
    "spectrum:METHODS_CONTROLS",
    "geometry:METHODS",
    "curves:METHODS_LEARNING",
    "curves:METHODS_IDENTIFICATION",
    "curves:METHODS_SWEEP",
    "encoders:METHODS",
    "sites:METHODS",
)
"""Paragraphs of the further analyses, by their places in `sections`."""


def group_methods(tables: GroupTables) -> str:
    """Return the text as Markdown with pandoc's citations; empty where no choices are noted. Raises DatasetError."""
    chosen = read_choices(tables)
    if not chosen:
        return ""
    damaged = tables.frame("prediction_summary") is None  # which the page says
    done = [name for name in tables.done if not (name == "prediction" and damaged)]
    facts = {
        "prediction": tables.facts("prediction") if "prediction" in done else {},
        "identification": tables.facts("identification") if "fingerprinting" in done else {},
    }
    motion = tables.facts("qcfc_summary") if "qc_fc" in done else {}
    known = (*PARAGRAPHS, *(load(f"fcpower_bids.reports.cohort.sections.{place}") for place in FURTHER))
    parts = [one for one in known if one.analysis in done and len(tables.rows(one.table))]
    texts = {one: fill_part(one.template, one=one.facts(tables, one.table), chosen=chosen, **facts) for one in parts}
    headed = [tables.facts(one.table) for one in parts if one.heading]
    return fill(
        "group.md",
        chosen=chosen,
        command=command_of(chosen),
        imported=_imported(chosen),
        selected=list(_selected(chosen)),
        features=_features([*facts.values(), *headed, motion], chosen),
        own=[text for one, text in texts.items() if one.heading],
        further=[text for one, text in texts.items() if not one.heading],
        motion=motion,
        **facts,
        **_cohort(tables),
        **(_prediction(facts["prediction"], chosen, tables) if facts["prediction"] else {}),
    )


def _features(facts: Iterable[Mapping[str, Any]], chosen: Mapping[str, Any]) -> str:
    """Features of a person with several scans, from one of the sidecars."""
    said = next((str(one["FeaturesOfAPerson"]) for one in facts if "FeaturesOfAPerson" in one), "")
    return said if any(name.startswith("embedding") for name in chosen["representations"]) else said.partition(";")[0]


def _composite(item: str) -> tuple[str, list[str]]:
    name, _, columns = item.partition("=")
    return name.strip(), [column.strip() for column in columns.split(",")]


def _imported(chosen: Mapping[str, Any]) -> list[str]:
    """Names of the programs whose connectomes the cohort has."""
    names = [str(one).partition("=")[0] if "=" in str(one) else Path(one).name for one in chosen["derivatives"]]
    return ["other programs" if name == "list" else name for name in names if not PREPROCESSED.fullmatch(name)]


def _selected(chosen: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    for name, said in SELECTIONS.items():
        if chosen[name]:
            yield said, chosen[name]
    if chosen["participant_label"]:
        yield count(len(chosen["participant_label"]), "named person", "named people"), []


def _cohort(tables: GroupTables) -> dict[str, Any]:
    """Who took part, and what was left out."""
    scans, excluded = tables.rows("scans"), tables.rows("excluded")
    kinds = excluded["what"].value_counts().to_dict() if len(excluded) else {}
    return {
        "n_people": scans["participant_id"].nunique() if len(scans) else 0,
        "n_scans": len(scans),
        "combinations": sorted(set(scans.get("combination", ())) - {"none"}),
        "cleaning": list(_cleaning(tables.facts("scans").get("Cleaning") or {})),
        "left_out": [count(int(number), str(kind)) for kind, number in kinds.items()],
    }


def _cleaning(facts: Mapping[str, Any]) -> Iterator[str]:
    """Cleaning from the sidecars of the series, in parts of a sentence."""
    if "NuisanceStrategy" in facts:
        yield f'cleaned with the confound strategy "{facts["NuisanceStrategy"]}"'
    low, high = facts.get("PassBandHz", (None, None))
    if low and high:
        yield f"filtered between {low:g} and {high:g} Hz"
    elif low or high:
        yield f"filtered above {low:g} Hz" if low else f"filtered below {high:g} Hz"
    if thresholds := [f"{each:g}" for each in facts.get("CensoringThresholdsMillimetres", ()) if each]:
        yield f"censored where the framewise displacement was above {' or '.join(thresholds)} mm"


def _prediction(facts: Mapping[str, Any], chosen: Mapping[str, Any], tables: GroupTables) -> dict[str, Any]:
    summary = tables.rows("prediction_summary")
    names = list(dict.fromkeys(map(str, summary["representation"])))
    embedded = any(one.startswith("embedding") for one in names)
    over, _, score = str(facts["Preset"]["selection"]).partition("_")
    return {
        "preset": facts["Preset"],
        "targets": list(dict.fromkeys(map(str, summary["target"]))),
        "representations": [raised(tables.title(name)) for name in names],
        "powered": "fc_power" in names,
        "predictor": f"kernel ridge regression with the {chosen['kernel']} kernel between people"
        + " (linear on z-scored features for embeddings)" * (embedded and chosen["kernel"] != "linear"),
        "composites": [_composite(one) for one in chosen["targets"] if is_composite(one)],
        "by_site": chosen["sites"] == HOLD_OUT and "folds_file" not in chosen,
        "selection": f"{SCORES[score]} {OVER[over]}",
        "fitted": [raised(tables.title(one)) for one in names if one in TRANSFORMS and not TRANSFORMS[one].stateless],
        "people": known_people(tables),
        "n_permutations": count_permutations(summary),
        "compared": len(tables.rows("comparisons")) > 0,
        "importance": len(tables.rows("importance_networks")) > 0,
    }


def count_permutations(summary: pd.DataFrame) -> int:
    """The largest number of permutations of any row; 0 where none were run."""
    return int(summary["n_permutations"].fillna(0).max()) if "n_permutations" in summary else 0


def describe_table(tables: GroupTables, table: str) -> dict[str, Any]:
    """Facts of the sidecar of a table, and which values it has."""
    return describe_rows(tables.rows(table), table, tables)


def describe_rows(rows: pd.DataFrame, table: str, tables: GroupTables) -> dict[str, Any]:
    """Facts of the sidecar of a table, and which values these rows of it have."""
    shown = {column: rows[column].dropna().unique().tolist() for column in SHOWN if column in rows}
    names = rows["reference"].dropna().unique() if "reference" in rows else ()
    return {
        "facts": tables.facts(table),
        "shown": shown,
        "titles": [raised(tables.title(str(name))) for name in shown.get("representation", ())],
        "reference": " and ".join(raised(tables.title(str(name))) for name in names),
        "n_permutations": count_permutations(rows),
    }


def raised(title: str) -> str:
    """Write an exponent as the text has it: ``FC^0.35^``."""
    return re.sub(r"\^([\d.α]+)", r"^\1^", title)


PARAGRAPHS = (Paragraph("alpha_selection", "alpha", FOLDER / "alpha_selection.md", describe_table),)
