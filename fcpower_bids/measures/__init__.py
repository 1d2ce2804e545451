"""Tables computed from one recording; each entry is one new output (a :class:`~fcpower_bids.records.Measure`)."""

from fcpower_bids.registry import Registry

MEASURES = Registry(
    "measure",
    {
        "coverage": "fcpower_bids.measures.quality:COVERAGE",
        "spectrum": "fcpower_bids.measures.quality:SPECTRUM",
        "quality": "fcpower_bids.measures.quality:QUALITY",
    },
)
