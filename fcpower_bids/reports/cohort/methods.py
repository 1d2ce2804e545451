"""The methods text of the group level, from the settings and the sidecars of the tables that are there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fcpower_bids.analyses.transform_screen import SCREEN
from fcpower_bids.cohort.inclusion import COUNTED, EMBEDDING
from fcpower_bids.encoders import PUBLISHED, name_of_weights
from fcpower_bids.encoders.checkpoints import SEEN
from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.roots import PREPROCESSED
from fcpower_bids.outputs.tables import Facts, read_toml
from fcpower_bids.reports.cohort.findings import known_people
from fcpower_bids.reports.cohort.tables import GroupTables
from fcpower_bids.reports.methods import fill, fill_part
from fcpower_bids.reports.page import count
from fcpower_bids.settings.options import HOLD_OUT, as_class, is_composite

SELECTIONS = {"task_id": "the tasks", "session_label": "the sessions"}
"""Choices of recordings, as the text calls them."""
OVER = {"pooled": "over all inner folds together", "mean": "averaged over the inner folds"}
SCORES = {
    "pearson": "correlation of prediction and target",
    "mse": "mean squared error",
    "predictive_cod": "predictive coefficient of determination",
}
SHOWN = ("criterion", "transform", "representation", "participant_id", "alpha", "n_people", "minutes", "atlas", "sites")
"""Columns whose values the text names or counts."""
EDGES = "edges"
PARAGRAPHS = (
    ("alpha_selection", "alpha", "alpha_selection"),
    ("edges", "edges_summary", EDGES),
    ("transform_screen", "transform_screen", "screen"),
    ("spectral_controls", "spectral_controls", "controls"),
    ("spectrum_geometry", "spectrum_path", "geometry"),
    ("learning_curves", "learning_curves", "learning"),
    ("learning_curves", "identification_curves", "identification_curves"),
    ("parcellation_sweep", "parcellation_sweep", "sweep"),
    ("encoder_comparison", "encoders", "encoders"),
)
"""Analysis, the table that its paragraph is about, and the template in ``data/boilerplate``."""


def read_choices(tables: GroupTables) -> dict[str, Any]:
    """Return the choices that the tables were made by; nothing where the file is not there or damaged."""
    path = tables.settings.results_record
    try:
        return Facts(path, read_toml(path))
    except (OSError, ValueError, DatasetError):
        return {}


def counted_kinds(chosen: Mapping[str, Any]) -> tuple[str, ...]:
    """Kinds of what is left out that count; embeddings where they are among the representations."""
    embedded = any(name.startswith("embedding") for name in chosen.get("representations", ()))
    return (*COUNTED, EMBEDDING) if embedded else COUNTED


def group_methods(tables: GroupTables) -> str:
    """Return the text as Markdown with pandoc's citations; empty where no choices are noted. Raises DatasetError."""
    if not (chosen := read_choices(tables)):
        return ""
    done = [name for name in tables.done if name != "prediction" or len(tables.rows("prediction_summary"))]
    facts = {
        "prediction": tables.facts("prediction") if "prediction" in done else {},
        "identification": tables.facts("identification") if "fingerprinting" in done else {},
    }
    motion = tables.facts("qcfc_summary") if "qc_fc" in done else {}
    beside_motion = list(map(str, motion.get("Covariates", [])))  # what was taken off edges and motion
    if motion and (pd.to_numeric(tables.rows("qcfc_summary")["n_sites"], errors="coerce") > 1).any():
        beside_motion.append("the sites")
    texts = {
        name: fill_part(f"{name}.md", one=_describe(tables, table), chosen=chosen, **facts)
        for analysis, table, name in PARAGRAPHS
        if analysis in done and len(tables.rows(table))
    }
    scans, excluded = tables.rows("scans"), tables.rows("excluded")
    kinds = excluded["what"].value_counts().to_dict()
    trained = excluded.loc[excluded["reason"].astype(str).str.endswith(SEEN.partition("{}")[2]), "participant_id"]
    sidecars = (*facts.values(), tables.facts("edges_summary") if EDGES in texts else {}, motion)
    features = next((str(each["FeaturesOfAPerson"]) for each in sidecars if "FeaturesOfAPerson" in each), "")
    of_several = scans[scans["participant_id"].duplicated(keep=False)]
    if of_several.empty:
        features = ""
    elif features and not (of_several[["volumes", "seconds"]] > 0).any(axis=1).all():
        features += ", or by the mean of the connectivity of all scans where their lengths are not known"
    counted = counted_kinds(chosen)
    places = map(str, chosen["derivatives"])
    names = [place.partition("=")[0] if "=" in place else Path(place).name for place in places]
    selected = [(words, chosen[key]) for key, words in SELECTIONS.items() if chosen[key]]
    if labels := chosen["participant_label"]:
        selected.append((count(len(labels), "named person", "named people"), []))
    return fill(
        "group.md",
        chosen=chosen,
        record=tables.settings.results_record.name,
        imported=["other programs" if name == "list" else name for name in names if not PREPROCESSED.fullmatch(name)],
        selected=selected,
        features=features,
        own=[text for name, text in texts.items() if name == EDGES],
        further=[text for name, text in texts.items() if name != EDGES],
        motion=motion,
        beside_motion=beside_motion,
        **facts,
        n_people=scans["participant_id"].nunique(),
        n_scans=len(scans),
        timed=scans["seconds"].notna().any(),
        several_runs=bool((scans["n_runs"] > 1).any()),
        cleaning=list(_cleaning(tables.facts("scans").get("Cleaning") or {})),
        left_out=[count(int(number), str(kind)) for kind, number in kinds.items() if kind in counted],
        encoder=chosen.get("encoder") if EMBEDDING in counted else None,
        weights=name_of_weights(chosen["encoder_weights"]) if chosen.get("encoder_weights") else "",
        published=PUBLISHED.get(chosen.get("encoder", ""), ""),
        seen=count(trained.nunique(), "person", "people") if EMBEDDING in counted and len(trained) else "",
        **(_prediction(facts["prediction"], chosen, tables) if facts["prediction"] else {}),
    )


def _cleaning(facts: Mapping[str, Any]) -> Iterator[str]:
    """Cleaning from the sidecars of the series, in parts of a sentence."""
    if "NuisanceStrategy" in facts:
        yield f'cleaned with the confound strategy "{facts["NuisanceStrategy"]}"'
    low, high = facts.get("PassBandHz", (None, None))
    if low and high:
        yield f"filtered between {low:g} and {high:g} Hz"
    elif low or high:
        yield f"filtered above {low:g} Hz" if low else f"filtered below {high:g} Hz"
    if thresholds := [f"{limit:g}" for limit in facts.get("CensoringThresholdsMillimetres", ()) if limit]:
        yield f"censored where the framewise displacement was above {' or '.join(thresholds)} mm"


def _prediction(facts: Mapping[str, Any], chosen: Mapping[str, Any], tables: GroupTables) -> dict[str, Any]:
    summary = tables.rows("prediction_summary")
    names = list(dict.fromkeys(map(str, summary["representation"])))
    embedded = any(name.startswith("embedding") for name in names)
    over, _, score = str(facts["Preset"]["selection"]).partition("_")
    composites = [item.partition("=") for item in chosen["targets"] if is_composite(item)]
    cuts = map(as_class, chosen["targets"])
    return {
        "preset": facts["Preset"],
        "targets": list(dict.fromkeys(map(str, summary["target"]))),
        "representations": [_raised(tables.title(name)) for name in names],
        "powered": "fc_power" in names,
        "predictor": f"kernel ridge regression with the {chosen['kernel']} kernel between people"
        + " (linear on z-scored features for embeddings)" * (embedded and chosen["kernel"] != "linear"),
        "cuts": {name: f"{column} of {number:g} or more" for name, column, number in filter(None, cuts)},
        "composites": [(name.strip(), [part.strip() for part in parts.split(",")]) for name, _, parts in composites],
        "by_site": chosen["sites"] == HOLD_OUT and "folds_file" not in chosen,
        "selection": f"{SCORES[score]} {OVER[over]}",
        "people": known_people(tables),
        "n_permutations": _count_permutations(summary),
        "compared": len(tables.rows("comparisons")) > 0,
        "importance": len(tables.rows("importance_networks")) > 0,
    }


def _count_permutations(rows: pd.DataFrame) -> int:
    """The largest number of permutations of any row; 0 where none were run."""
    return int(rows["n_permutations"].fillna(0).max()) if "n_permutations" in rows else 0


def _describe(tables: GroupTables, table: str) -> dict[str, Any]:
    """Facts of the sidecar of a table, and which values it has."""
    rows = tables.rows(table)
    about: dict[str, Any] = {"facts": tables.facts(table), "n_permutations": _count_permutations(rows)}
    if table == "edges_summary":
        n = (f"{number:,}" for number in (rows["n_people"].min(), rows["n_people"].max()))
        targets = list(dict.fromkeys(map(str, rows["target"])))
        return about | {"facts": tables.facts("edges"), "targets": targets, "people": " to ".join(dict.fromkeys(n))}
    shown = {column: rows[column].dropna().unique().tolist() for column in SHOWN if column in rows}
    references = rows.get("reference", pd.Series(dtype=object)).dropna().unique()
    power = SCREEN["fc_power"], tables.title("fc_power")
    return about | {
        "shown": shown,
        "titles": [_raised(tables.title(name)) for name in shown.get("representation", ())],
        "reference": " and ".join(_raised(tables.title(name)) for name in references),
        "transforms": [_raised(str(name).replace(*power)) for name in shown.get("transform", ())],
    }


def _raised(title: str) -> str:
    """Write an exponent as the text has it: ``FC^0.35^``."""
    return re.sub(r"\^([\d.α]+)", r"^\1^", title)
