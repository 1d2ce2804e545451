"""Encoders against each other and against connectivity."""
