"""Published and own encoders, one whole model per file."""
