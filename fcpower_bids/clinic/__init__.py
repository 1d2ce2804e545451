"""Fitted models for new people: predictions with intervals, a page per person."""
