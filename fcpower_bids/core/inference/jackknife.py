"""How uncertain an estimate is when each unit (a person, a family) is left out in turn (Tukey 1958)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


def jackknife_limit(estimate: float, without: ArrayLike, confidence: float, seeds: ArrayLike | None = None) -> float:
    """Lower one-sided confidence limit of an estimate, by t with n - 1 degrees of freedom.

    With `seeds` the estimate is the mean over k seeds, and the limit is that of one further seed: the variance of a
    seed about the mean, (1 + 1/k) s^2, is added, and the degrees of freedom are those of Welch and Satterthwaite.
    `estimate`: from all n units. `without` (n,): the same with each unit left out. `confidence`: such as 0.95. `seeds`
    (k,): the same from all units, with each seed. Returns: for a mean the textbook's limit, exactly.
    """
    values = np.asarray(without, dtype=np.float64)
    n = len(values)
    variance, freedom = (n - 1) / n * ((values - values.mean()) ** 2).sum(), float(n - 1)
    if seeds is not None:
        each = np.asarray(seeds, dtype=np.float64)
        k = len(each)
        of_seed = (1 + 1 / k) * each.var(ddof=1)
        total = variance + of_seed
        if total > 0:
            freedom = float(total**2 / (variance**2 / (n - 1) + of_seed**2 / (k - 1)))
        variance = total
    return float(estimate - stats.t.ppf(confidence, freedom) * np.sqrt(variance))
