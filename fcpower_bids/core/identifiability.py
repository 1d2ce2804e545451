"""How far a person's own scans stand out from those of others, over all scans and edge by edge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.identification import scan_labels, session_blocks
from fcpower_bids.core.reliability import intraclass_correlation

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Identifiability:
    """How far a person's own scans stand out.

    Attributes
    ----------
    i_self, i_others : float
        Mean similarity to the own scan and to those of others (Amico & Goni 2018, Scientific Reports 8:8254).
    i_diff : float
        100 (i_self - i_others), their percentage.
    d_prime : float
        (i_self - i_others) / sqrt((var_self + var_others) / 2); NaN without variance.
    """

    i_self: float
    i_others: float
    i_diff: float
    d_prime: float


def identifiability(similarity: ArrayLike, persons: ArrayLike, sessions: ArrayLike) -> Identifiability:
    """Compare similarities within and between people, over the same searches as `identify`; parameters as there.

    I_diff has the unit of the similarity: a representation that spreads all correlations less can have a smaller I_diff
    and identify more people. d' does not depend on the scale.
    """
    _, blocks = session_blocks(similarity, persons, sessions)
    own = np.concatenate([np.diag(block) for *_, block in blocks])
    others = np.concatenate([block[~np.eye(len(block), dtype=bool)] for *_, block in blocks])
    gap, spread = own.mean() - others.mean(), np.sqrt((own.var(ddof=1) + others.var(ddof=1)) / 2)
    return Identifiability(
        float(own.mean()), float(others.mean()), float(100 * gap), float(gap / spread) if spread > 0 else np.nan
    )


def edge_reliability(features: ArrayLike, persons: ArrayLike, sessions: ArrayLike, form: str = "ICC(2,1)") -> Array:
    """Intraclass correlation of every edge over the people who have all sessions.

    Parameters
    ----------
    features : array_like, shape (N, E)
        One row per scan.
    persons, sessions : array_like, shape (N,)
        Labels of each scan.
    form : str
        Name of the coefficient, see `reliability.intraclass_correlation`.

    Returns
    -------
    ndarray of float64, shape (E,)

    Raises
    ------
    ValueError
        Fewer than two people have all sessions, or the labels do not fit.
    """
    features = np.asarray(features, dtype=np.float64)
    persons, sessions = scan_labels(persons, sessions, len(features))
    names = np.unique(sessions)
    rows = {scan: row for row, scan in enumerate(zip(persons.tolist(), sessions.tolist(), strict=True))}
    complete = [p for p in dict.fromkeys(persons.tolist()) if all((p, name) in rows for name in names.tolist())]
    if len(complete) < 2:
        raise ValueError("The reliability of edges needs at least two people who have all sessions.")
    return intraclass_correlation(
        np.stack([features[[rows[p, name] for name in names.tolist()]] for p in complete]), form
    )
