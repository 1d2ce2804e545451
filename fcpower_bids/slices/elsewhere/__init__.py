"""Series and connectomes of other programs."""

from fcpower_bids.plugins import Slice

SLICE = Slice(sources={"elsewhere": "fcpower_bids.slices.elsewhere.imports:SOURCE"})
