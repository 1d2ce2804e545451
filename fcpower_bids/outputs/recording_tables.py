"""Tables of a recording that are no measures: one row per volume."""

from __future__ import annotations

from fcpower_bids.schema import Column, TableSpec, join_columns

VOLUMES = TableSpec(
    "SOURCE_desc-confounds_outliers",
    "One row per volume of the file.",
    join_columns(
        Column.number("framewise_displacement", "Framewise displacement", unit="mm"),
        Column.number(
            "dvars", "Root mean square change of the signal, as the input table has it", unit="as in the input"
        ),
        Column.number("dummy", "Dropped at the start of the recording (1 = yes)", digits=0, unit="0 or 1"),
        Column.number("stray", "Left out because it cannot be signal (1 = yes)", digits=0, unit="0 or 1"),
        Column.number("kept", "In the cleaned series (1 = yes)", digits=0, unit="0 or 1"),
    ),
)
