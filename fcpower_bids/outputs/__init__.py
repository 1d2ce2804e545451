"""What is written: names, tables, sidecars, status."""
