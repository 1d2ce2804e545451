"""Maps from connectomes to connectomes.

A transform is a row of `stateless.STATELESS`, or a class that derives from `fitted.FittedTransform`, and a name here:
``--help``, the workflow, the sidecars, the transform screen and the contract tests then know it.
"""

NAMES = (
    *("power", "fisher_z", "log_euclidean", "partial_correlation", "tangent", "degree", "cholesky", "log_cholesky"),
    *("precision", "tucker"),
)
"""The names alone, for ``--help``, which loads no numpy."""
