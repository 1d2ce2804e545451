"""Size and memory of the group tables of a large cohort, and of its page: planted predictions, the real writer.

    python -m benchmarks.tables --people 40000 --targets 58

Nothing is fitted: the predictions of 20 repeats of 10 folds are noise, from two representations. All else is the
analysis ``prediction``, its tables and the page as a run writes them. Goals: all tables below 500 MB, the page below
5 MB, at most 2 GB in memory.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pandas as pd

from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.analyses.prediction import prediction
from fcpower_bids.cohort.inclusion import EXCLUDED_TABLE
from fcpower_bids.cohort.scans import SCANS
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.core.regression.scores import Training
from fcpower_bids.outputs.group import write_group_tables
from fcpower_bids.records import Cohort, Table
from fcpower_bids.reports.cohort.page import write_group_report
from fcpower_bids.settings import Settings

ENTRIES = ("fc", "fc_power")
EDGES = 79_800
MEGA = 1e6


def make_cohort(n_people: int, n_targets: int) -> Cohort:
    rng = np.random.default_rng(0)
    people = [f"sub-{i:05d}" for i in range(n_people)]
    scans = pd.DataFrame({"participant_id": people, "session": "n/a", "seconds": rng.uniform(300, 900, n_people)})
    scans = scans.assign(mean_fd=rng.gamma(2.0, 0.1, n_people), n_runs=1, combination="none")
    values = rng.standard_normal((n_people, n_targets))
    phenotypes = pd.DataFrame(values, people, [f"measure_{j:02d}" for j in range(n_targets)])
    return Cohort(
        scans=scans,
        edges=np.zeros((n_people, 3)),
        parcels=("a", "b", "c"),
        networks=("x", "x", "y"),
        phenotypes=phenotypes.rename_axis("participant_id"),
        excluded=pd.DataFrame(columns=list(EXCLUDED_TABLE.columns)),
        targets=tuple(phenotypes.columns),
    )


def plant(solver: str, study: Study, label: str) -> NestedResult:
    """Predictions that are the target and noise, in the place of a cross-validation."""
    values = np.column_stack([target.measures[:, 0] for target in study.targets])
    rng, shape = np.random.default_rng(len(label)), (len(study.folds), len(study.targets))
    observed = tuple(values[fold.test] for fold in study.folds)
    train = tuple(Training(values[fold.train].mean(0), values[fold.train].std(0)) for fold in study.folds)
    return NestedResult(
        folds=tuple(study.folds),
        penalties=np.ones(1),
        chosen=np.ones(shape),
        inner_scores=np.zeros((shape[0], 1, shape[1])),
        best_scores=np.zeros(shape),
        at_edge=np.zeros(shape, dtype=bool),
        observed=observed,
        predicted=tuple(0.1 * each + rng.standard_normal(each.shape) for each in observed),
        train=train,
        notes=(),
    )


def plant_null(solver: str, study: Study, entry: str) -> list[dict[str, object]]:
    rng = np.random.default_rng(1)
    return [
        {"target": target.name, "representation": entry, "permutation": i, "score": score, "standard_error": np.nan}
        for target in study.targets
        for i, score in enumerate(rng.standard_normal(101).tolist())
    ]


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def analyse(cohort: Cohort, settings: Settings) -> dict[str, Table]:
    solvers = [(SimpleNamespace(name=entry), entry) for entry in ENTRIES]
    with (
        mock.patch.object(prediction, "make_solvers", return_value=solvers),
        mock.patch.object(prediction, "cross_validate", plant),
        mock.patch.object(prediction, "null_rows", plant_null),
        mock.patch.object(prediction, "EdgeImportance", mock.Mock()) as importance,
    ):
        importance.return_value.tables.return_value = {}
        return prediction.analyse_prediction(cohort, settings)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=40_000)
    parser.add_argument("--targets", type=int, default=58)
    parser.add_argument("--predictions-per", default="auto")
    choices = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        settings = Settings(Path(name), Path(name) / "out", "group", quiet=True)
        settings = replace(settings, predictions_per=choices.predictions_per)
        folder, cpu = settings.output_dir / "group", time.process_time
        cohort = make_cohort(choices.people, choices.targets)
        started = cpu()
        tables = analyse(cohort, settings)
        print(f"analysis: {cpu() - started:.0f} CPU s, peak {peak():.0f} MB")
        started = cpu()
        tables[SCANS.name] = Table(cohort.scans, SCANS)
        write_group_tables(folder, tables, settings)
        print(f"writing: {cpu() - started:.0f} CPU s, peak {peak():.0f} MB")
        del tables
        started = cpu()
        page = write_group_report(settings).stat().st_size
        print(f"page: {page / MEGA:.2f} MB, {cpu() - started:.0f} CPU s, peak {peak():.0f} MB")
        sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
        for file, size in sorted(sizes.items(), key=lambda one: -one[1])[:6]:
            print(f"  {file}: {size / MEGA:.1f} MB")
        total = sum(sizes.values())
        print(f"all tables: {total / MEGA:.0f} MB")
        return 0 if total < 500 * MEGA and page < 5 * MEGA and peak() < 2000 else 1


if __name__ == "__main__":
    sys.exit(main())
