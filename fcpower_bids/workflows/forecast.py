"""How long the group level will take, and how much memory: units of its work are timed, and counted by its laws."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fcpower_bids.analyses.engine.connectomes import fits
from fcpower_bids.analyses.engine.cross_validation import run_nested_cv
from fcpower_bids.analyses.engine.representations import encoder_of, expand_names
from fcpower_bids.analyses.engine.study import Study, open_study
from fcpower_bids.analyses.prediction.baselines import MOST_PERMUTATIONS
from fcpower_bids.analyses.prediction.permutation_null import CHUNK, choose_permutations
from fcpower_bids.analyses.prediction.prediction import memory_of_kernels
from fcpower_bids.analyses.quality import qc_fc
from fcpower_bids.core.connectome.edges import rebuild_matrix
from fcpower_bids.core.connectome.spd import eigendecompose
from fcpower_bids.core.regression.dense import dense
from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.kernels import correlation_kernel, power_features
from fcpower_bids.core.regression.penalties import DECADES, regress_on_kernel
from fcpower_bids.core.regression.ridge import KERNELS, fits_in_memory
from fcpower_bids.records import Cohort
from fcpower_bids.resources import available_bytes, memory_limit
from fcpower_bids.settings import Settings

MEASURED = ("prediction", "fingerprinting", "qc_fc")
"""Analyses whose work is counted; the others are named as not counted."""
PEOPLE, COLUMNS = 1000, 1024
"""Units are timed on as many people and edges at most, and on half of the people too, which gives the law beyond."""
CHEAP = 3
"""How often a unit is timed that takes a tenth of a second."""
REBUILT = 4.0
"""A permuted target that is fitted again in every fold costs as many others."""
START, EACH_EDGE = 1.5, 4e-5
"""CPU seconds of the start, the page and small tables; and of each edge in tables and pictures."""
PROGRAM, INVERSES = 200e6, 13
"""Bytes of the program; inverses of a kernel that are there together, those beyond the grid among them."""
BY_TILES = 2.0
"""How much longer an inverse takes on disk."""


@dataclass(frozen=True)
class Forecast:
    """CPU seconds of each part of a run, its peak memory in bytes, and the analyses that are not counted."""

    seconds: dict[str, float]
    memory: float
    without: tuple[str, ...]

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {_in_words(each)}" for name, each in self.seconds.items() if each >= 1)
        told = (
            f"Forecast: {_in_words(sum(self.seconds.values()))} of CPU ({parts}), {self.memory / 1e9:.1f} GB of memory"
        )
        return told + (f"; not counted: {', '.join(self.without)}." if self.without else ".")


def forecast_group(cohort: Cohort, settings: Settings, names: Sequence[str], reading: float) -> Forecast:
    """Time units of the work on this machine, and count them for the analyses that will run, by their names.

    `reading`: CPU seconds that opening the cohort took. Beyond `PEOPLE` people units follow ``a n^2 + b n^3``.
    """
    n, n_edges = cohort.edges.shape
    entries = [name for name in expand_names(cohort, settings) if not encoder_of(name)]
    grams = len(entries) + 1  # one is of the check
    seconds = {
        "reading": reading,
        "eigendecompositions and FC^alpha": n * _of_spectrum(cohort),
        "kernels": grams * n_edges * _beyond(n, _of_gram),
    }
    if "qc_fc" in names:
        seconds["QC-FC"] = len(entries) * n_edges * _of_motion(n, settings)
    memory = _memory(n, n_edges, len(cohort.parcels))
    if "prediction" in names:
        study = open_study(cohort, settings)
        seconds["prediction"] = _of_prediction(study)
        memory += max(0.0, memory_of_kernels(study) - available_bytes())
    seconds["start, tables and page"] = START + EACH_EDGE * n_edges
    return Forecast(seconds, memory, tuple(name for name in names if name not in MEASURED))


def _memory(n: int, n_edges: int, n_parcels: int) -> float:
    spectra = n * n_parcels * (n_parcels + 1) * 8 if fits(n, n_parcels) else 0
    features = min(8 * n * n_edges, available_bytes())
    kernels = n * n * 8 * (KERNELS if _one_at_a_time(n) else INVERSES)
    return PROGRAM + spectra + features + (kernels if fits_in_memory(n) else available_bytes())  # tiles of one


def _one_at_a_time(n: int) -> bool:
    """Whether the inverses of one kernel are made anew for every pass over the folds."""
    return len(DECADES) * n * n * 8 > available_bytes()


def _of_prediction(study: Study) -> float:
    n, m, preset = len(study.people.names), len(study.targets), study.preset
    entries = len(expand_names(study.cohort, study.settings))
    number = choose_permutations(study).number
    null = [min(CHUNK, number + 1)] * math.ceil((number + 1) / CHUNK) if number else []
    added = [1, min(number, MOST_PERMUTATIONS) + 1] if number else [1]  # what the connectome adds to known columns
    cost = {size: _beyond(n, partial(_of_folds, n_columns=size, study=study)) for size in {m, *null, *added}}
    rebuilt = study.people.covariates.shape[1] > 0 or any(each.measures.shape[1] > 1 for each in study.targets)
    of_null = (REBUILT if rebuilt else 1) * sum(cost[size] for size in null)
    passes = m * (of_null + sum(cost[size] for size in added))
    share = len(study.first_repeat) / preset.n_folds
    inverses = INVERSES * (1 + m * len(null + added) if _one_at_a_time(n) else 1) * _beyond(n, _of_inverse)
    if not fits_in_memory(n):
        inverses *= BY_TILES
    return entries * (cost[m] * len(study.folds) / preset.n_folds + passes * share + inverses)


def _beyond(n: int, unit: Callable[[int], float]) -> float:
    """Seconds of a unit for n people: measured, or by the quadratic and cubic law through two measurements."""
    with memory_limit(0):  # few people are measured, whatever the request gives
        if n <= PEOPLE:
            return unit(n)
        half, whole = unit(PEOPLE // 2), unit(PEOPLE)
    cubic = min(max(2 * whole - 8 * half, 0.0), whole)  # share of the cubic term among so many people
    return (whole - cubic) * (n / PEOPLE) ** 2 + cubic * (n / PEOPLE) ** 3


def _timed(work: Callable[[], Any], times: int = 1) -> float:
    """Least CPU seconds of some calls: the first pays for what is loaded, which a cubic law would multiply."""

    def once() -> float:
        started = time.process_time()
        work()
        return time.process_time() - started

    return min(once() for _ in range(times))


def _of_spectrum(cohort: Cohort) -> float:
    """Decompose and raise a few connectomes; seconds of one."""
    matrices = [rebuild_matrix(np.asarray(row, dtype=float)) for row in cohort.edges[: min(4, len(cohort.edges))]]

    def work(matrix: Any) -> None:
        values, vectors = eigendecompose(matrix)
        power_features(values[None], [np.ascontiguousarray(vectors)], 0.35)

    work(matrices[0])
    return float(np.median([_timed(partial(work, matrix)) for matrix in matrices]))


def _of_gram(n: int) -> float:
    features = np.random.default_rng(0).standard_normal((n, 4 * COLUMNS))
    return _timed(lambda: correlation_kernel(features), CHEAP) / (4 * COLUMNS)


def _of_inverse(n: int) -> float:
    kernel = correlation_kernel(np.random.default_rng(0).standard_normal((n, COLUMNS)))
    return _timed(lambda: dense().invert(kernel, 0.1, True), CHEAP)


def _of_folds(n: int, n_columns: int, study: Study) -> float:
    """Send columns of noise through the folds of one repeat, without the inverses."""
    rng, preset = np.random.default_rng(0), study.preset
    solver = regress_on_kernel(correlation_kernel(rng.standard_normal((n, COLUMNS))), preset)
    targets = rng.standard_normal((n, n_columns))
    folds = replicated_folds(n, preset.n_folds, preset.n_inner, 1)
    run_nested_cv(solver, targets, folds[:1], preset)  # what a first call prepares: inverses beyond the grid
    return _timed(lambda: run_nested_cv(solver, targets, folds, preset))


def _of_motion(n: int, settings: Settings) -> float:
    """Correlate some edges of noise with permuted motion; seconds of one edge."""
    rng, size = np.random.default_rng(0), min(n, PEOPLE)
    number = qc_fc.PERMUTATIONS if settings.permutations is None else settings.permutations
    orders = np.argsort(rng.standard_normal((number, size)), axis=1)
    score, held = rng.standard_normal(size), np.full((size, 1), size**-0.5)
    model = qc_fc.MotionModel(score / np.linalg.norm(score), held, 1, orders, False)
    features = rng.standard_normal((size, COLUMNS))
    return _timed(lambda: qc_fc.correlate_edges(features, model)) / COLUMNS * n / size


def _in_words(seconds: float) -> str:
    """Seconds as a person says them."""
    for size, name in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.0f} s"
