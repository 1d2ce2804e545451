"""A cohort of full rank whose phenotype turns weak modes, while strong modes differ between people for no reason."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import ortho_group

from fcpower_bids.core.connectome.edges import vectorise_edges
from tests.analyses.cohorts import cohort_of

N_STRONG = 5


def weak_mode_cohort(n_people=90, n_parcels=16, n_volumes=0, seed=0):
    """One exact connectome per person; ``weak`` is the angle of two weak modes, ``noise`` follows nothing.

    With ``n_volumes`` every scan also has a series whose correlation is the connectome.
    """
    rng = np.random.default_rng(seed)
    basis = ortho_group.rvs(n_parcels, random_state=seed)
    weak = rng.standard_normal(n_people)
    connectomes = np.stack([_draw(rng, basis, angle) for angle in 0.35 * weak])
    series = [_series_of(rng, each, n_volumes) for each in connectomes] if n_volumes else ()
    names = [f"sub-{number:03d}" for number in range(n_people)]
    table = pd.DataFrame({"weak": weak, "noise": rng.standard_normal(n_people)}, index=pd.Index(names))
    rows = [(name, "n/a", 300.0, 0.1, 1) for name in names]
    return cohort_of(vectorise_edges(connectomes, weighted=False), rows, table, series)


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


def _series_of(rng, connectome, n_volumes):
    white = rng.standard_normal((n_volumes, len(connectome)))
    white = np.linalg.qr(white - white.mean(axis=0))[0]
    return white @ np.linalg.cholesky(connectome).T
