"""Kernel ridge regression and the linear probe: folds, targets, kernels, nested cross-validation, scores."""
