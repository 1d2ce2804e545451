"""Encoders of others, fed as their authors meant."""
