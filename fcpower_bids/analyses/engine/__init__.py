"""What the analyses share: people, targets, folds, representations, scores, comparisons."""
