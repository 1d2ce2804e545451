"""Published encoders, each loaded by ``(weights, *, revision, seed, parcel_names, protocol) -> Encoder``."""

from fcpower_bids.encoders.published.brain_semantoks import SemantoksEncoder
from fcpower_bids.encoders.published.masked import BrainLM650Encoder, BrainLMEncoder, BrainMassEncoder
from fcpower_bids.encoders.published.patches import BrainJEPAEncoder, HarmonixEncoder

LOADERS = {
    encoder.name: encoder.load
    for encoder in (
        *(BrainLMEncoder, BrainLM650Encoder, BrainJEPAEncoder),
        *(BrainMassEncoder, HarmonixEncoder, SemantoksEncoder),
    )
}
