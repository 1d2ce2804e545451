"""How often intervals from held-out sites hold at a further site, by the number of sites and how they are shifted.

    python -m benchmarks.intervals [--draws 1000]

prints the table of ``docs/models.md``. Residuals are drawn, nothing is fitted: sites of 5 to 60 people, whose means
have so many times the standard deviation of people within a site.
"""

from __future__ import annotations

import argparse
from itertools import product

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.slices.clinic.equations import group_radius, site_radius

SITES = (2, 3, 5, 8, 12, 20, 40)
SHIFTS = (0.0, 0.5, 1.0, 2.0)
LAWS = ("normal", "heavy-tailed people", "heavy-tailed sites", "two kinds of sites", "skewed people", "uneven noise")
WAYS = {"site": site_radius, "conformal": group_radius}


def draw(rng: np.random.Generator, n_sites: int, shift: float, law: str) -> tuple[NDArray, NDArray]:
    """Residuals of all people of so many sites, and their sites."""
    sites = np.repeat(np.arange(n_sites), rng.integers(5, 60, n_sites))
    means = rng.standard_normal(n_sites)
    if law == "heavy-tailed sites":
        means = rng.standard_t(3, n_sites) / 3**0.5
    if law == "two kinds of sites":
        means = rng.choice([-1.0, 1.0], n_sites)
    people = rng.standard_normal(len(sites))
    if law == "heavy-tailed people":
        people = rng.standard_t(3, len(sites)) / 3**0.5
    if law == "skewed people":
        people = rng.exponential(size=len(sites)) - 1
    if law == "uneven noise":
        people *= np.exp(0.4 * rng.standard_normal(n_sites))[sites]
    return shift * means[sites] + people, sites


def measure(law: str, shift: float, draws: int) -> dict[str, list[tuple[float, float]]]:
    """Share of people of further sites inside, and median width over that of an oracle, by way and number of sites."""
    residuals, sites = draw(np.random.default_rng(9), 4000, shift, law)
    order = np.argsort(np.abs(residuals))
    size, mass = np.abs(residuals)[order], np.cumsum(1 / np.bincount(sites)[sites[order]]) / 4000
    oracle = size[np.searchsorted(mass, 0.9)]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    for n_sites in SITES:
        rng = np.random.default_rng((n_sites, 1))
        cohorts = [draw(rng, n_sites, shift, law) for _ in range(draws)]
        for name, way in WAYS.items():
            radii = np.array([way(*cohort).value for cohort in cohorts])
            inside = np.concatenate([[0.0], mass])[np.searchsorted(size, radii, side="right")]
            found[name].append((float(inside.mean()), float(np.median(radii) / oracle)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000, help="cohorts of each kind")
    draws = parser.parse_args().draws
    print("| people and sites | shift | interval |" + "".join(f" {n} |" for n in SITES))
    for law, shift in product(LAWS, SHIFTS):
        for name, cells in measure(law, shift, draws).items():
            told = " | ".join(f"{100 * held:.0f} ({width:.2f})" for held, width in cells)
            print(f"| {law} | {shift:g} | {name} | {told} |", flush=True)


if __name__ == "__main__":
    main()
