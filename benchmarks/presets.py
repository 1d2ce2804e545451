"""What each preset changes on real people: from the 55 people of `shared/data/stages`.

    python -m benchmarks.presets --shared ../shared
    python -m benchmarks.presets --shared ../shared --demo BIDS OUT   # and the demo

Folds are 10 x 5 for so few people; all else is that of the preset. `recommended` is also shown with one of its choices
undone at a time.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from fcpower_bids.analyses.engine.connectomes import combine_scans
from fcpower_bids.analyses.engine.entries import Entries
from fcpower_bids.analyses.engine.study import open_study
from fcpower_bids.cohort.assembly import load_cohort
from fcpower_bids.core.regression.presets import PAPER, PRESETS
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Settings
from tests.analyses.stages import stages_cohort

VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"preset": name} for name in PRESETS},
    "recommended, penalties of the paper": {"preset": "recommended", "penalties": PAPER.penalties},
    "recommended, mean of Fisher z": {"preset": "recommended", "combine_runs": "average"},
}


def measure(cohort: Cohort, **choices: Any) -> pd.DataFrame:
    """Score every target under every variant."""
    rows = []
    for name, own in VARIANTS.items():
        settings = Settings(Path(), Path(), "group", quiet=True, folds=5, repeats=10, **own, **choices)
        if not set(PRESETS[settings.preset].covariates) <= set(cohort.phenotypes.columns):
            continue  # those of CBIG are age and sex
        study = open_study(cohort, settings)
        rows.append(Entries(study).score_all(study.representations()).folds().assign(variant=name))
    frame = pd.concat(rows).rename(columns={"at_grid_edge": "edge"})
    return frame.pivot_table(["r", "edge", "penalty"], "variant", ["target", "representation"], sort=False)


def eigenvalues(cohort: Cohort) -> pd.DataFrame:
    """Negative eigenvalues of people with several scans, and the participation ratio, by how scans are combined."""
    people = cohort.scans["participant_id"].astype(str).to_numpy()
    groups = [np.flatnonzero(people == name) for name in sorted(set(people))]
    groups = [group for group in groups if len(group) > 1]
    rows = []
    for preset in ("recommended", "paper"):
        edges = combine_scans(cohort, groups, Settings(Path(), Path(), "group", preset=preset))
        spectra = np.stack([np.linalg.eigvalsh(edges.connectome(i)) for i in range(len(groups))])
        powered = np.where(spectra > 1e-10 * spectra.max(axis=1, keepdims=True), np.abs(spectra) ** 0.35, 0)
        ratio = powered.sum(axis=1) ** 2 / (powered**2).sum(axis=1)
        negative = (spectra < -1e-10 * spectra.max(axis=1, keepdims=True)).sum(axis=1)
        rows.append((preset, len(groups), negative.mean(), spectra.min(), ratio.mean()))
    return pd.DataFrame(rows, columns=["preset", "people", "negative eigenvalues", "smallest", "participation ratio"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True, help="folder with data/stages")
    parser.add_argument("--demo", type=Path, nargs=2, metavar=("BIDS", "OUT"), help="the demo and its outputs")
    options = parser.parse_args()
    with threadpool_limits(1):
        cohort = stages_cohort(options.shared)
        print(eigenvalues(cohort).round(3).to_string(), flush=True)
        print(measure(cohort).round(3).to_string(), flush=True)
        if options.demo:
            bids, out = options.demo
            demo = load_cohort(Settings(bids, out, "group", targets=("planted_score", "null_score")))
            print(eigenvalues(demo).round(3).to_string(), flush=True)
            print(measure(demo, family_column="family_id").round(3).to_string(), flush=True)


if __name__ == "__main__":
    main()
