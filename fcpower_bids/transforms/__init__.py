"""Maps from connectomes to connectomes.

A transform is one class that derives from `contract.Transform`, and one line here: ``--help``, the workflow, the
sidecars, the transform screen and the contract tests then know it.
"""

from fcpower_bids.registry import Registry

TRANSFORMS = Registry(
    "transform",
    {
        "power": "fcpower_bids.transforms.stateless:Power",
        "fisher_z": "fcpower_bids.transforms.stateless:FisherZ",
        "log_euclidean": "fcpower_bids.transforms.stateless:LogEuclidean",
        "partial_correlation": "fcpower_bids.transforms.stateless:PartialCorrelation",
        "tangent": "fcpower_bids.transforms.fitted:Tangent",
        "degree": "fcpower_bids.transforms.stateless:Degree",
        "cholesky": "fcpower_bids.transforms.stateless:Cholesky",
        "log_cholesky": "fcpower_bids.transforms.stateless:LogCholesky",
        "precision": "fcpower_bids.transforms.stateless:Precision",
        "tucker": "fcpower_bids.transforms.fitted:Tucker",
    },
)
