"""The paper's equations as functions of arrays: float64 in, float64 out, no files."""
