"""The group level: assemble the cohort, run the analyses, write their tables and the page."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from fcpower_bids._version import __version__
from fcpower_bids.analyses import ANALYSES, analyses_to_run
from fcpower_bids.derivatives.cohort import load_cohort
from fcpower_bids.derivatives.models import model_path, save_model
from fcpower_bids.derivatives.tables import write_json, write_table, write_text
from fcpower_bids.errors import DatasetError
from fcpower_bids.records import Cohort, Table
from fcpower_bids.settings import Settings
from fcpower_bids.workflows.progress import say


def run_group(settings: Settings) -> int:
    """Run every analysis that was asked for on the participant outputs in ``output_dir``; return the exit code.

    An analysis writes all its tables or none. Bad input is found before the first analysis starts.
    """
    folder = settings.output_dir / "group"
    if not settings.reports_only:
        cohort = load_cohort(settings)
        if settings.dry_run:
            say(describe_cohort(cohort), settings)
            return 0
        write_text(folder / "settings.toml", settings.as_toml())
        _write_tables(folder, {"excluded": _excluded(cohort)}, settings)
        for name in analyses_to_run(settings):
            started = time.monotonic()
            say(f"{name} ...", settings)
            try:
                tables = ANALYSES[name](cohort, settings)
            except ValueError as error:
                raise DatasetError(f"{name}: {error}") from error
            _write_tables(folder, tables, settings)
            say(f"{name}: {len(tables)} tables in {time.monotonic() - started:.0f} s", settings)
        if settings.save_models:
            _save_models(cohort, settings)
    from fcpower_bids.reports.group import write_group_report

    page = write_group_report(settings)
    say(f"Tables: {folder}  Page: {page}", settings)
    return 0


def _save_models(cohort: Cohort, settings: Settings) -> None:
    """Write a model of every target under every representation that follows from one connectome alone."""
    from fcpower_bids.analyses.final_model import MODEL_REPRESENTATIONS, fit_final_model

    composites = [item.partition("=")[0].strip() for item in settings.composite]
    for target in (*cohort.targets, *composites):
        for representation in (name for name in settings.representations if name in MODEL_REPRESENTATIONS):
            try:
                arrays, facts = fit_final_model(cohort, settings, target, representation)
            except ValueError as error:
                raise DatasetError(f"model of {target}: {error}") from error
            path = model_path(settings.output_dir / "group" / "models", target, representation)
            say(f"Model: {save_model(path, arrays, facts)}", settings)


def describe_cohort(cohort: Cohort) -> str:
    """Return what the analyses would see, in a few lines."""
    people = cohort.scans["participant_id"].nunique()
    sessions = cohort.scans["session"].value_counts().to_dict()
    return (
        f"{people} people, {len(cohort.scans)} scans ({', '.join(f'{k}: {v}' for k, v in sessions.items())}), "
        f"{len(cohort.parcels)} parcels, phenotypes: {', '.join(map(str, cohort.phenotypes.columns)) or 'none'}; "
        f"{len(cohort.excluded)} exclusions"
    )


def _write_tables(folder: Path, tables: Mapping[str, Table], settings: Settings) -> None:
    for name, table in tables.items():
        write_table(folder / f"{name}.tsv", table.frame)
        about = {
            **{column: {"Description": text} for column, text in table.columns.items()},
            **table.facts,
            "Software": "fcpower_bids",
            "SoftwareVersion": __version__,
            "RandomSeed": settings.random_seed,
        }
        write_json(folder / f"{name}.json", about)


def _excluded(cohort: Cohort) -> Table:
    columns = {
        "participant_id": "Person",
        "session": "Session, n/a when all are meant",
        "what": "recording, person, parcel or value",
        "reason": "Why it was left out",
    }
    return Table(cohort.excluded, columns)
