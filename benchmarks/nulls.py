"""How often every p, q and interval of the group level sees something where nothing is, in seven kinds of cohorts.

    python -m benchmarks.nulls --cohorts 200 [--kinds plain families ...] [--analyses prediction ...]

Sixty people, 91 edges; FC and two embeddings are noise with the same site, family and age effects. It prints the table
of ``docs/measurements.md``: a row per column and a column per kind, with the share of cohorts with p of at most .05 (of
tests for each edge: the share of these), with any q below .05, or whose interval leaves out the true value. Rates above
the 97.5th percentile of a true .05 are bold.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import binom

from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.records import Cohort, Table
from tests.analyses.cohorts import choose, cohort_of

PEOPLE, PARCELS, PERMUTATIONS = 60, 14, 99
EDGES = PARCELS * (PARCELS - 1) // 2
KINDS = {
    "plain": {},
    "families": {"family_column": "family"},
    "site sizes": {"site_column": "site"},
    "site spreads": {"site_column": "site"},
    "classes": {},
    "linear": {"covariates": ("age",)},
    "nonlinear": {"covariates": ("age",)},
}
"""Kinds of cohorts, and what a user declares of them."""
EXCHANGEABLE = ("plain", "site sizes", "site spreads")
"""Kinds in which nothing but the person could make two scans of a person alike."""

OF_ALL_TARGETS = ("p_max_targets", "p_adds")
"""P that are corrected for all rows of their table."""
OF_PAIRS = ("ci_low", "p_two_sided", "p_greater", "p_less", "p_holm")
MEASURED: dict[str, tuple[str, ...]] = {
    "prediction_summary": ("p_permutation", "p_max", "p_max_targets"),
    "prediction_baselines": ("p_adds",),
    "comparisons": OF_PAIRS,
    "identification": ("p_permutation",),
    "identification_comparisons": ("ci_low", "p_people", "p_mcnemar", "p_holm"),
    "qcfc": ("p", "q"),
    "qcfc_summary": ("p_all",),
    "edges": ("p", "p_permutation", "p_family_wise", "q"),
    "edges_components": ("p_extent",),
    "edges_summary": ("p_family_wise", "p_max", "p_component"),
}
"""Columns whose rates are counted here; a lower limit stands for its interval."""
SAME: dict[str, str] = {
    **dict.fromkeys(("transform_screen", "spectral_controls", "spectral_matched", "learning_gains"), "comparisons"),
    **dict.fromkeys(("parcellation_gains", "parcellation_comparisons", "encoder_comparisons"), "comparisons"),
    "identification_unseen": "identification",
    "identification_gains": "identification_comparisons",
}
"""Tables whose tests are those of another table, by the same functions."""
ELSEWHERE: dict[tuple[str, str], str] = {
    ("identification_gains", "p_greater"): "the bootstrap of identification_comparisons",
    ("identification", "ci_low"): "Wilson's interval",
    ("spectrum_histogram", "low"): "edges of bins, no interval",
    ("alignment", "ahead_low"): "python -m benchmarks.pretraining",
    ("predicted/target-TARGET-REPRESENTATION", "low"): "tests/clinic/test_clinic.py",
}
"""Columns that are not counted here, and where they are judged."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """People of a cohort, all arrays of shape (n,)."""

    age: np.ndarray
    target: np.ndarray
    motion: np.ndarray
    patient: np.ndarray
    site: np.ndarray
    family: np.ndarray
    spread: np.ndarray


def draw_people(kind: str, rng: np.random.Generator) -> Drawn:
    """Targets and motion that depend on site, family and age alone."""
    n, age, site = PEOPLE, rng.standard_normal(PEOPLE), np.zeros(PEOPLE, dtype=int)
    family, spread = np.arange(n) // 2, np.ones(n)
    target, motion = rng.standard_normal((2, n))
    patient = rng.permutation(np.arange(n) % 2) == 1
    if kind == "families":
        target, motion = (each + 1.5 * rng.standard_normal(n // 2)[family] for each in (target, motion))
    elif kind == "site sizes":
        site = np.repeat(np.arange(4), [30, 14, 9, 7])
        target, motion = target + 0.7 * site, motion + 0.7 * site
    elif kind == "site spreads":
        site = np.repeat(np.arange(4), 15)
        spread = np.array([1.0, 1.5, 2.0, 1.0])[site]
        target, motion = spread**1.5 * target, spread**1.5 * motion
    elif kind == "classes":
        patient = np.arange(n) < 12
        spread = np.where(patient, 1.5, 1.0)
    elif kind == "linear":
        target, motion = target + age, motion + age
    elif kind == "nonlinear":
        patient = rng.random(n) < expit(2.5 * age)
    return Drawn(age, target, motion, patient, site, family, spread)


def draw_features(kind: str, people: Drawn, size: float, rng: np.random.Generator) -> np.ndarray:
    """Two scans of everyone, (2 n, E); person by person."""
    made = size * people.spread[:, None, None] * rng.standard_normal((PEOPLE, 2, EDGES))
    if kind == "families":
        made += size * rng.standard_normal((PEOPLE // 2, 1, EDGES))[people.family]
    if kind == "site sizes":
        made += size * rng.standard_normal((4, 1, EDGES))[people.site]
    if kind in ("linear", "nonlinear"):
        made += size * people.age[:, None, None] * rng.standard_normal(EDGES)
    return made.reshape(2 * PEOPLE, EDGES)


def draw_cohort(kind: str, seed: int) -> Cohort:
    """A cohort without any relation of target and connectome but by sites, families and age."""
    rng = np.random.default_rng((seed, list(KINDS).index(kind)))
    people = draw_people(kind, rng)
    names = [f"sub-{number:02d}" for number in range(PEOPLE)]
    columns = {"number": people.target, "patient": people.patient.astype(int), "age": people.age}
    columns |= {"family": [f"f{each}" for each in people.family]}
    if kind.startswith("site"):
        columns["site"] = [f"s{each}" for each in people.site]
    fd = 0.3 + 0.03 * people.motion
    rows = [(name, day, 300.0, fd[place], 1) for place, name in enumerate(names) for day in "ab"]
    edges, *embeddings = (draw_features(kind, people, size, rng) for size in (0.15, 1.0, 1.0))
    table = pd.DataFrame(columns, index=names)
    return cohort_of(np.tanh(edges), rows, table, embeddings=dict(zip("ab", embeddings, strict=True)))


FOLDS = {"folds": 5, "inner_folds": 3, "repeats": 2}
CHOSEN = {
    "prediction": {"representations": ("embedding",), **FOLDS},
    "edges": {"representations": ("fc", "fc_power")},
    "qc_fc": {"representations": ("fc",)},
    "fingerprinting": {"representations": ("embedding",)},
}
"""Analyses, and what is chosen for them."""


def analyse(kind: str, seed: int, analyses: Sequence[str] = tuple(CHOSEN)) -> dict[str, Table]:
    """All tables whose columns are counted."""
    cohort = draw_cohort(kind, seed)
    targets = ("patient",) if kind in ("classes", "nonlinear") else ("number", "patient")
    common = {"permutations": PERMUTATIONS, "preset": "recommended", "random_seed": seed, **KINDS[kind]}
    tables: dict[str, Table] = {}
    for name in analyses:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tables |= ANALYSES[name](cohort, choose(targets=targets, **common, **CHOSEN[name]))
    return tables


def rejections(tables: dict[str, Table], kind: str) -> Iterator[tuple[str, str, float]]:
    """Table, column, and share of its rows that see something; for q and corrected p whether any does."""
    for name, columns in MEASURED.items():
        if name not in tables or (name == "identification" and kind not in EXCHANGEABLE):
            continue
        frame = tables[name].frame
        for column in columns:
            values = pd.to_numeric(frame[column], errors="coerce")
            if column.startswith("p_component"):
                values = values.fillna(1.0)  # no network is none that is found
            if column == "ci_low":
                known = values.notna()
                wrong = ((values > 0) | (frame["ci_high"] < 0))[known]
            else:
                wrong = values.dropna() <= 0.05
            if not len(wrong) and name == "edges_components":
                yield name, column, 0.0
            if not len(wrong):
                continue
            corrected = column == "q" or column.startswith(("p_family", "p_extent"))
            by_target = (
                wrong.groupby(frame.loc[wrong.index, "target"]).any() if corrected and "target" in frame else wrong
            )
            one = column in OF_ALL_TARGETS or (corrected and "target" not in frame)
            yield name, column, float(by_target.any() if one else by_target.mean())


def count_rates(kinds: list[str], cohorts: int, analyses: list[str]) -> pd.DataFrame:
    """Rates by table and column, one column per kind."""
    found: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for kind in kinds:
        for seed in range(cohorts):
            for name, column, share in rejections(analyse(kind, seed, analyses), kind):
                found[name, column][kind].append(share)
    rates = {key: {kind: float(np.mean(each)) for kind, each in by.items()} for key, by in found.items()}
    return pd.DataFrame(rates).T.reindex(columns=kinds)


def as_markdown(rates: pd.DataFrame, cohorts: int) -> str:
    """A table of Markdown; rates that so many cohorts of a true .05 seldom have are bold."""
    most = binom.ppf(0.975, cohorts, 0.05) / cohorts
    lines = [f"| | | {' | '.join(rates)} |", "|---" * (2 + len(rates.columns)) + "|"]
    for (name, column), row in rates.iterrows():
        cells = ["" if np.isnan(each) else f"{each:.2f}"[each < 1 :] for each in row]
        cells = [f"**{cell}**" if round(each, 2) > most else cell for cell, each in zip(cells, row, strict=True)]
        lines.append(f"| `{name}` | `{column}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohorts", type=int, default=200)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--analyses", nargs="+", default=list(CHOSEN), choices=list(CHOSEN))
    options = parser.parse_args()
    rates = count_rates(options.kinds, options.cohorts, options.analyses)
    print(as_markdown(rates, options.cohorts))


if __name__ == "__main__":
    main()
