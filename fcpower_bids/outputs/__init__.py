"""Output files: names, tables, sidecars, status."""
