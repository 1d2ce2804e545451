"""The tables of the analysis of edges."""

from __future__ import annotations

from fcpower_bids.schema import Column, Columns, TableSpec, join_columns

STRONGEST = 100
"""So many edges of each target and representation are listed whatever their p."""

R, D = "r", "d"
KEYS: Columns = join_columns(
    Column.text("target", "Phenotype or composite that the edges may go with", "Target"),
    Column.text("representation", "Whose edges: fc, fc_power or another transform", "Representation"),
)
EFFECT: Columns = join_columns(
    Column.text(
        "measure",
        "Kind of the effect",
        "Effect",
        levels={
            R: "partial correlation with the target, given covariates and sites",
            D: "Cohen's d: adjusted difference of the classes over the residual standard deviation",
        },
    ),
    Column.number("effect", "The effect; positive where the edge is stronger with more of the target", "Size", 2),
    Column.number("ci_low", "Lower limit of its 95 % interval, for this edge alone", "95 % from", 2),
    Column.number("ci_high", "Upper limit of its 95 % interval, for this edge alone", "to", 2),
    Column.number(
        "t",
        "t of the target in the linear model: Welch's, with a variance of each class and each site; their ratio goes "
        "by all edges, as far as these agree",
        "t",
        2,
    ),
    Column.number("df", "Degrees of freedom of that t (Satterthwaite)", "df", 1),
    Column.p(
        "p",
        "Two-sided p of that t by Student's distribution, uncorrected; n/a with families, for relatives are not "
        "independent",
        "p (uncorrected)",
    ),
    Column.p("p_permutation", "Two-sided p by permutation, uncorrected"),
)
LARGEST = (
    "p against the largest |t| of all {} of the target and representation in each permutation, each |t| brought to "
    "the degrees of freedom of the model: corrected for their number"
)

EDGES = TableSpec(
    "edges",
    "The edges that go with a target: all that are significant by themselves (`p_family_wise` or `q` below .05) or in "
    f"a network that is, and the {STRONGEST} with the largest |t|.",
    join_columns(
        KEYS,
        Column.text("parcel_a", "First parcel of the edge", "From"),
        Column.text("parcel_b", "Second parcel of the edge", "To"),
        Column.text("network_a", "Network of the first parcel", "Network"),
        Column.text("network_b", "Network of the second parcel", "Network"),
        Column.number("slope", "Change of the edge per unit of the target; difference of two classes", "Slope"),
        EFFECT,
        Column.p("p_family_wise", LARGEST.format("edges"), "p (corrected)"),
        Column.p(
            "q",
            "False discovery rate over all edges (Benjamini and Hochberg), of the p of each |t| against those of all "
            "edges in all permutations; of `p` without permutations",
            "q",
        ),
        Column.number("component", "Network of edges that it is part of, in `edges_components`", "Component", 0),
    ),
    ("target", "representation", "parcel_a", "parcel_b"),
)
NETWORK_PAIRS = TableSpec(
    "edges_networks",
    "The same model for the mean of all edges between two networks of the atlas, or within one.",
    join_columns(
        KEYS,
        Column.text("network_a", "First network", "Network"),
        Column.text("network_b", "Second network, or the same", "Network"),
        Column.number("n_edges", "Edges between them", "Edges", 0),
        Column.number("n_significant", "How many of them have p_family_wise < .05 by themselves", "Significant", 0),
        Column.number("mean_t", "Mean t of these edges", "Mean t of edges", 2),
        EFFECT,
        Column.p("p_family_wise", LARGEST.format("pairs of networks"), "p (corrected)"),
    ),
    ("target", "representation", "network_a", "network_b"),
)
STRONGER, WEAKER = "stronger", "weaker"
COMPONENTS = TableSpec(
    "edges_components",
    "Network-based statistic: connected networks of two or more edges whose |t| is above the threshold.",
    join_columns(
        KEYS,
        Column.number("component", "Number, the largest first", "Component", 0),
        Column.text("sign", f"{STRONGER} or {WEAKER} with more of the target, all of its edges alike", "Edges are"),
        Column.number("n_edges", "Its edges (extent)", "Edges", 0),
        Column.number("n_parcels", "Its parcels", "Parcels", 0),
        Column.number("intensity", "Sum over its edges of |t| above the threshold", "Intensity", 1),
        Column.p(
            "p_extent",
            "p of its extent against that of the largest network, of either sign, in each permutation",
            "p (extent)",
        ),
        Column.p("p_intensity", "The same of its intensity", "p (intensity)"),
    ),
    ("target", "representation", "component"),
)
SUMMARY = TableSpec(
    "edges_summary",
    "Findings, one row per target and representation.",
    join_columns(
        KEYS,
        Column.number("n_people", "People with the target and all covariates", "People", 0),
        Column.number("n_covariates", "Independent columns of covariates in the model", "Covariates", 0),
        Column.number("n_sites", "Sites with a mean of their own; 1 without sites", "Sites", 0),
        Column.number("n_variances", "Groups with a variance of their own: classes and sites", "Variances", 0),
        Column.number("df", "Residual degrees of freedom", "df", 0),
        Column.number("n_edges", "Edges that vary over people", "Edges", 0),
        Column.number("n_permutations", "Permutations", "Permutations", 0),
        Column.number("smallest_p", "Smallest p that these permutations can give for any result"),
        Column.number("n_family_wise", "Edges with p_family_wise < .05", "Significant", 0),
        Column.number("n_stronger", "Those of them that are stronger with more of the target", "Stronger", 0),
        Column.number("n_fdr", "Edges with q < .05", "q < .05", 0),
        Column.p("p_family_wise", "Smallest p_family_wise of an edge", "p (edges)"),
        Column.p("p_max", "The same, corrected for the number of representations too", "p (all)"),
        Column.number("t_needed", "|t| from which an edge would have had p_family_wise < .05", "t needed", 2),
        EFFECT["measure"],
        Column.number("effect_needed", "The observed effect of that t: the threshold", "Needed", 2),
        Column.number(
            "effect_powered",
            "The true effect that would be found in 80 of 100 such cohorts",
            "Found in four of five",
            2,
        ),
        Column.number("effect_largest", "Effect of the edge with the largest |t|", "Largest", 2),
        Column.number("threshold", "|t| above which edges form networks", "Threshold", 2),
        Column.number("n_components", "Networks of two or more edges", "Components", 0),
        Column.p("p_component", "Smallest p_extent of a network", "p (networks)"),
        Column.p("p_component_intensity", "Smallest p_intensity of a network", "p (intensity)"),
    ),
    ("target", "representation"),
)
NULL = TableSpec(
    "edges_null",
    "Largest statistics of every permutation, the reference of the corrected p.",
    join_columns(
        KEYS,
        Column.number("permutation", "From 1"),
        Column.number("largest_t", "Largest |t| of an edge"),
        Column.number("extent", "Edges of the largest network of edges"),
        Column.number("intensity", "Largest intensity of a network of edges"),
    ),
    ("target", "representation", "permutation"),
)
MATRIX = TableSpec(
    "edges_LABEL_target-TARGET-REPRESENTATION",
    "Every edge as a symmetric matrix of parcels by parcels. LABEL is `t`, `slope` (change of the edge per unit of the "
    "target) or `p` (family-wise). Left out, as the sidecar of `edges` then says, where all of them would have more "
    "than ten million numbers.",
    join_columns(
        Column.text("Node", "Parcel of the row"),
        Column.number("one per parcel", "The statistic of the edge between the two; `n/a` on the diagonal"),
    ),
    ("Node",),
)
OF_EDGES = (EDGES, NETWORK_PAIRS, COMPONENTS, SUMMARY, NULL, MATRIX)
