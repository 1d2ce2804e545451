"""A pipeline folder for Nipoppy (https://nipoppy.readthedocs.io), generated from Settings.

``python -m scripts.reference.nipoppy FOLDER`` writes it; ``nipoppy pipeline install FOLDER`` takes it into a
dataset. One job is one session of one participant. With ``--without-container`` an installed program is started.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fcpower_bids import __version__
from fcpower_bids.outputs.tables import write_json
from scripts.reference.boutiques import descriptor

FMRIPREP = "25.1.4"
"""Version of fMRIPrep in the address of its outputs; ``--fmriprep`` names another."""
PERSON, SESSION = "[[NIPOPPY_BIDS_PARTICIPANT_ID]]", "[[NIPOPPY_BIDS_SESSION_ID]]"
ATLAS = "Schaefer400"


def files_of(fmriprep: str = FMRIPREP, container: bool = True, atlas: str = ATLAS) -> dict[str, dict[str, Any]]:
    """Return the content of every file of the folder, by its name."""
    return {
        "config.json": _config(container),
        "descriptor.json": descriptor(),
        "invocation.json": {
            "bids_dir": f"[[NIPOPPY_DPATH_DERIVATIVES]]/fmriprep/{fmriprep}/output",
            "output_dir": "[[NIPOPPY_DPATH_PIPELINE_OUTPUT]]",
            "level": "participant",
            "work_dir": "[[NIPOPPY_DPATH_PIPELINE_WORK]]",
            "participant_label": ["[[NIPOPPY_PARTICIPANT_ID]]"],
            "session_label": ["[[NIPOPPY_SESSION_ID]]"],
            "atlas": [atlas],
            "nprocs": 1,
        },
        "tracker.json": {
            "PATHS": [f"{PERSON}/{SESSION}/func/*_desc-fcpower_qc.tsv"],
            "PARTICIPANT_SESSION_DIR": f"{PERSON}/{SESSION}",
            "SCHEMA_VERSION": "1.0",
        },
        "hpc.json": {
            "ACCOUNT": "[[HPC_ACCOUNT_NAME]]",
            "TIME": "1:00:00",
            "CORES": "1",
            "MEMORY": "2G",
            "ARRAY_CONCURRENCY_LIMIT": "",
        },
    }


def _config(container: bool) -> dict[str, Any]:
    image = {
        "CONTAINER_INFO": {
            "FILE": "[[NIPOPPY_DPATH_CONTAINERS]]/[[PIPELINE_NAME]]_[[PIPELINE_VERSION]].sif",
            "URI": None,
        },
        "CONTAINER_CONFIG": {"ENV_VARS": {"FCPOWER_OFFLINE": "1"}, "ARGS": ["--cleanenv", "--containall"]},
    }
    step = {
        "INVOCATION_FILE": "invocation.json",
        "DESCRIPTOR_FILE": "descriptor.json",
        "ANALYSIS_LEVEL": "participant_session",
        "TRACKER_CONFIG_FILE": "tracker.json",
        "HPC_CONFIG_FILE": "hpc.json",
    }
    about = {"NAME": "fcpower_bids", "VERSION": __version__}
    last = {"STEPS": [step], "PIPELINE_TYPE": "processing", "SCHEMA_VERSION": "1.0"}
    return {**about, **(image if container else {}), **last}


def main(argv: Sequence[str] | None = None) -> int:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fmriprep", default=FMRIPREP, help="version of fMRIPrep in the dataset [%(default)s]")
    parser.add_argument("--atlas", default=ATLAS, help="[%(default)s]")
    parser.add_argument("--without-container", action="store_true", help="start an installed program")
    choices = parser.parse_args(argv)
    for name, content in files_of(choices.fmriprep, not choices.without_container, choices.atlas).items():
        write_json(choices.folder / name, content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
