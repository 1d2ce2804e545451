"""The real-data example of docs/paper.md: every number there, from the 55 people of `shared/data/stages`.

    python -m benchmarks.stages --shared ../shared
    python -m benchmarks.stages --shared ../shared --only identification

The source does not state the repetition time, so scan lengths are volumes (see `tests/analyses/stages.py`).
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from threadpoolctl import threadpool_limits

from fcpower_bids.analyses import ANALYSES
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Settings
from tests.analyses.stages import stages_cohort

VOLUMES, PEOPLE = (20, 40, 80, 120, 160, 200), (10, 20, 30)


def choose(**choices: Any) -> Settings:
    """Settings of the group level with the paper's protocol."""
    return Settings(Path(), Path(), "group", quiet=True, preset="paper", **choices)


def show(title: str, frame: pd.DataFrame) -> None:
    """Print a table."""
    print(f"\n{title}\n{frame.round(4).to_string()}", flush=True)


def identification(shared: Path) -> None:
    """Accuracy by volumes and people, and whether FC^alpha is ahead in every cell."""
    cohort = without_phenotypes(stages_cohort(shared))
    settings = choose(scan_minutes=tuple(map(float, VOLUMES)), sample_sizes=PEOPLE)
    tables = ANALYSES["learning_curves"](cohort, settings)
    curves = tables["identification_curves"].frame
    show(
        "Identification: volumes (minutes) by people",
        curves.pivot_table("accuracy", "minutes", ["representation", "n_people"]),
    )
    gains = tables["identification_gains"].frame
    show("FC^alpha minus FC", gains[["n_people", "minutes", "mean_difference", "ci_low", "ci_high", "p_greater"]])


def fingerprints(shared: Path) -> None:
    """Full scans: the test of the difference, d', Idiff and the reliability of edges."""
    tables = ANALYSES["fingerprinting"](stages_cohort(shared), choose())
    show("Full scans", tables["identification"].frame.set_index("representation").T)
    show("Their difference", tables["identification_comparisons"].frame.T)
    show("ICC of the edges", tables["identification_icc"].frame)


def prediction(shared: Path) -> None:
    """The two outcome slopes, halves of the scans, and the scaling law."""
    cohort, settings = stages_cohort(shared), choose(folds=5)
    tables = ANALYSES["prediction"](cohort, settings)
    keys = ["target", "representation"]
    show("Prediction", tables["prediction_summary"].frame[[*keys, "n_scored", "r_fold_mean", "r_pooled_mean"]])
    show("Comparison", tables["comparisons"].frame[["target", "mean_difference", "p_two_sided"]])
    show("Reliability", tables["reliability"].frame)
    lengths = choose(folds=5, repeats=2, scan_minutes=(80.0, 160.0), sample_sizes=(20, 30))
    show("Scaling law", ANALYSES["learning_curves"](cohort, lengths)["scaling_law"].frame.T)


def sweep(shared: Path) -> None:
    """Cortex alone against cortex and subcortex."""
    cohorts = {"400": stages_cohort(shared), "419": stages_cohort(shared, 419)}
    tables = ANALYSES["parcellation_sweep"](cohorts, choose(folds=5))
    show("Sweep", tables["parcellation_sweep"].frame.groupby(["atlas", "target", "representation"])["r"].mean())
    show("Between parcellations", tables["parcellation_comparisons"].frame.T)


def without_phenotypes(cohort: Cohort) -> Cohort:
    """The same scans without anything to predict."""
    return dataclasses.replace(cohort, phenotypes=pd.DataFrame(index=cohort.phenotypes.index))


PARTS: dict[str, Callable[[Path], None]] = {
    "identification": identification,
    "fingerprints": fingerprints,
    "prediction": prediction,
    "sweep": sweep,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True, help="folder with data/stages")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts [all]")
    options = parser.parse_args()
    with threadpool_limits(1):
        for name in options.only:
            PARTS[name](options.shared)


if __name__ == "__main__":
    main()
