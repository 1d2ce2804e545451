"""fcpower_bids: functional connectomes with a flattened spectrum, from fMRIPrep derivatives.

Importing the package loads nothing heavy: its interface for scripts is imported on first use, and torch,
nipype, nilearn and pybids where they are used.
"""

from __future__ import annotations

from importlib import import_module

from fcpower_bids._version import __version__

__all__ = [
    "CorrelationKernelRidgeCV",
    "FamilyFolds",
    "SpectralPower",
    "__version__",
    "load_cohort",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'fcpower_bids' has no attribute {name!r}")
    module = "fcpower_bids.notebook" if name == "load_cohort" else "fcpower_bids.estimators"
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
