"""Maps from connectomes to connectomes.

A transform is a row of `stateless.STATELESS` and a name here: ``--help``, the workflow, the sidecars, the transform
screen and the contract tests then know it. `fitted` has those of a group, which the transform screen alone uses.
"""

NAMES = (
    *("power", "fisher_z", "log_euclidean", "partial_correlation", "degree", "cholesky", "log_cholesky", "precision"),
)
"""The names alone, for ``--help``, which loads no numpy."""
