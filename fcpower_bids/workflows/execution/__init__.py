"""The recordings of a run, here or on a cluster: how many at a time, what their processes import, batches, jobs."""

from __future__ import annotations

from fcpower_bids.resources import cores
from fcpower_bids.settings import Settings

FOR_RECORDINGS = (
    "fcpower_bids.workflows.execution.job",
    "fcpower_bids.imaging.confounds.cleaning",
    "fcpower_bids.imaging.series.parcellation",
    "fcpower_bids.measures.quality",
    "fcpower_bids.transforms.stateless",
    "scipy.signal",
)
FOR_PAGES = ("fcpower_bids.reports.person.page",)
"""Modules of the workers; imported once, before they are forked. None of them starts threads."""
MEMORY_GB, MEMORY_GB_ENCODER = 0.5, 1.5
"""Largest memory of a recording at 450 parcels and 5,000 volumes; measured, rounded up."""


def processes(settings: Settings) -> int:
    """Return the number of recordings at a time."""
    wanted = (settings.nprocs or cores()) // settings.omp_nthreads
    if settings.mem_mb:
        need = MEMORY_GB_ENCODER if settings.encoder is not None else MEMORY_GB
        wanted = min(wanted, int(settings.mem_mb / 1024 / need))
    return max(1, wanted)
