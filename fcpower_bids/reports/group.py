"""The page of a cohort, made from the tables of ``group/`` and the quality tables; ``--reports-only`` needs no more."""

from __future__ import annotations

from pathlib import Path

from fcpower_bids.derivatives.tables import write_text
from fcpower_bids.reports.group_exponent import encoder_section, exponent_section
from fcpower_bids.reports.group_identification import identification_section, privacy_section
from fcpower_bids.reports.group_prediction import prediction_sections
from fcpower_bids.reports.group_quality import cohort_section, motion_section, quality_section
from fcpower_bids.reports.group_tables import GroupTables, Section, checked
from fcpower_bids.reports.group_verdict import judge_cohort
from fcpower_bids.reports.page import relative_link, render_page
from fcpower_bids.settings import Settings

BEFORE = ((cohort_section, "Cohort"), (quality_section, "Quality of the recordings"), (motion_section, "QC-FC"))
AFTER = (
    (identification_section, "Identification across sessions"),
    (exponent_section, "The exponent"),
    (encoder_section, "Encoder against connectivity"),
    (privacy_section, "Privacy"),
)


def write_group_report(settings: Settings) -> Path:
    """Write ``group.html``.

    Parameters
    ----------
    settings : Settings
        Where the outputs are; every number comes from the tables there, none is computed again from connectomes.

    Returns
    -------
    Path
        The page. A section whose tables are not there is left out; one whose tables are broken says so.
    """
    tables = GroupTables(settings)
    text = render_page(
        "group.html",
        title="Group report",
        dataset=settings.bids_dir.resolve().name,
        verdict=judge_cohort(tables),
        sections=make_sections(tables),
        links=_links(tables),
    )
    return write_text(settings.output_dir / "group.html", text)


def make_sections(tables: GroupTables) -> list[Section]:
    """Make every section that has tables, in the order of the page."""
    before = [checked(make, tables, title) for make, title in BEFORE]
    try:
        predictions = prediction_sections(tables)
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        said = f"This section could not be made from its tables: {error!r}"
        predictions = [Section("prediction", "Prediction of phenotypes", (said,))]
    after = [checked(make, tables, title) for make, title in AFTER]
    return [section for section in [*before, *predictions, *after] if section is not None]


def _links(tables: GroupTables) -> list[tuple[str, str]]:
    """Every file of ``group/``, for a reader who wants the numbers."""
    files = [path for path in sorted((tables.root / "group").glob("*")) if path.suffix in (".tsv", ".json", ".toml")]
    return [(path.name, relative_link(path, tables.root)) for path in files]
