"""Series and connectomes of other programs."""
