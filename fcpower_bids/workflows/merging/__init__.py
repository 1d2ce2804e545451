"""Outputs of jobs, or of sites, put together in one folder."""
