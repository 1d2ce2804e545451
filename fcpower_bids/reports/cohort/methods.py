"""The methods text of the group level, from the settings and the sidecars of the tables that are there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fcpower_bids.analyses.spectrum.transform_screen import PAPER_SCREEN
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.finished_analyses import FinishedAnalyses
from fcpower_bids.outputs.tables import Facts, read_toml
from fcpower_bids.predictors import KERNEL_RIDGE, PREDICTORS, split_entry
from fcpower_bids.reports.cohort.findings import known_people
from fcpower_bids.reports.cohort.tables import GroupTables, count
from fcpower_bids.reports.kit.methods import fill
from fcpower_bids.settings.command import command_of
from fcpower_bids.transforms import TRANSFORMS

SELECTIONS = {"task_id": "the tasks", "session_label": "the sessions", "run_id": "the runs"}
"""Choices of recordings, as the text calls them."""
OVER = {"pooled": "over all inner folds together", "mean": "averaged over the inner folds"}
SCORES = {
    "pearson": "correlation of prediction and target",
    "mse": "mean squared error",
    "predictive_cod": "predictive coefficient of determination",
}
PREPROCESSED = re.compile(r"fmriprep\d*|nibabies")
"""Names of derivatives that are read at participant level."""
FURTHER = {
    "alpha_selection": (("alpha_selection", "alpha"),),
    "transform_screen": (("transform_screen", "transform_screen"),),
    "spectral_controls": (("spectral_controls", "spectral_controls"),),
    "spectrum_geometry": (("spectrum_geometry", "spectrum_path"),),
    "learning_curves": (("learning_curves", "learning_curves"), ("identification_curves", "identification_curves")),
    "parcellation_sweep": (("parcellation_sweep", "parcellation_sweep"),),
    "encoder_comparison": (("encoder_comparison", "encoders"),),
    "harmonisation": (("harmonisation", "harmonisation"),),
}
"""Analyses that have a sentence or two each: what the text calls them, and the tables that it follows."""
SHOWN = ("criterion", "transform", "representation", "participant_id", "alpha", "n_people", "minutes", "atlas", "sites")
"""Columns whose values the text names or counts."""


def read_choices(tables: GroupTables) -> dict[str, Any]:
    """Return the choices that the tables were made by; nothing where the file is not there or damaged."""
    path = tables.settings.results_record
    try:
        return Facts(path, read_toml(path))
    except (OSError, ValueError, DatasetError):
        return {}


def group_methods(tables: GroupTables) -> str:
    """Return the text as Markdown with pandoc's citations; empty where nobody noted the choices.

    Every analysis is told whose tables belong to these choices, and no other.

    Raises
    ------
    DatasetError
        A sidecar or the choices lack an entry.
    """
    chosen = read_choices(tables)
    if not chosen:
        return ""
    untold = {*tables.rows("left_out").get("analysis", ()), *_unread(tables)}
    done = [name for name in FinishedAnalyses(tables.settings.results).names if name not in untold]
    facts = {
        "prediction": tables.facts("prediction") if "prediction" in done else {},
        "identification": tables.facts("identification") if "fingerprinting" in done else {},
        "edges": tables.facts("edges") if "edges" in done else {},
        "motion": tables.facts("qcfc_summary") if "qc_fc" in done else {},
    }
    return fill(
        "group.md",
        chosen=chosen,
        command=command_of(chosen),
        imported=_imported(chosen),
        selected=list(_selected(chosen)),
        features=_features(facts.values(), chosen),
        further=_further(done, tables),
        **facts,
        **_cohort(tables),
        **(_prediction(facts["prediction"], chosen, tables) if facts["prediction"] else {}),
        **(_edges(tables) if facts["edges"] else {}),
    )


def _unread(tables: GroupTables) -> Iterator[str]:
    """Analyses whose table of results is damaged, which the page says: the text is silent of them."""
    for analysis, table in {"prediction": "prediction_summary", "edges": "edges_summary"}.items():
        if tables.frame(table) is None:
            yield analysis


def _features(facts: Iterable[Mapping[str, Any]], chosen: Mapping[str, Any]) -> str:
    """What a person with several scans is described by, as one of the sidecars says it."""
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
        "cleaning": list(_cleaning(tables.facts("scans").get("Cleaning") or {})),
        "left_out": [count(int(number), str(kind)) for kind, number in kinds.items()],
    }


def _cleaning(facts: Mapping[str, Any]) -> Iterator[str]:
    """What the sidecars of the series say, in parts of a sentence."""
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
    entries = list(dict.fromkeys(map(str, summary["representation"])))
    names = list(dict.fromkeys(part for one in entries for part in split_entry(one)[0].split("+")))
    over, _, score = str(facts["Preset"]["selection"]).partition("_")
    return {
        "preset": facts["Preset"],
        "targets": list(dict.fromkeys(map(str, summary["target"]))),
        "representations": [_raised(tables.title(name)) for name in names],
        "powered": "fc_power" in names,
        "predictors": [_predictor(name, facts, chosen, names) for name in facts["Predictors"]],
        "composites": [_composite(one) for one in chosen["composite"]],
        "by_site": chosen["hold_out_sites"] and "folds_file" not in chosen and "test_people" not in chosen,
        "selection": f"{SCORES[score]} {OVER[over]}",
        "fitted": [_raised(tables.title(one)) for one in names if one in TRANSFORMS and not TRANSFORMS[one].stateless],
        "people": known_people(tables),
        "n_permutations": _permutations(summary),
        "compared": len(tables.rows("comparisons")) > 0,
        "importance": len(tables.rows("importance_networks")) > 0,
    }


def _predictor(name: str, facts: Mapping[str, Any], chosen: Mapping[str, Any], representations: list[str]) -> str:
    """What predicts, as a part of a sentence."""
    if name != KERNEL_RIDGE:
        said = str(PREDICTORS[name].summary).rstrip(".")
        return said[0].lower() + said[1:]
    other = any(one.startswith("embedding") for one in representations) and chosen["kernel"] != "linear"
    said = f"kernel ridge regression with the {chosen['kernel']} kernel between people"
    return said + (" (linear on z-scored features for embeddings)" if other else "")


def _permutations(summary: Any) -> int:
    return int(summary["n_permutations"].fillna(0).max()) if "n_permutations" in summary else 0


def _edges(tables: GroupTables) -> dict[str, Any]:
    summary = tables.rows("edges_summary")
    return {
        "edge_targets": list(dict.fromkeys(map(str, summary["target"]))),
        "edge_people": " to ".join(
            dict.fromkeys(f"{n:,}" for n in (summary["n_people"].min(), summary["n_people"].max()))
        ),
        "n_edge_permutations": _permutations(summary),
    }


def _further(done: Iterable[str], tables: GroupTables) -> dict[str, dict[str, Any]]:
    """What the text says of the analyses that have a sentence or two; nothing of one that was not done."""
    told: dict[str, dict[str, Any]] = {called: {} for pairs in FURTHER.values() for called, _ in pairs}
    there = [(called, table) for name in done for called, table in FURTHER.get(name, ()) if len(tables.rows(table))]
    return told | {called: _told(called, table, tables) for called, table in there} if there else {}


def _told(called: str, table: str, tables: GroupTables) -> dict[str, Any]:
    """Facts of a sidecar, and which values its table has."""
    rows = tables.rows(table)
    if called == "parcellation_sweep":
        rows = rows[rows["people"] == "shared"]
    shown = {column: rows[column].dropna().unique().tolist() for column in SHOWN if column in rows}
    names = rows["reference"].dropna().unique() if "reference" in rows else ()
    return {
        "facts": tables.facts(table),
        "shown": shown,
        "titles": [_raised(tables.title(str(name))) for name in shown.get("representation", ())],
        "transforms": [
            _raised(str(name).replace(PAPER_SCREEN["fc_power"], tables.title("fc_power")))
            for name in shown.get("transform", ())
        ],
        "reference": " and ".join(_raised(tables.title(str(name))) for name in names),
        "n_permutations": _permutations(rows),
    }


def _raised(title: str) -> str:
    """Write an exponent as the text has it: ``FC^0.35^``."""
    return re.sub(r"\^([\d.α]+)", r"^\1^", title)
