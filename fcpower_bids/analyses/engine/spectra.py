"""Eigendecompositions that the analyses of one command share, as far as they fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.regression.kernels import FeatureSource
from fcpower_bids.resources import available_bytes

Spectrum = tuple[FloatArray, FloatArray]
"""Eigenvalues (P,) in descending order, and eigenvectors (P, P) in columns."""

_SHARED: ContextVar[SharedSpectra | None] = ContextVar("eigendecompositions of a command", default=None)


class SharedSpectra:
    """Eigendecompositions of scans and of people with several scans, each kept under its scans and their weights.

    Shapes and units: edges (n_scans, E).
    """

    def __init__(self, edges: FeatureSource) -> None:
        self.edges = edges
        self.known: dict[bytes, Spectrum] = {}

    def gather(
        self, keys: Sequence[bytes], decompose: Callable[[list[int]], Iterable[Spectrum]], n_bytes: int
    ) -> list[Spectrum]:
        """Return the spectrum of every key; what is not known is decomposed, by position.

        Where all that is known would take more than `n_bytes` with it, what is not asked for now is forgotten.
        """
        lacking = [place for place, key in enumerate(keys) if key not in self.known]
        found = list(decompose(lacking))
        size = sum(each.nbytes for spectrum in (*self.known.values(), *found) for each in spectrum)
        if size > n_bytes:
            asked = set(keys)
            self.known = {key: spectrum for key, spectrum in self.known.items() if key in asked}
        self.known.update((keys[place], spectrum) for place, spectrum in zip(lacking, found, strict=True))
        return [self.known[key] for key in keys]


@contextmanager
def sharing_spectra(edges: FeatureSource) -> Iterator[None]:
    """Decompose each connectome of a cohort once for all analyses, where the spectra fit in memory."""
    token = _SHARED.set(SharedSpectra(edges))
    try:
        yield
    finally:
        _SHARED.reset(token)


def shared_spectra(edges: FeatureSource) -> SharedSpectra | None:
    """Return what is shared of these connectomes; None where nothing is."""
    shared = _SHARED.get()
    return shared if shared is not None and shared.edges is edges else None


def fits(n: int, n_parcels: int) -> bool:
    """Whether the spectra of n connectomes of P parcels fit into the memory of one large array."""
    return n * n_parcels * (n_parcels + 1) * 8 <= available_bytes()
