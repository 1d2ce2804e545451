"""Real people as a cohort: 55 at baseline, 37 of them again after three months (see `shared/data/README.md`).

The source does not state the repetition time. It is set to 60 s here, so that wherever an analysis says minutes, these
are volumes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.records import Cohort

VOLUME = 60.0
"""Seconds that stand for one volume."""


def stages_cohort(shared: Path, n_parcels: int = 400) -> Cohort:
    """The first `n_parcels` columns: 400 are the cortex (Schaefer), 419 the subcortex too."""
    folder = shared / "data" / "stages"
    stored = np.load(folder / "timeseries.npz", allow_pickle=False)
    keys = sorted(stored.files)
    series = [np.asarray(stored[key][:, :n_parcels], dtype=float) for key in keys]
    people = [key.split("_")[0] for key in keys]
    scans = pd.DataFrame(
        {
            "participant_id": people,
            "session": [key.split("_")[1] for key in keys],
            "seconds": [VOLUME * len(each) for each in series],
            "mean_fd": np.nan,
            "n_runs": 1,
            "combination": "none",
        }
    )
    table = pd.read_csv(folder / "participants.tsv", sep="\t", na_values="n/a")  # one row per scan
    table = table.drop_duplicates("participant_id").set_index("participant_id")
    return Cohort(
        scans=scans,
        edges=np.stack([vectorise_edges(pearson_connectivity(each), weighted=False) for each in series]),
        parcels=tuple(f"parcel{i:03d}" for i in range(n_parcels)),
        networks=("n/a",) * n_parcels,
        phenotypes=table[["bprs_lm_slope", "sofas_lm_slope"]],
        excluded=pd.DataFrame(columns=["participant_id", "session", "what", "reason"]),
        series=tuple((lambda each=each: [each]) for each in series),
        repetition_times=(VOLUME,) * len(series),
    )
