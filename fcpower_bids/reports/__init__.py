"""Figures, HTML pages and methods text, made from what was written."""
