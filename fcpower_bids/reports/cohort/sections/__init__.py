"""The sections of the cohort page, one chapter each, and their order."""

from __future__ import annotations

from functools import cache

from fcpower_bids.registry import load
from fcpower_bids.reports.cohort.findings import smallest_p_of_targets
from fcpower_bids.reports.cohort.sections import curves, edges, encoders, geometry, sites, spectrum
from fcpower_bids.reports.cohort.sections.exponent import exponent_section
from fcpower_bids.reports.cohort.sections.identification import (
    identification_section,
    privacy_section,
    smallest_p_identified,
)
from fcpower_bids.reports.cohort.sections.prediction import prediction_sections
from fcpower_bids.reports.cohort.sections.quality import cohort_section, motion_section, quality_section
from fcpower_bids.reports.cohort.tables import Part

PARTS = (
    Part(cohort_section, "cohort", "Cohort", 20),
    Part(quality_section, "quality", "Quality of the recordings", 30),
    Part(motion_section, "motion", "Motion and connectivity", 40, quoted=True),
    Part(prediction_sections, "prediction", "Prediction of phenotypes", 50, smallest_p=smallest_p_of_targets),
    Part(
        identification_section, "identification", "Identification across sessions", 80, smallest_p=smallest_p_identified
    ),
    Part(exponent_section, "exponent", "The exponent", 90, quoted=True),
    Part(privacy_section, "privacy", "Privacy", 170),
    *(edges.PART, spectrum.SCREEN_PART, spectrum.CONTROLS_PART, geometry.PART, sites.PART),
    *(curves.CURVES_PART, curves.SWEEP_PART, encoders.ENCODER_PART, encoders.COMPARISON_PART),
)


@cache
def page_parts() -> tuple[Part, ...]:
    """Parts of the page in their order."""
    return tuple(sorted((*PARTS, load("fcpower_bids.check.page:PART")), key=lambda part: part.place))
