"""Which columns the page of a cohort needs, and which of them are text."""

from __future__ import annotations

NAMES = {
    *("target", "representation", "reference", "session", "searched", "matched", "first_session", "second_session"),
    *("what", "reason", "parcel_a", "parcel_b", "network_a", "network_b", "role", "criterion", "over", "form"),
    *("at_grid_edge", "at_bound", "chosen", "transform", "fitted_to", "status", "control", "weighting", "monotone"),
    *("atlas", "people", "part", "parcel", "other", "analysis", "scan"),
}
"""Columns that are text even where they look like numbers."""

WITH_ALPHA = (
    *("prediction", "identification", "transform_screen", "spectral_controls", "learning_curves"),
    *("identification_curves", "parcellation_sweep", "encoders", "spectrum_path"),
)
"""Tables whose sidecars say the exponent of ``fc_power``."""
DIFFERENCE = ("mean_difference", "ci_low", "ci_high", "p_two_sided", "p_holm")
NEEDED = {
    "excluded": ("participant_id", "session", "what", "reason"),
    "scans": ("participant_id",),
    "folds": ("participant_id",),
    "prediction": ("target", "representation", "repeat", "fold", "n_train", "n_test", "at_grid_edge", "r", "auc"),
    "prediction_summary": ("target", "representation", "n_folds", "p_permutation", "r_fold_mean", "auc_fold_mean"),
    "predictions": ("participant_id", "target", "representation", "observed", "predicted"),
    "comparisons": ("target", "representation", "reference", "mean_difference", "ci_low", "ci_high", "p_two_sided"),
    "null": ("target", "representation", "permutation", "score"),
    "importance_networks": ("target", "representation", "network_a", "network_b", "importance"),
    "identification": ("representation", "first_session", "n_searches", "accuracy", "ci_low", "ci_high", "chance"),
    "identification_scans": ("representation", "participant_id", "session", "matched"),
    "identification_comparisons": ("representation", "reference", "difference", "p_mcnemar", "p_holm"),
    "identification_alpha": ("alpha", "accuracy", "i_diff", "d_prime"),
    "identification_length": ("representation", "minutes", "accuracy"),
    "alpha": ("criterion", "target", "alpha", "score"),
    "alpha_optimum": ("criterion", "target", "alpha", "score", "score_at_star", "at_bound"),
    "learning_curves": ("target", "representation", "n_people", "minutes", "part", "r", "auc"),
    "learning_gains": (
        "target",
        "representation",
        "reference",
        "n_people",
        "minutes",
        "mean_difference",
        "p_two_sided",
    ),
    "scaling_law": ("target", "representation", "w0", "w1", "w2", "at_bound"),
    "identification_curves": ("representation", "n_people", "minutes", "part", "accuracy", "chance"),
    "identification_gains": (
        "representation",
        "reference",
        "n_people",
        "minutes",
        "mean_difference",
        "ci_low",
        "ci_high",
    ),
    "transform_screen": ("target", "representation", "status", "reason", "fold_mean", "reference", *DIFFERENCE),
    "spectral_controls": ("target", "representation", "control", "status", "fold_mean", "reference", *DIFFERENCE),
    "spectral_matched": ("target", "number", "score", *DIFFERENCE),
    "spectral_reliability": ("target", "representation", "over", "rho"),
    "parcellation_sweep": ("atlas", "people", "n_parcels", "n_people", "target", "representation", "r", "auc"),
    "parcellation_gains": ("atlas", "people", "target", "representation", "reference", "score", *DIFFERENCE),
    "parcellation_comparisons": ("target", "representation", "atlas", "reference", *DIFFERENCE),
    "encoders": ("representation", "target", "score", "pooled", "fold_mean", "fold_sd"),
    "encoder_folds": ("target", "representation", "r", "auc"),
    "encoder_comparisons": ("target", "representation", "reference", "score", *DIFFERENCE),
    "spectrum_histogram": ("alpha", "low", "high", "share"),
    "spectrum_ranks": ("alpha", "rank", "mean", "path"),
    "spectrum_path": ("participant_id", "alpha", "from_identity", "to_fc", "heat_trace", "participation_ratio"),
    "spectrum_sphere": ("alpha", "rank", "x", "y", "length", "radius"),
    "spectrum_matrices": ("alpha", "parcel", "other", "value"),
    "left_out": ("analysis", "reason"),
    "qcfc": ("representation", "r"),
    "qcfc_summary": ("representation", "n_people", "median_abs_r", "median_abs_r_chance", "share_significant"),
}
"""Columns without which a table is broken."""
