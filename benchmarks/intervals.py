"""How often intervals from held-out sites hold at a further site, by the number of sites and how they are shifted.

    python -m benchmarks.intervals [--draws 1000]

prints the figures of ``docs/models.md``. Residuals are drawn, nothing is fitted: sites of 5 to 60 people, whose means
have so many times the standard deviation of people within a site. The second table has eight sites and predictions
that correlate by r with known values: how often intervals hold in thirds of the predicted and of the known values.
"""

from __future__ import annotations

import argparse
from itertools import product

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.slices.clinic.equations import Radii, by_third, group_radius, radii_by_value, site_radius

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


KNOWN = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "skewed": lambda rng, n: rng.exponential(size=n) - 1,
    "noisier when high": lambda rng, n: rng.standard_normal(n),
}


def draw_predicted(rng: np.random.Generator, n_sites: int, r: float, law: str) -> tuple[NDArray, NDArray, NDArray]:
    """Predicted and known values that correlate by r within sites, and sites, shifted by half the error of a person."""
    sites = np.repeat(np.arange(n_sites), rng.integers(5, 60, n_sites))
    known = KNOWN[law](rng, len(sites))
    error = rng.standard_normal(len(sites)) * (np.exp(0.4 * known) / 1.17 if law == "noisier when high" else 1)
    shift = 0.5 * (1 - r**2) ** 0.5 * rng.standard_normal(n_sites)[sites]
    return r**2 * known + r * (1 - r**2) ** 0.5 * error + shift, known, sites


def measure_thirds(r: float, law: str, draws: int) -> dict[str, NDArray]:
    """Shares inside at further sites, by way: of all, in thirds of the predicted and in thirds of the known values."""
    new, truth, _ = draw_predicted(np.random.default_rng(9), 4000, r, law)
    rng, found = np.random.default_rng(1), {"one width": [], "by third": []}
    for _ in range(draws):
        predicted, known, sites = draw_predicted(rng, 8, r, law)
        one = Radii((), (site_radius(predicted - known, sites),))
        ways = {"one width": one, "by third": radii_by_value(predicted - known, sites, predicted, radius=site_radius)}
        for name, way in ways.items():
            inside = np.abs(new - truth) <= way.at(new)
            found[name].append([inside.mean(), *by_third(inside, new), *by_third(inside, truth)])
    return {name: np.mean(rows, axis=0) for name, rows in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000, help="cohorts of each kind")
    parser.add_argument("--thirds", action="store_true", help="the second table alone")
    options = parser.parse_args()
    draws = options.draws
    if not options.thirds:
        print_sites(draws)
    print_thirds(draws)


def print_sites(draws: int) -> None:
    """Print the first table."""
    print("| people and sites | shift | interval |" + "".join(f" {n} |" for n in SITES))
    for law, shift in product(LAWS, SHIFTS):
        for name, cells in measure(law, shift, draws).items():
            told = " | ".join(f"{100 * held:.0f} ({width:.2f})" for held, width in cells)
            print(f"| {law} | {shift:g} | {name} | {told} |", flush=True)


def print_thirds(draws: int) -> None:
    """Print the second table."""
    print("| known values | r | width | all | thirds of the predicted value | thirds of the known value |")
    for law, r in product(KNOWN, (0.4, 0.6, 0.8)):
        for name, shares in measure_thirds(r, law, draws).items():
            each = [f"{100 * share:.0f}" for share in shares]
            print(
                f"| {law} | {r:g} | {name} | {each[0]} | {', '.join(each[1:4])} | {', '.join(each[4:])} |", flush=True
            )


if __name__ == "__main__":
    main()
