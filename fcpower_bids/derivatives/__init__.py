"""BIDS derivatives: finding inputs, naming and writing outputs, assembling cohorts."""
