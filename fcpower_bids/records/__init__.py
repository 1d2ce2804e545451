"""The nouns: frozen, without input or output; nipype caches by their representation, so fields are plain values."""

from fcpower_bids.records.cohorts import Cohort, Table
from fcpower_bids.records.recordings import (
    Atlas,
    Cleaning,
    Entities,
    Measure,
    Output,
    ParcelSeries,
    Recording,
    Slices,
    is_in_space,
    space_of,
)

__all__ = [
    "Atlas",
    "Cleaning",
    "Cohort",
    "Entities",
    "Measure",
    "Output",
    "ParcelSeries",
    "Recording",
    "Slices",
    "Table",
    "is_in_space",
    "space_of",
]
