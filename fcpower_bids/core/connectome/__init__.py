"""Connectomes: correlation, edges, functions of symmetric positive definite matrices, their spectrum and means."""
