"""Which eigenvalues serve: alignment, exponents, learned and random spectral filters."""
