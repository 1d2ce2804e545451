"""The check of a cohort before the first model: whatever makes right formulas mislead."""
