"""Kernel-target alignment of one kernel, equation 4 of the paper."""

from __future__ import annotations

from fcpower_bids.core.alignment import alignment_from, checked_kernel, fold_moments, fold_targets


def target_alignment(kernel, masks, targets):
    """Of kernel (n, n), masks (F, n), targets (n,), (n, q) or (F, n, q): (F, q)."""
    pairs = fold_targets(masks, targets)
    return alignment_from(fold_moments(checked_kernel(kernel, pairs[0][0].shape[1]), pairs)[None])[0]
