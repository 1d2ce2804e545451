"""How often the interval of identification accuracy holds the expected accuracy, in cohorts of one population.

    python -m benchmarks.identification [--cohorts 400]

Two sessions of everyone, 40 features: what the person has, what the family (two people each) or the site (four sites
of unequal size) has, and noise of each scan, of three sizes. The truth is the mean accuracy of 2,000 such cohorts. The
figures of ``docs/nulls.md`` are from here.
"""

from __future__ import annotations

import argparse

import numpy as np

from fcpower_bids.core.inference.identification import Identification, identify

FEATURES, TRUTH = 40, 2000
KINDS = ("plain", "families", "sites")
SIZES, NOISES = (10, 16, 60, 200), (0.6, 1.0, 2.0, 4.0)


def draw(kind: str, n: int, noise: float, rng: np.random.Generator) -> tuple[Identification, dict[str, str] | None]:
    """What the searches of a cohort find, and its families."""
    shared = np.arange(n) // 2 if kind == "families" else np.sort(np.arange(n) % 7 % 4)
    people = rng.standard_normal((n, FEATURES))
    if kind != "plain":
        people += (0.7 if kind == "families" else 1.0) * rng.standard_normal((n, FEATURES))[shared]
    scans = np.vstack([people + noise * rng.standard_normal((n, FEATURES)) for _ in "ab"])
    names, sessions = np.tile([f"s{each}" for each in range(n)], 2), np.repeat(["a", "b"], n)
    families = {f"s{each}": f"f{shared[each]}" for each in range(n)} if kind == "families" else None
    return identify(np.corrcoef(scans), names, sessions), families


def measure(kind: str, n: int, noise: float, cohorts: int) -> tuple[float, float, float]:
    """Expected accuracy, share of cohorts whose interval leaves it out, and the mean width of these intervals."""
    truth = np.mean([draw(kind, n, noise, np.random.default_rng((1, seed)))[0].accuracy for seed in range(TRUTH)])
    wrong, width = 0, 0.0
    for seed in range(cohorts):
        found, families = draw(kind, n, noise, np.random.default_rng((0, seed)))
        _, low, high = found.interval(families)
        wrong += not low <= truth <= high
        width += (high - low) / cohorts
    return float(truth), wrong / cohorts, width


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohorts", type=int, default=400)
    options = parser.parse_args()
    print("| people | " + " | ".join(KINDS) + " |")
    for n in SIZES:
        for noise in NOISES:
            cells = [measure(kind, n, noise, options.cohorts) for kind in KINDS]
            said = (f"{wrong:.3f} (accuracy {truth:.2f}, width {width:.2f})" for truth, wrong, width in cells)
            print(f"| {n} | {' | '.join(said)} |", flush=True)


if __name__ == "__main__":
    main()
