"""Inputs: recordings in BIDS derivatives, and faults that can be found before anything runs."""
