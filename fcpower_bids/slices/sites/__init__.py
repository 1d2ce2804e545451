"""Sites: ComBat in the folds, a comparison of ways to handle sites, and the section of the page about them."""

from fcpower_bids.plugins import Slice

SLICE = Slice(
    harmonisers={"combat": "fcpower_bids.slices.sites.combat:BY_COMBAT"},
    analyses={"harmonisation": "fcpower_bids.slices.sites.comparison:analyse_harmonisation"},
    sections={"sites": "fcpower_bids.slices.sites.page:PART"},
    methods={"harmonisation": "fcpower_bids.slices.sites.page:METHODS"},
)
