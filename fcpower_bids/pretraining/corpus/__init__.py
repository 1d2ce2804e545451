"""The corpus that an encoder is trained on: what is packed, in what layouts, and the proof that it is sound."""
