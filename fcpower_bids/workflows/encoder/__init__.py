"""Workflows of the pack and pretrain levels."""
