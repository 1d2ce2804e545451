"""Saved models and what a clinic does with them: fitted, applied to new scans, identity of scans."""
