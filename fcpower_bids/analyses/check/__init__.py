"""What a skeptic asks of a cohort before the first model: scans, names, sites, codes, motion and length."""
