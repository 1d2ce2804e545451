"""Predictors of phenotypes from the features of people, one file each.

A predictor is an object that derives from `contract.Predictor`: ``summary`` and ``title`` say what it is, and
`solver` gives the regression that the nested cross-validation runs: penalties that its inner folds choose from, or
none. All predictors are given the same people, targets, folds and tests.

A new predictor is one file with one class, and one line here; ``--help``, the tables, the page and the contract tests
then know it.
"""

from collections.abc import Sequence

from fcpower_bids.registry import Registry

KERNEL_RIDGE = "kernel_ridge"
"""The paper's; entries of tables that name no predictor are its."""

MULTIKERNEL = "multikernel"

PREDICTORS = Registry(
    "predictor",
    {
        KERNEL_RIDGE: "fcpower_bids.predictors.regressions:KernelRidge",
        "ridge": "fcpower_bids.predictors.regressions:Ridge",
        MULTIKERNEL: "fcpower_bids.predictors.regressions:MultiKernel",
        "cpm": "fcpower_bids.predictors.regressions:ConnectomePredictiveModel",
    },
)


def join_representations(names: Sequence[str]) -> str:
    """Name of several representations together, for a predictor that takes them so: ``fc+fc_power``."""
    return "+".join(names)


def entry_name(representation: str, predictor: str) -> str:
    """Name, in tables, of what a predictor makes of a representation: ``fc``, ``fc:cpm``."""
    return representation if predictor == KERNEL_RIDGE else f"{representation}:{predictor}"


def split_entry(entry: str) -> tuple[str, str]:
    """Return the representation and the predictor of an entry."""
    representation, _, predictor = entry.rpartition(":")
    return (representation, predictor) if predictor in PREDICTORS and representation else (entry, KERNEL_RIDGE)
