"""What the dry run of the group level says of time and memory: units are counted as the run does its work."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fcpower_bids.analyses.engine import study as studies
from fcpower_bids.analyses.prediction import prediction
from fcpower_bids.core.regression.folds import Fold
from fcpower_bids.core.regression.ridge import fold_bytes
from fcpower_bids.errors import Unfit
from fcpower_bids.resources import memory_limit
from fcpower_bids.workflows import forecast
from fcpower_bids.workflows.cohorts import open_cohorts
from fcpower_bids.workflows.forecast import Forecast, forecast_group
from fcpower_bids.workflows.group import run_group
from tests.planting.participant_outputs import make_outputs

CHOICES = {"folds": 3, "inner_folds": 2, "repeats": 2, "targets": ("age",), "nprocs": 1, "permutations": 20}


@pytest.fixture
def settings(tmp_path):
    return replace(make_outputs(tmp_path, people=8), **CHOICES)


def test_the_dry_run_says_hours_and_memory_and_writes_no_table(settings, capsys):
    run_group(replace(settings, dry_run=True))
    assert "Forecast: " in capsys.readouterr().err
    assert not (settings.output_dir / "group").exists()


def test_columns_that_go_through_the_folds_are_those_of_the_run(settings, monkeypatch):
    passes = []

    def counted(solver, targets, folds, *more):
        passes.append((1 if callable(targets) else targets.shape[1], len(folds)))
        return real(solver, targets, folds, *more)

    real = forecast.run_nested_cv
    for module in ("analyses.engine.cross_validation", "analyses.prediction.permutation_null"):
        monkeypatch.setattr(f"fcpower_bids.{module}.run_nested_cv", counted)
    monkeypatch.setattr("fcpower_bids.analyses.prediction.baselines.run_nested_cv", counted)
    cohort, _ = open_cohorts(settings)
    prediction.analyse_prediction(cohort, settings)
    truth = sum(columns * folds for columns, folds in passes)
    monkeypatch.setattr(forecast, "_of_folds", lambda n, n_columns, study: 3.0 * n_columns)  # of three folds
    monkeypatch.setattr(forecast, "_of_inverse", lambda n: 0.0)
    assert forecast._of_prediction(studies.open_study(cohort, settings)) == pytest.approx(truth, rel=0.1)


def test_units_are_measured_and_follow_their_law_beyond():
    assert forecast._beyond(400, lambda n: n**3) == 400**3
    assert forecast._beyond(3000, lambda n: 2e-3 * n**3 + 5 * n**2) == pytest.approx(2e-3 * 3000**3 + 5 * 3000**2)
    assert forecast._beyond(3000, float) == pytest.approx(9000)  # never less than quadratic


@pytest.mark.parametrize(
    ("n", "edges", "parcels", "gigabytes"),
    [(2000, 4950, 100, 0.86), (20000, 79800, 400, 4.2), (40000, 79800, 400, 4.2)],
)
def test_memory_is_that_of_the_arrays_which_are_there_together(n, edges, parcels, gigabytes):
    # 20,000 people: neither spectra, features nor kernels fit; a part of the features and tiles are there
    with memory_limit(0):
        assert forecast._memory(n, edges, parcels) / 1e9 == pytest.approx(gigabytes, rel=0.1)


def test_what_is_not_counted_is_named(settings):
    cohort, _ = open_cohorts(settings)
    assert str(forecast_group(cohort, settings, ["qc_fc", "edges"], 0.0)).endswith("not counted: edges.")


def test_a_dry_run_says_what_the_run_leaves_out_and_does_not_count_it(settings, capsys):
    run_group(replace(settings, dry_run=True, session_label=("a",), analyses=("all",)))
    said = capsys.readouterr().err
    assert "fingerprinting: would be left out. Fingerprinting needs two sessions" in said
    assert "parcellation_sweep: would be left out." in said
    assert "parcellation_sweep" not in said.partition("Forecast")[2]


def test_times_are_said_as_people_say_them():
    told = str(Forecast({"reading": 0.4, "prediction": 9000.0, "kernels": 130.0}, 2.34e9, ()))
    assert told == "Forecast: 2.5 h of CPU (prediction 2.5 h, kernels 2.2 min), 2.3 GB of memory."


def test_a_unit_is_timed_on_the_folds_of_the_request():
    study = SimpleNamespace(preset=replace(studies.PRESETS["recommended"], n_folds=3, n_inner=2))
    with memory_limit(0.01):  # in which kernels lie on disk
        assert np.isfinite(forecast._beyond(30, lambda n: forecast._of_folds(n, 2, study)))


def test_a_dry_run_refuses_kernels_that_a_run_keeps_in_memory(settings, monkeypatch):
    monkeypatch.setattr(prediction, "fold_bytes", lambda *of: 0.0)
    monkeypatch.setattr(prediction, "PRIMAL_WIDTH", 0)
    cohort, _ = open_cohorts(settings)
    linear = {"kernel": "linear", "fit_transforms_on": "cohort"}
    with memory_limit(0.004):
        for choice in ({}, {**linear, "fit_transforms_on": "fold"}):
            prediction.check_choices(cohort, replace(settings, **choice))
        for choice in ({"solver_device": "cpu"}, linear):
            with pytest.raises(Unfit, match="A kernel of 8 people needs"):
                prediction.check_choices(cohort, replace(settings, **choice))


def test_memory_follows_from_who_is_held_out_and_not_from_the_number_of_folds(settings):
    cohort, _ = open_cohorts(settings)
    study = studies.open_study(cohort, settings)
    site = study.on_folds((Fold(0, 0, np.arange(4), np.arange(4, 8), (np.arange(3), np.arange(3, 4))),))
    missing = replace(study.targets[0], measures=np.where(np.arange(8)[:, None] == 3, np.nan, 1.0))
    with memory_limit(0.004):
        assert prediction.memory_of_kernels(site) == fold_bytes(8, 4, 3)
        assert prediction.memory_of_kernels(replace(site, targets=[missing])) == fold_bytes(8, 5, 3)
