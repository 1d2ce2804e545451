"""Cohorts in memory: people of the demo with a planted phenotype, and arrays of one's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import ortho_group

from fcpower_bids.core.connectome import pearson_connectivity
from fcpower_bids.core.edges import edge_count, vectorise_edges
from fcpower_bids.demo.dataset import draw_connectome, draw_people, draw_person, draw_population
from fcpower_bids.demo.signals import draw_clean_series
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Settings

TR = 2.5


def choose(**choices) -> Settings:
    """Settings of the group level, with the paper's protocol, whose grid of penalties is easily written out again."""
    return Settings(Path("bids"), Path("out"), "group").changed(**({"quiet": True, "preset": "paper"} | choices))


def demo_cohort(n_people=60, n_volumes=160, seed=0, n_parcels=60) -> Cohort:
    """Two sessions per person; ``planted_score`` and cognition follow weak modes, ``null_score`` follows nothing.

    Of the parcels of the demo only the first ``n_parcels`` are kept.
    """
    rng = np.random.default_rng(seed)
    population = draw_population(rng)
    people = draw_people(n_people, rng)
    rows, series = [], []
    for number in range(n_people):
        person = draw_person(rng)
        for session in "ab":
            connectome = draw_connectome(population, person, people.factor[number], rng)
            series.append(draw_clean_series(connectome, n_volumes, TR, rng)[:, :n_parcels])
            rows.append((f"sub-{number:02d}", session, n_volumes * TR, 0.1 + 0.01 * (number % 7), 1))
    edges = np.stack([vectorise_edges(pearson_connectivity(each), weighted=False) for each in series])
    index = pd.Index([f"sub-{number:02d}" for number in range(n_people)], name="participant_id")
    table = pd.DataFrame({**people.participants, **people.cognition}, index=index)
    table["attention"] = pd.to_numeric(table["attention"], errors="coerce")
    return cohort_of(edges, rows, table, series)


def cohort_of(edges, rows, phenotypes, series=(), **more) -> Cohort:
    """Cohort of arrays; the first half of the parcels is one network, the rest another."""
    n_parcels = next(p for p in range(2, 1000) if edge_count(p) == edges.shape[1])
    scans = pd.DataFrame(rows, columns=["participant_id", "session", "seconds", "mean_fd", "n_runs"])
    volumes = scans["seconds"] / TR if series else np.nan
    scans = scans.assign(volumes=volumes, degrees_of_freedom=np.nan)
    return Cohort(
        scans=scans,
        edges=edges,
        parcels=tuple(f"parcel{i:02d}" for i in range(n_parcels)),
        networks=tuple("first" if i < n_parcels // 2 else "second" for i in range(n_parcels)),
        phenotypes=phenotypes,
        excluded=pd.DataFrame(columns=["participant_id", "session", "what", "reason"]),
        series=tuple((lambda run=run: [run]) for run in series),
        repetition_times=(TR,) * len(series),
        **more,
    )


def single_session(features_rng, n_people, n_parcels=8, **columns) -> Cohort:
    """One random scan per person and the given phenotypes."""
    series = features_rng.standard_normal((n_people, 30, n_parcels))
    return one_scan_each(np.stack([pearson_connectivity(each) for each in series]), columns)


def one_scan_each(connectomes, columns, series=()) -> Cohort:
    names = [f"sub-{number:03d}" for number in range(len(connectomes))]
    rows, table = [(name, "n/a", 300.0, 0.1, 1) for name in names], pd.DataFrame(columns, index=pd.Index(names))
    return cohort_of(vectorise_edges(connectomes, weighted=False), rows, table, series)


# A cohort of full rank whose phenotype turns weak modes, while strong modes differ between people for no reason.
N_STRONG = 5


def weak_mode_cohort(n_people=90, n_parcels=16, n_volumes=0, seed=0):
    """One exact connectome per person; ``weak`` is the angle of two weak modes, ``noise`` follows nothing.

    With ``n_volumes`` every scan also has a series whose correlation is the connectome.
    """
    rng = np.random.default_rng(seed)
    basis = ortho_group.rvs(n_parcels, random_state=seed)
    weak = rng.standard_normal(n_people)
    connectomes = np.stack([_draw(rng, basis, angle) for angle in 0.35 * weak])
    series = []
    for connectome in connectomes if n_volumes else ():
        white = rng.standard_normal((n_volumes, n_parcels))
        white = np.linalg.qr(white - white.mean(axis=0))[0]
        series.append(white @ np.linalg.cholesky(connectome).T)
    return one_scan_each(connectomes, {"weak": weak, "noise": rng.standard_normal(n_people)}, series)


def _draw(rng, basis, angle):
    n_parcels = len(basis)
    strong, rest = basis[:, :N_STRONG], basis[:, N_STRONG:]
    own = strong @ ortho_group.rvs(N_STRONG, random_state=rng)
    weak = np.column_stack([np.cos(angle) * rest[:, 0] + np.sin(angle) * rest[:, 1], rest[:, 2:]])
    eigenvalues = np.exp(rng.normal(0, 0.5, N_STRONG)) * 5, 0.03 * np.exp(rng.normal(0, 0.1, n_parcels - N_STRONG - 1))
    covariance = 0.003 * np.eye(n_parcels) + (own * eigenvalues[0]) @ own.T + (weak * eigenvalues[1]) @ weak.T
    scale = 1 / np.sqrt(np.diag(covariance))
    correlation = covariance * np.outer(scale, scale)
    np.fill_diagonal(correlation, 1.0)
    return correlation
