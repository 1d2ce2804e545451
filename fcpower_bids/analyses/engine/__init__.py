"""Shared by the analyses: people, targets, folds, representations, scores, comparisons."""
