"""Curves over more people, longer scans and other parcellations."""
