"""The nouns: frozen, without input or output; nipype caches by their representation, so fields are plain values."""

from fcpower_bids.records.cohorts import Blocks, Cohort, Table
from fcpower_bids.records.recordings import (
    Atlas,
    Cleaning,
    Entities,
    Output,
    ParcelSeries,
    Recording,
    Slices,
    is_in_space,
    label_order,
    space_of,
)

__all__ = [
    "Atlas",
    "Blocks",
    "Cleaning",
    "Cohort",
    "Entities",
    "Output",
    "ParcelSeries",
    "Recording",
    "Slices",
    "Table",
    "is_in_space",
    "label_order",
    "space_of",
]
