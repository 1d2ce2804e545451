"""Group analyses: arrays and tables in, long tables out; nothing here touches the disk."""

from fcpower_bids.registry import Registry

ANALYSES = Registry(
    "analysis",
    {
        "prediction": "fcpower_bids.analyses.prediction:analyse_prediction",
        "fingerprinting": "fcpower_bids.analyses.fingerprinting:analyse_fingerprinting",
    },
)
