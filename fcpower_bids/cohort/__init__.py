"""The cohort of a group analysis: scans, connectomes, phenotypes, who stays and why."""
