"""Confounds tables, strategies, and the cleaning of parcel series with them."""
