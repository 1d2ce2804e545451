"""Which connections go with a phenotype."""

from fcpower_bids.plugins import Slice

SLICE = Slice(
    options={"edges": "fcpower_bids.slices.edges.options:EdgeChoices"},
    checks={"edges": "fcpower_bids.slices.edges.options:check_threshold"},
    analyses={"edges": "fcpower_bids.slices.edges.analysis:analyse_edges"},
    sections={"edges": "fcpower_bids.slices.edges.page:PART"},
    methods={"edges": "fcpower_bids.slices.edges.page:METHODS"},
)
