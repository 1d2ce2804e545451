"""Which connections go with a phenotype."""
