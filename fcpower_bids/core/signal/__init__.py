"""Parcel series: cleaning, filtering, censoring, quality."""
