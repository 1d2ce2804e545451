"""Which recordings a run is about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fcpower_bids.options import Choices, option


@dataclass(frozen=True)
class Selection(Choices):
    """Which recordings of which datasets."""

    derivatives: tuple[str, ...] = option(
        (),
        "selection",
        "fMRIPrep derivatives, as NAME=PATH or PATH [BIDS_DIR/derivatives/fmriprep]; at group level series or "
        "connectomes of other programs, as LAYOUT=PATH or list=FILE",
        "-d",
        question=False,
    )
    input_type: str | None = option(
        None,
        "selection",
        "who preprocessed the derivatives [as their folders show]",
        choices=("fmriprep", "nibabies", "hcp", "dcan", "ukb"),
        question=False,
    )
    participant_label: tuple[str, ...] = option(
        (), "selection", "participants, with or without 'sub-' [all]", question=True
    )
    session_label: tuple[str, ...] = option(
        (), "selection", "sessions, with or without 'ses-' [all]", "--session-id", question=True
    )
    task_id: tuple[str, ...] = option((), "selection", "tasks [all]", "-t", "--task-label", question=True)
    run_id: tuple[str, ...] = option((), "selection", "runs [all]", question=True)
    space: tuple[str, ...] = option(
        (), "selection", "spaces [per recording the first of MNI152NLin2009cAsym, MNI152NLin6Asym, fsLR]", question=True
    )
    bids_filter_file: Path | None = option(
        None, "selection", "JSON of entity filters for 'bold', as fMRIPrep's (null = absent, '*' = any)", question=True
    )
    bids_database_dir: Path | None = option(
        None, "selection", "folder that keeps the index of the inputs", question=False
    )
    dataset_name: str | None = option(
        None,
        "selection",
        "name of the dataset, by which an encoder knows the people it was trained on [DOI, or Name and a digest]",
        question=False,
    )
    skip_bids_validation: bool = option(
        False, "selection", "do not stop at a missing dataset_description.json", question=False
    )
