"""Inference: differences, permutation, reliability, identification, scaling."""
