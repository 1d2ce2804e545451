"""A saved model and written connectomes to a table of predictions."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fcpower_bids.analyses.engine.final_model import apply_model
from fcpower_bids.errors import DatasetError, Unfit
from fcpower_bids.outputs.models import load_model, model_path, written_connectomes
from fcpower_bids.outputs.tables import write_json, write_table
from fcpower_bids.schema import Column, TableSpec, join_columns

PREDICTED = TableSpec(
    "predicted/target-TARGET-REPRESENTATION",
    "A model of `--save-models` applied to the scans of an output folder, one row per scan.",
    join_columns(
        Column.text("scan", "Name of the scan"),
        Column.number(
            "prediction", "Predicted value, in the unit of the target; for two classes a score between 0 and 1"
        ),
        Column.number("similarity", "How like the training people the scan is"),
        Column.flag("inside_range", "Whether similarity and prediction lie in the ranges of the training people"),
        Column.text("warning", "What is outside, in words"),
    ),
    ("scan",),
)


def predict_scans(
    model: Path, output_dir: Path, participants: tuple[str, ...] = (), table: Path | None = None
) -> tuple[pd.DataFrame, Path]:
    """Apply a model to every scan of an output folder and write the table.

    Connectomes of another atlas, which has not the names of the model's parcels, are left out where others fit.

    Raises
    ------
    DatasetError
        If the model or a scan cannot be used; nothing is written then.
    """
    arrays, facts = load_model(model)
    rows, others = [], []
    for name, matrix, parcels in written_connectomes(output_dir, participants):
        if not set(facts["Parcels"]) <= set(parcels):
            others.append(name)
            continue
        try:
            found = apply_model(arrays, facts, matrix, parcels)
        except Unfit as error:
            raise DatasetError(f"{name}: {error}") from error
        rows.append([name, found.prediction, found.similarity, found.inside_range, found.warning])
    if not rows and others:
        raise DatasetError(
            f"None of the {len(others)} connectomes in {output_dir}, such as {others[0]}, has all parcels of the "
            f"model, such as {facts['Parcels'][0]}. Run the participant level with the atlas of the model."
        )
    if not rows:
        whose = f" of {', '.join('sub-' + label for label in participants)}" if participants else ""
        raise DatasetError(f"There are no connectomes{whose} in {output_dir}. Run the participant level first.")
    frame = pd.DataFrame(rows, columns=list(PREDICTED.columns))
    default = model_path(output_dir, facts["Target"], facts["Representation"]).name.replace("_model.npz", ".tsv")
    path = table or output_dir / "group" / "predicted" / default
    write_table(path, PREDICTED.as_written(frame))
    write_json(
        path.with_suffix(".json"),
        {**PREDICTED.describe(), "Model": model.name, **{k: v for k, v in facts.items() if k != "Parcels"}},
    )
    return frame, path
