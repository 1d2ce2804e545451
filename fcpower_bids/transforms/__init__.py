"""Maps from connectomes to connectomes.

A transform is one class that derives from `stateless.Transform`, a name here and a line of `connectomes.TRANSFORMS`:
``--help``, the workflow, the sidecars, the transform screen and the contract tests then know it.
"""

NAMES = (
    *("power", "fisher_z", "log_euclidean", "partial_correlation", "tangent", "degree", "cholesky", "log_cholesky"),
    *("precision", "tucker"),
)
"""The names alone, for ``--help``, which loads no numpy."""
