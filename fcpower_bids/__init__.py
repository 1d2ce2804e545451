"""fcpower_bids: functional connectomes with a flattened spectrum, from fMRIPrep derivatives.

Importing the package loads nothing heavy: torch, nipype, nilearn and pybids are imported where they are used.
"""

from fcpower_bids._version import __version__

__all__ = ["__version__"]
