"""The tables of the analysis of edges."""

from __future__ import annotations

from fcpower_bids.schema import TABLES

STRONGEST = 100
"""So many edges of each target and representation are listed whatever their p."""

R, D = "r", "d"
LARGEST = (
    "p against the largest |t| of all {} of the target and representation in each permutation, each |t| brought to "
    "the degrees of freedom of the model: corrected for their number"
)

EDGES = TABLES["edges"]
NETWORK_PAIRS = TABLES["edges_networks"]
STRONGER, WEAKER = "stronger", "weaker"
COMPONENTS = TABLES["edges_components"]
SUMMARY = TABLES["edges_summary"]
NULL = TABLES["edges_null"]
MATRIX = TABLES["edges_LABEL_target-TARGET-REPRESENTATION"]
OF_EDGES = (EDGES, NETWORK_PAIRS, COMPONENTS, SUMMARY, NULL, MATRIX)
