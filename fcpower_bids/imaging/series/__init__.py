"""Voxels and vertices to parcel series, streaming."""
