"""Columns of the identification tables, and what a reader has to know about all of them."""

from __future__ import annotations

from typing import Any

IDENTIFICATION_COLUMNS = {
    "representation": "What identifies",
    "first_session": "A session, or all",
    "second_session": "Another session, or all",
    "n_people": "People who have both sessions",
    "n_searches": "Searches: every such scan of one session looks in the other",
    "accuracy": "Share of the searches that find the own person, mean of both directions",
    "accuracy_first_to_second": "Scans of the first session that look in the second",
    "accuracy_second_to_first": "Scans of the second session that look in the first",
    "chance": "Expected accuracy of guessing",
    "sd": "Standard deviation of the accuracy over resampled people",
    "ci_low": "Lower 95 % limit over resampled people",
    "ci_high": "Upper 95 % limit over resampled people",
    "d_prime": "(i_self - i_others) in pooled standard deviations",
    "i_self": "Mean similarity (Pearson) to the own scan",
    "i_others": "Mean similarity to the scans of others",
    "i_diff": "100 (i_self - i_others); see IdiffCaveat",
    "p_permutation": "p of the accuracy with people shuffled in every session",
    "n_permutations": "Shuffles",
}
SCAN_COLUMNS = {
    "representation": "What identifies",
    "participant_id": "Whose scan",
    "session": "Of which session",
    "searched": "In which session the most similar scan was looked for",
    "matched": "Person of the most similar scan",
    "similarity": "Similarity (Pearson) to that scan",
    "own_similarity": "Similarity to the own scan",
    "rank": "1 + number of other people who are more similar than the own scan",
    "credit": "1 for a hit, 1/k for a tie of k, 0 for a miss",
    "candidates": "People searched",
}
COMPARISON_COLUMNS = {
    "representation": "The one whose accuracy comes first in the difference",
    "reference": "The one whose accuracy is subtracted",
    "difference": "Difference in accuracy",
    "ci_low": "Lower 95 % limit over resampled people",
    "ci_high": "Upper 95 % limit over resampled people",
    "n_searches": "Searches that both made",
    "only_representation": "Searches that the representation alone got right",
    "only_reference": "Searches that the reference alone got right",
    "p_mcnemar": "Exact McNemar test on those, two-sided",
    "p_holm": "The same after Holm's correction over the pairs",
}
ALPHA_COLUMNS = {
    "alpha": "Exponent of FC^alpha; 1 is FC",
    "accuracy": "Share of the searches that find the own person",
    "i_self": "Mean similarity to the own scan",
    "i_others": "Mean similarity to the scans of others",
    "i_diff": "100 (i_self - i_others); see IdiffCaveat",
    "d_prime": "(i_self - i_others) in pooled standard deviations",
}
LENGTH_COLUMNS = {
    "representation": "What identifies",
    "minutes": "Cleaned minutes from the start of each scan that are used",
    "n_people": "People",
    "accuracy": "Share of the searches that find the own person",
    "d_prime": "(i_self - i_others) in pooled standard deviations",
    "i_diff": "100 (i_self - i_others); see IdiffCaveat",
}
SHARED_FACTS: dict[str, Any] = {
    "Rule": (
        "Every scan looks for the most similar scan (Pearson correlation of the features) of the other session, among "
        "the people who have both. With more than two sessions every ordered pair of sessions is searched, and every "
        "search counts the same."
    ),
    "Ties": (
        "k equally similar candidates earn 1/k if the own person is among them, so a constant similarity scores chance."
    ),
    "IdiffCaveat": (
        "Idiff has the unit of the similarity. It falls while accuracy rises with flattening, so it does not measure "
        "the gain; d' and the accuracy do."
    ),
    "Privacy": (
        "FC^alpha is a strong fingerprint: it can link the scans of a person across datasets. Share connectomes as you "
        "would share other identifying data."
    ),
}
