"""The commands about saved models and about who a scan is of."""
