"""What may be said of the numbers: differences, permutation, reliability, identification, scaling."""
