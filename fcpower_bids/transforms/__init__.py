"""Maps from connectomes to connectomes, one file each.

A transform is a dataclass that derives from `contract.Transform`:

- its parameters are keywords, kept as given; ``fit(X)``, ``transform(X)`` and ``metadata(recording)`` are its methods;
- ``needs`` says whether a recording is handed over as its FC (P, P) or as its cleaned series (T, P); the result is
  always (n, P, P), symmetric, float64;
- ``stateless`` says that nothing is estimated from other recordings: the participant level runs only those;
- ``label`` and ``entities`` name its output, ``summary`` describes it in one sentence;
- parcels without coverage are NaN in the input and in the result, and do not touch the other parcels.

A new transform is one file with one class, and one line here; the contract tests, ``--help``, the workflow, the
sidecars and the transform screen then know it.
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
