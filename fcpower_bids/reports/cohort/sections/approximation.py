"""What an approximation leaves out, in a sentence and a table beside its scores."""

from __future__ import annotations

from collections.abc import Iterator

from fcpower_bids.analyses.prediction.approximation import APPROXIMATION, EXACT_UP_TO
from fcpower_bids.reports.cohort.tables import Grid, GroupTables, count, make_grid


def describe_approximations(tables: GroupTables) -> list[str]:
    """Say of every approximation how far its kernel and its predictions are off; nothing where there is none."""
    rows = tables.rows(APPROXIMATION.name)
    if rows.empty:
        return []
    said = []
    for name, part in rows.groupby("representation", sort=False):
        first, agreement = part.iloc[0], float(part["agreement"].min())
        kernel = "its kernel follows from the folds and was not compared"
        if first["kernel_error"] == first["kernel_error"]:
            kernel = (
                f"between people who are no landmarks its kernel is off by {100 * first['kernel_error']:.2g} % "
                "(Frobenius norm)"
            )
        exact = f"the exact one was not run beside it (more than {EXACT_UP_TO:,} people)"
        if agreement == agreement:
            least = "at least " if len(part) > 1 else ""
            exact = f"its predictions correlate {least}{agreement:.4f} with those of the exact one"
        landmarks = count(int(part["landmarks"].max()), "landmark")
        title = tables.title(str(name))
        said.append(f"{title} approximates kernel ridge regression by {landmarks}: {kernel}; {exact}.")
    return said


def approximation_grid(tables: GroupTables) -> Iterator[Grid]:
    """Return the table if it is there."""
    rows = tables.rows(APPROXIMATION.name)
    if rows.empty:
        return
    yield make_grid(
        tables.titled(rows),
        APPROXIMATION.shown(
            *("target", "representation", "landmarks", "clipped", "kernel_error", "kernel_error_max", "n_compared"),
            *("score", "pooled_mean", "exact_pooled_mean", "agreement"),
        ),
        "Approximation",
        "The Nystroem approximation against the exact kernel, and against exact kernel ridge regression where it was "
        "run.",
        tables.links(APPROXIMATION.name),
    )
