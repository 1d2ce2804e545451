"""The spectrum of connectomes, and the source of the gain of FC^alpha."""
