"""Where each file of the demo goes and what its sidecars say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fcpower_bids.demo.design import DemoDesign

DERIVATIVES = Path("derivatives") / "fmriprep"
TRUTH = Path("sourcedata") / "demo_truth.npz"
TASK = "rest"
RESOLUTION = "8 mm isotropic; coarse on purpose, to keep the demo small"

README = """\
Demo dataset of fcpower_bids. No person was scanned: the parcel time series were drawn at random, with connectomes that
differ between people, and painted into the voxels of a template.

derivatives/fmriprep     what fMRIPrep would have written: BOLD in MNI space, brain masks, confounds
phenotype, participants  planted_score and the cognition measures depend on the connectomes, null_score does not
sourcedata               the truth: clean series, true correlations, planted factor
"""

PARTICIPANT_COLUMNS: dict[str, dict[str, Any]] = {
    "participant_id": {"Description": "Participant"},
    "age": {"Description": "Age", "Units": "year"},
    "sex": {"Description": "Sex", "Levels": {"F": "female", "M": "male"}},
    "site": {"Description": "Invented site", "Levels": {"north": "first site", "south": "second site"}},
    "family_id": {"Description": "Family; participants who share one are siblings"},
    "planted_score": {"Description": "Score that depends on the planted factor of the connectomes (r = 0.9)"},
    "null_score": {"Description": "Score that depends on nothing"},
}

IGNORED = "*_timeseries.*\n*_regressors.*\n"
"""``.bidsignore`` of the derivatives: like fMRIPrep's, for what released BIDS does not know."""

MODERN = {"bold": "desc-preproc_bold", "mask": "desc-brain_mask", "confounds": "desc-confounds_timeseries"}
REGRESSORS = MODERN | {"confounds": "desc-confounds_regressors"}


def name_recording(person: str, session: str, run: int) -> str:
    """The entities of the scan itself: ``sub-01_ses-a_task-rest_run-1``."""
    return f"sub-{person}_ses-{session}_task-{TASK}_run-{run}"


def name_files(scan: str, design: DemoDesign) -> dict[str, str]:
    """File names without extension of the preprocessed series, its brain mask and its confounds table."""
    suffixes = REGRESSORS if design.fmriprep_version.startswith("1.") else MODERN
    space = f"{scan}_space-{design.space}_res-2_"
    return {kind: (f"{scan}_" if kind == "confounds" else space) + suffix for kind, suffix in suffixes.items()}


def describe_files(design: DemoDesign) -> dict[str, dict[str, Any]]:
    """The sidecars of the preprocessed series and of its brain mask."""
    return {
        "bold": {
            "RepetitionTime": design.repetition_time,
            "Resolution": RESOLUTION,
            "SkullStripped": True,
            "SliceTimingCorrected": False,
            "TaskName": TASK,
        },
        "mask": {"Resolution": RESOLUTION, "Type": "Brain"},
    }


def describe_raw() -> dict[str, Any]:
    """``dataset_description.json`` of the dataset."""
    return {
        "Name": "fcpower_bids demo (synthetic)",
        "BIDSVersion": "1.10.0",
        "DatasetType": "raw",
        "License": "CC0",
        "Authors": ["A random number generator", "The fcpower_bids developers"],
    }


def describe_derivatives(version: str) -> dict[str, Any]:
    """``dataset_description.json`` of the fMRIPrep-style derivatives."""
    return {
        "Name": "fMRIPrep - fMRI PREProcessing workflow",
        "BIDSVersion": "1.4.0" if not version.startswith("1.") else "1.1.1",
        "DatasetType": "derivative",
        "GeneratedBy": [
            {
                "Name": "fMRIPrep",
                "Version": version,
                "CodeURL": f"https://github.com/nipreps/fmriprep/archive/{version}.tar.gz",
                "Description": "Imitated by the demo of fcpower_bids; fMRIPrep itself did not run",
            }
        ],
    }


def describe_cognition(measures: list[str]) -> dict[str, Any]:
    """The JSON of ``phenotype/cognition.tsv``."""
    tool = {"MeasurementToolMetadata": {"Description": "Invented battery: measures that share the planted factor"}}
    scale = "invented, mean 100 and standard deviation 15"
    return tool | {name: {"Description": f"Invented {name} score", "Units": scale} for name in measures}


def encode_json(content: Mapping[str, Any]) -> str:
    """Indented JSON with a final newline."""
    return json.dumps(content, indent=4) + "\n"


def encode_table(columns: Mapping[str, list[Any]]) -> str:
    """TSV text of columns of equal length."""
    rows = zip(*columns.values(), strict=True)
    return "\n".join("\t".join(str(cell) for cell in row) for row in (list(columns), *rows)) + "\n"
