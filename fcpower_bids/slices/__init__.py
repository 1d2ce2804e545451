"""Slices: each folder is one thing to a person, whole; `fcpower_bids.plugins` finds those that are there."""
