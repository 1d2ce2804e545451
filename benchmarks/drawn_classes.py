"""Predicting a class given age: whether its rows move with those of age, or it is drawn given age, which stays.

    python -m benchmarks.drawn_classes --cohorts 200 [--people 60]

The log odds of the class go with age linearly (2.5 or 0.7 per SD), or in waves that squares cannot follow; features go
with age linearly, or with its square and a sigmoid too. Both ways use the residual class of each fold, kernel ridge,
five folds and 99 permutations. It prints the share of cohorts that each finds at .05, of noise and of planted effects;
see ``docs/nulls.md``.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from scipy.special import expit, logit

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.inference.permutation import permutation_p_value
from fcpower_bids.core.regression.folds import replicated_folds
from fcpower_bids.core.regression.nested import nested_cv
from fcpower_bids.core.regression.ridge import factorise_kernel
from fcpower_bids.core.regression.scores import score_predictions
from fcpower_bids.core.regression.targets import drawn_rows, permuted_rows, remove_probability

EDGES, PERMUTATIONS, PENALTIES = 91, 99, np.logspace(-2, 2, 9)
ODDS = {"steep": lambda age: 2.5 * age, "weak": lambda age: 0.7 * age, "waves": lambda age: 2.5 * np.sin(2 * age)}
SETTINGS = (
    *(("steep", "linear", 0.0), ("steep", "curved", 0.0), ("weak", "curved", 0.0), ("waves", "curved", 0.0)),
    *(("steep", "linear", 0.18), ("weak", "linear", 0.15)),
)
"""Log odds, features, and the effect of the class on each feature in standard deviations, times a normal number."""


def draw(odds: str, shape: str, effect: float, n: int, rng: np.random.Generator) -> tuple[FloatArray, ...]:
    """Class (n,), age (n, 1) and kernel (n, n) of a cohort."""
    age = rng.standard_normal(n)
    target = (rng.random(n) < expit(ODDS[odds](age))).astype(float)
    courses = [age] if shape == "linear" else [age, 2 * expit(2.5 * age) - 1, 0.7 * (age**2 - 1)]
    features = rng.standard_normal((n, EDGES)) + sum(np.outer(each, rng.standard_normal(EDGES)) for each in courses)
    features += effect * np.outer(target - 0.5, rng.standard_normal(EDGES))
    return target, age[:, None], np.corrcoef(features)


def find(moved: bool, target: FloatArray, age: FloatArray, kernel: FloatArray, seed: int) -> bool:
    """Whether the AUC of all predictions together has p of at most .05."""
    n, own = len(target), np.arange(len(target))
    chance = target - remove_probability(target[:, None], age, own)[:, 0]
    orders = permuted_rows(n, PERMUTATIONS, seed)
    if not moved:
        orders = drawn_rows(target, logit(np.clip(chance, 1e-6, 1 - 1e-6)), PERMUTATIONS, seed)
    each = [(target[order][:, None], age[order] if moved else age) for order in (own, *orders)]

    def build(train: np.ndarray) -> FloatArray:
        return np.hstack([remove_probability(*pair, train) for pair in each])

    folds = replicated_folds(n, 5, 3, 1, seed=seed)
    result = nested_cv(factorise_kernel(kernel, PENALTIES), build, folds, "pooled_pearson")
    both = np.concatenate(result.observed), np.concatenate(result.predicted)
    scores = (score_predictions("auc", *both) - 0.5) / score_predictions("auc_error", *both)
    return permutation_p_value(float(scores[0]), np.nan_to_num(scores[1:], nan=-np.inf)) <= 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohorts", type=int, default=200)
    parser.add_argument("--people", type=int, default=60)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| odds | features | effect | moved | drawn |\n|---|---|---|---|---|")
    for odds, shape, effect in SETTINGS:
        found = np.zeros(2)
        for seed in range(options.cohorts):
            cohort = draw(odds, shape, effect, options.people, np.random.default_rng((seed, options.people)))
            found += [find(moved, *cohort, seed) for moved in (True, False)]
        moved, drawn = found / options.cohorts
        print(f"| {odds} | {shape} | {effect:g} | {moved:.2f} | {drawn:.2f} |", flush=True)


if __name__ == "__main__":
    main()
