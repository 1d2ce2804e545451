"""How uncertain an estimate is when each unit (a person, a family) is left out in turn (Tukey 1958)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


def jackknife_limit(estimate: float, without: ArrayLike, confidence: float) -> float:
    """Lower one-sided confidence limit of an estimate, by t with n - 1 degrees of freedom.

    Parameters
    ----------
    estimate : float
        From all n units.
    without : array_like, shape (n,)
        The same with each unit left out.
    confidence : float
        Such as 0.95.

    Returns
    -------
    float
        For a mean the textbook's limit, exactly.
    """
    values = np.asarray(without, dtype=np.float64)
    n = len(values)
    error = np.sqrt((n - 1) / n * ((values - values.mean()) ** 2).sum())
    return float(estimate - stats.t.ppf(confidence, n - 1) * error)
