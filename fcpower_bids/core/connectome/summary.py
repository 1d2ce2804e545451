"""A connectome in a few numbers that a reader can compare with those of other people."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fcpower_bids.core.connectome.spd import eigendecompose
from fcpower_bids.core.connectome.spectrum import spectrum_summary


def connectome_summary(matrix: ArrayLike, networks: Sequence[str] = ()) -> dict[str, float]:
    """Return the mean correlation of all edges, of the edges within each network, and the participation ratio.

    `matrix` (P, P): Pearson FC. `networks` (of length P): network of each parcel; networks of a single parcel have no
    edges and are left out, as are parcels of none ("n/a"); none is named where all parcels are of one. Returns
    ``mean_fc``, ``within NETWORK`` in the order of their first parcels, ``participation_ratio``.
    """
    fc = np.asarray(matrix, dtype=float)
    upper = np.triu(np.ones(fc.shape, dtype=bool), 1)
    found = {"mean_fc": float(fc[upper].mean())}
    labels = np.asarray(networks, dtype=str)
    names = list(dict.fromkeys(labels.tolist()))
    for name in names if len(names) > 1 else []:
        own = upper & np.outer(labels == name, labels == name)
        if own.any() and name != "n/a":
            found[f"within {name}"] = float(fc[own].mean())
    found["participation_ratio"] = float(spectrum_summary(eigendecompose(fc)[0])["participation_ratio"])
    return found
