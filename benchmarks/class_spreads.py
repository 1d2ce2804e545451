"""Prediction of a class whose people are spread differently: permuted AUC, and AUC in standard errors.

    python -m benchmarks.class_spreads --cohorts 800

Sixty people, two representations of 91 features, kernel ridge, five folds, 99 permutations. It prints the share of
cohorts that each finds at .05, uncorrected (mean over representations) and corrected for both; see ``docs/nulls.md``.
"""

from __future__ import annotations

import argparse

import numpy as np

from fcpower_bids.core.inference.permutation import largest_standardised, permutation_p_value
from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.core.regression.ridge import factorise_kernel
from fcpower_bids.core.regression.scores import score_predictions

PEOPLE, EDGES, PERMUTATIONS, PENALTIES = 60, 91, 99, np.logspace(-3, 3, 13)
SETTINGS = (
    *((12, 1.5, 0.0), (12, 2.0, 0.0), (6, 1.5, 0.0), (6, 2.0, 0.0)),
    *((30, 1.0, 0.2), (12, 1.0, 0.25), (6, 1.0, 0.35)),
)
"""Patients, the ratio of their spread to that of controls, and the effect on each feature, times a normal number."""


def score(patients: int, ratio: float, effect: float, seed: int) -> np.ndarray:
    """AUC and AUC in standard errors, observed first: (2, 1 + permutations, representations)."""
    rng = np.random.default_rng(seed)
    patient = (np.arange(PEOPLE) < patients).astype(float)
    orders = np.array([np.arange(PEOPLE), *(rng.permutation(PEOPLE) for _ in range(PERMUTATIONS))])
    folds, found = replicated_folds(PEOPLE, 5, 3, 1, seed=seed), []
    size = effect * np.sqrt((patients * ratio**2 + PEOPLE - patients) / PEOPLE)
    for _ in range(2):
        features = rng.standard_normal((PEOPLE, EDGES)) * np.where(patient, ratio, 1.0)[:, None]
        features += size * np.outer(patient - patient.mean(), rng.standard_normal(EDGES))
        features = (features - features.mean(axis=0)) / features.std(axis=0)
        solver = factorise_kernel(features @ features.T / EDGES, PENALTIES)
        result = nested_cv(solver, patient[orders].T, folds, "pooled_pearson")
        both = np.concatenate(result.observed), np.concatenate(result.predicted)
        area, error = (score_predictions(name, *both) for name in ("auc", "auc_error"))
        found.append((area, (area - 0.5) / error))
    return np.moveaxis(np.array(found), 0, -1)


def find(scores: np.ndarray) -> tuple[float, float]:
    """Share of representations with p of at most .05, and whether one has when corrected; scores (1 + B, m)."""
    single = [permutation_p_value(each[0], each[1:]) <= 0.05 for each in scores.T.tolist()]
    return float(np.mean(single)), float((largest_standardised(scores)[0] <= 0.05).any())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohorts", type=int, default=800)
    options = parser.parse_args()
    print("| patients | ratio | effect | AUC | corrected | AUC in SE | corrected |\n|---|---|---|---|---|---|---|")
    for setting in SETTINGS:
        found = [[find(one) for one in score(*setting, seed)] for seed in range(options.cohorts)]
        shares = " | ".join(f"{each:.3f}" for each in np.mean(found, axis=0).ravel())
        print(f"| {' | '.join(map(str, setting))} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
