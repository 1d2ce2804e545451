"""The eigenvalues: other transforms of them, controls, and their geometry."""
