"""Published encoders, each loaded by ``(weights, *, revision, seed, parcel_names, protocol) -> Encoder``."""

from fcpower_bids.encoders.published.brain_semantoks import load_brain_semantoks
from fcpower_bids.encoders.published.masked import load_brainlm, load_brainlm_650m, load_brainmass
from fcpower_bids.encoders.published.patches import load_brain_harmonix, load_brain_jepa

LOADERS = {
    "brainlm-111m": load_brainlm,
    "brainlm-650m": load_brainlm_650m,
    "brain-jepa": load_brain_jepa,
    "brainmass": load_brainmass,
    "brain-harmonix-f": load_brain_harmonix,
    "brain-semantoks": load_brain_semantoks,
}
