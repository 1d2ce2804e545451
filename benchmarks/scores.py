"""Why a score of prediction has no interval: how often two that are common leave out what the models reach.

    python -m benchmarks.scores [--cohorts 60]

People of one population with 60 features of uneven variance, of which the target is a noisy sum; ridge regression with
its penalty chosen inside, four repeats of five folds. The truth of a cell is the mean score, in 5,000 further people,
of models of as many people. Intervals: of all predictions together over people (Fisher z; for the AUC the logit with
DeLong's variance), and of the mean over folds (corrected resampled t).
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy import stats
from scipy.special import expit, logit
from sklearn.linear_model import RidgeCV

from fcpower_bids.core.regression.scores import score_predictions

FEATURES, NEW, REPEATS, FOLDS = 60, 5000, 4, 5
SIZES, EFFECTS = (40, 100, 300), (0.0, 0.3, 0.8)
PENALTIES = np.logspace(-1, 3, 9)


def draw(n: int, effect: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, 60) and target (n,)."""
    spread = (1 + np.arange(FEATURES)) ** -0.5
    features = rng.standard_normal((n, FEATURES)) * spread
    signal = features.sum(axis=1) / np.linalg.norm(spread)
    return features, np.sqrt(effect) * signal + np.sqrt(1 - effect) * rng.standard_normal(n)


def over_people(score: str, target: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """Limits of the mean over repeats, predicted (repeats, n), by the mean influence of each person."""
    value = float(np.mean([score_predictions(score, target, one) for one in predicted]))
    influences = []
    for one in predicted:
        if score == "auc":
            won = (one[target == 1][:, None] > one[target == 0]).astype(float)
            influence = np.empty(len(target))
            influence[target == 1] = (won.mean(1) - value) * len(target) / len(won)
            influence[target == 0] = (won.mean(0) - value) * len(target) / won.shape[1]
        else:
            x, y = stats.zscore(target), stats.zscore(one)
            influence = x * y - np.mean(x * y) * (x**2 + y**2) / 2
        influences.append(influence)
    error = np.std(np.mean(influences, axis=0)) / np.sqrt(len(target))
    onto, back, slope = (logit, expit, value * (1 - value)) if score == "auc" else (np.arctanh, np.tanh, 1 - value**2)
    reach = stats.t.ppf(0.975, len(target) - 1) * error / slope
    return float(back(onto(value) - reach)), float(back(onto(value) + reach))


def over_folds(scores: np.ndarray) -> tuple[float, float]:
    """Limits of the mean of the scores of all folds (Nadeau and Bengio 2003)."""
    known = scores[np.isfinite(scores)]
    error = known.std(ddof=1) * np.sqrt(1 / len(known) + 1 / (FOLDS - 1))
    reach = stats.t.ppf(0.975, len(known) - 1) * error
    return float(known.mean() - reach), float(known.mean() + reach)


def one_cohort(n: int, effect: float, score: str, seed: int) -> tuple[float, tuple[float, float], tuple[float, float]]:
    """Score of models of everyone in new people, and both intervals."""
    rng = np.random.default_rng(seed)
    (features, target), (further, theirs) = draw(n, effect, rng), draw(NEW, effect, rng)
    if score == "auc":
        target, theirs = (target > 0).astype(float), (theirs > 0).astype(float)
    truth = float(score_predictions(score, theirs, RidgeCV(PENALTIES).fit(features, target).predict(further)))
    predicted, scores = np.empty((REPEATS, n)), np.empty((REPEATS, FOLDS))
    for repeat in range(REPEATS):
        folds = rng.permutation(n) % FOLDS
        for fold in range(FOLDS):
            test = folds == fold
            predicted[repeat, test] = RidgeCV(PENALTIES).fit(features[~test], target[~test]).predict(features[test])
            scores[repeat, fold] = score_predictions(score, target[test], predicted[repeat, test])
    return truth, over_people(score, target, predicted), over_folds(scores.ravel())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohorts", type=int, default=60)
    options = parser.parse_args()
    print("| score | people | true score | over people | over folds |")
    for score in ("pearson", "auc"):
        for n in SIZES:
            for effect in EFFECTS:
                found = [one_cohort(n, effect, score, seed) for seed in range(options.cohorts)]
                truth = float(np.mean([one for one, *_ in found]))
                wrong = [np.mean([not each[k][0] <= truth <= each[k][1] for each in found]) for k in (1, 2)]
                print(f"| {score} | {n} | {truth:.2f} | {wrong[0]:.2f} | {wrong[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
