"""Kernel-alignment pretraining of the encoder: corpus, teacher, losses, training loop."""
