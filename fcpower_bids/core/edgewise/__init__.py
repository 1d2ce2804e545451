"""Which connections go with a target: a linear model of every edge, its permutations, and networks of edges."""
