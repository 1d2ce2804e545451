"""The sections of the cohort page, one chapter each."""
