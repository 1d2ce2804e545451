"""Encoders of others, each fed as its authors meant."""
