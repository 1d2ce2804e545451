"""What comes in: finding recordings in BIDS derivatives, and what can be known to be wrong before anything runs."""
