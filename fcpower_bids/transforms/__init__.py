"""Maps from connectomes to connectomes, one file each."""

from fcpower_bids.registry import Registry

TRANSFORMS = Registry(
    "transform",
    {
        "power": "fcpower_bids.transforms.power:Power",
        "fisher_z": "fcpower_bids.transforms.fisher_z:FisherZ",
        "log_euclidean": "fcpower_bids.transforms.log_euclidean:LogEuclidean",
        "partial_correlation": "fcpower_bids.transforms.partial_correlation:PartialCorrelation",
    },
)
