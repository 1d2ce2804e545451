"""A folder as the group level leaves it: real analyses of an invented cohort, their tables, quality tables, pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.cohort.inclusion import EXCLUDED_TABLE
from fcpower_bids.cohort.scans import SCANS
from fcpower_bids.outputs.group import LEFT_OUT
from fcpower_bids.outputs.tables import write_json, write_table
from fcpower_bids.records import Cohort, Table
from fcpower_bids.settings import Settings
from fcpower_bids.store import write_text

SETTINGS = {
    "targets": ("planted", "null", "group"),
    "repeats": 2,
    "folds": 5,
    "inner_folds": 3,
    "permutations": 39,
    "representations": ("fc", "fc_power", "embedding"),
    "quiet": True,
}

FURTHER = ("transform_screen", "spectral_controls", "spectrum_geometry", "learning_curves", "encoder_comparison")
"""Analyses that take a cohort, beside those that `write_group_outputs` runs."""


def make_cohort(n_people: int = 40, n_parcels: int = 12, seed: int = 1, names: tuple[str, ...] = ()) -> Cohort:
    """Invent people with two sessions; the strength of their first sources is the score ``planted``."""
    random = np.random.default_rng(seed)
    upper = np.triu_indices(n_parcels, 1)
    planted = random.standard_normal(n_people)
    base = random.standard_normal((n_parcels, n_parcels))
    edges, embedding, series = [], [], []
    for person in range(n_people):
        own = base + 0.3 * random.standard_normal((n_parcels, n_parcels))
        own[:4] *= np.exp(0.6 * planted[person])
        for _ in range(2):
            runs = random.standard_normal((90, n_parcels)) @ own + random.standard_normal((90, n_parcels))
            edges.append(np.corrcoef(runs.T)[upper])
            embedding.append(random.standard_normal(5))
            series.append(lambda runs=runs: [runs])
    people = [f"sub-{i:03d}" for i in range(n_people)]
    scans = pd.DataFrame(
        {
            "participant_id": np.repeat(people, 2),
            "session": ["ses-a", "ses-b"] * n_people,
            "seconds": 180.0,
            "mean_fd": random.gamma(2.0, 0.1, 2 * n_people),
            "n_runs": 1,
            "volumes": 90.0,
            "degrees_of_freedom": np.nan,
        }
    )
    phenotypes = pd.DataFrame(
        {
            "planted": planted,
            "null": random.standard_normal(n_people),
            "group": np.where(random.random(n_people) < 0.5, "F", "M"),
        },
        index=pd.Index(people, name="participant_id"),
    )
    excluded = pd.DataFrame(
        [["sub-001", "ses-c", "recording", "too much <b>motion</b>"], ["n/a", "n/a", "parcel", "p9: 20 % lack it"]],
        columns=["participant_id", "session", "what", "reason"],
    )
    return Cohort(
        scans=scans,
        edges=np.array(edges),
        parcels=names or tuple(f"parcel{i}" for i in range(n_parcels)),
        networks=tuple(("Vis", "SomMot", "Default")[i % 3] for i in range(n_parcels)),
        phenotypes=phenotypes,
        excluded=excluded,
        embeddings={"toy": np.array(embedding)},
        series=tuple(series),
        repetition_times=(2.0,) * (2 * n_people),
        notes=("The table participants.tsv was used.",),
    )


def write_group(settings: Settings, cohort: Cohort, analyses: tuple[str, ...]) -> None:
    """Run the analyses and write their tables as the group level does."""
    tables = {"excluded": Table(cohort.excluded, EXCLUDED_TABLE)}
    for name in analyses:
        tables |= ANALYSES[name](cohort, settings)
    for name, table in tables.items():
        write_one(settings.output_dir / "group", name, table)


def write_further(settings: Settings, cohort: Cohort) -> None:
    """Write the tables of every analysis that `write_group_outputs` does not run, and what could not be done."""
    group = settings.output_dir / "group"
    write_group(settings, cohort, FURTHER)
    coarse = replace(make_cohort(len(cohort.phenotypes), 6), phenotypes=cohort.phenotypes)
    atlases = {"atlas-toy_scale-12": cohort, "atlas-toy_scale-6": coarse}
    left_out = Table(
        pd.DataFrame([["qc_fc", "Nobody <i>moved</i>."]], columns=["analysis", "reason"]).assign(state="left out"),
        LEFT_OUT,
    )
    scans = Table(cohort.scans, SCANS)
    for name, table in (
        ANALYSES["parcellation_sweep"](atlases, settings) | {"left_out": left_out, "scans": scans}
    ).items():
        write_one(group, name, table)
    analyse = ANALYSES["alpha_selection"]
    both = [analyse(cohort, settings.changed(alpha_selection=choice)) for choice in ("grid", "align")]
    for name, table in both[0].items():
        frame = pd.concat([one[name].frame for one in both], ignore_index=True)
        write_one(group, name, Table(frame, table.spec, both[0][name].facts | both[1][name].facts))


def write_one(group: Path, name: str, table: Table) -> None:
    """Write a table and its sidecar."""
    path = group / f"{name}.tsv"
    write_table(path, table.frame)
    write_json(path.with_suffix(".json"), {**table.spec.describe(table.columns), **table.facts})


def write_group_outputs(folder: Path) -> Settings:
    """Write everything that the page of a cohort is made from."""
    settings = Settings(folder / "bids", folder / "out", "group").changed(**SETTINGS)
    cohort = make_cohort()
    write_group(settings, cohort, ("prediction", "qc_fc"))
    write_group(settings.changed(alpha_selection="grid"), cohort, ("alpha_selection", "fingerprinting"))
    for person in set(cohort.scans["participant_id"]):
        write_text(settings.output_dir / f"{person}.html", "<!DOCTYPE html><title>page</title>")
    return settings
