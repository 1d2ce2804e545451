"""How often planted effects of three sizes are found, beside an earlier checkout of this repository.

    python -m benchmarks.power --cohorts 150 [--peer CHECKOUT]

Sixty people, 91 edges. A number or two equal classes act on seven edges without a common parcel, and on an embedding;
in half of the cohorts age acts on all of them and on the number, and is a covariate. Another embedding has something
of the person in both scans. The checkout is run on the same cohorts, with its own tests. The table of
``docs/nulls.md`` is from here.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.analyses import ANALYSES
from fcpower_bids.records import Cohort
from tests.analyses.cohorts import choose, cohort_of

PEOPLE, PARCELS, PERMUTATIONS = 60, 14, 199
FIRST, SECOND = np.triu_indices(PARCELS, 1)
CHANGED = SECOND == FIRST + PARCELS // 2
SIZES = (1.0, 1.5, 2.0)
EDGES, EMBEDDING, PERSON = 0.3, 0.045, 0.25
"""Effects of size 1, in standard deviations: of a scan's edges, of its embedding, and of what a person keeps."""

Found = dict[str, list[float]]


def draw_cohort(size: float, target: str, with_age: bool, seed: int) -> Cohort:
    """Two scans of everyone, whose edges and first embedding go with the target; the second is for identification."""
    rng = np.random.default_rng(seed)
    age, number = rng.standard_normal((2, PEOPLE))
    patient = rng.permutation(np.arange(PEOPLE) % 2)
    cause = number if target == "number" else 2.0 * patient - 1
    edges, embedding, own = rng.standard_normal((3, PEOPLE, 2, len(FIRST)))
    edges += size * EDGES * cause[:, None, None] * CHANGED
    embedding += size * EMBEDDING * cause[:, None, None] * rng.standard_normal(len(FIRST))
    own += size * PERSON * rng.standard_normal((PEOPLE, 1, len(FIRST)))
    if with_age:
        number = number + age
        edges += age[:, None, None] * rng.standard_normal(len(FIRST))
        embedding += age[:, None, None] * rng.standard_normal(len(FIRST))
    names = [f"sub-{place:02d}" for place in range(PEOPLE)]
    rows = [(name, day, 300.0, 0.1 + 0.001 * place, 1) for place, name in enumerate(names) for day in "ab"]
    table = pd.DataFrame({"number": number, "patient": patient, "age": age}, index=names)
    edges, embedding, own = (each.reshape(2 * PEOPLE, -1) for each in (edges, embedding, own))
    return cohort_of(np.tanh(0.15 * edges), rows, table, embeddings={"of_target": embedding, "of_person": own})


def analyse(cohort: Cohort, target: str, with_age: bool, seed: int) -> Iterator[tuple[str, float]]:
    """Test, and whether it found what was planted: the edges of a share of these."""
    common = {"targets": (target,), "permutations": PERMUTATIONS, "preset": "recommended", "random_seed": seed}
    common |= {"covariates": ("age",)} if with_age else {}
    what = ("class" if target == "patient" else target) + (", given age" if with_age else "")
    only = {name: dataclasses.replace(cohort, embeddings={name: cohort.embeddings[name]}) for name in cohort.embeddings}
    folds = {"folds": 5, "inner_folds": 3, "repeats": 1, "representations": ("embedding",)}
    tables = ANALYSES["prediction"](only["of_target"], choose(**common, **folds))
    yield f"prediction of a {what}", float(tables["prediction_summary"].frame["p_permutation"].iloc[0] <= 0.05)
    tables = ANALYSES["edges"](cohort, choose(**common, representations=("fc", "fc_power")))
    frame = tables["edges"].frame
    frame = frame[frame["representation"] == "fc"]
    partner = dict(zip(cohort.parcels, cohort.parcels[PARCELS // 2 :], strict=False))
    planted = frame["parcel_a"].map(partner) == frame["parcel_b"]
    for column, name in (("p_family_wise", "edges, corrected"), ("q", "edges, q")):
        yield f"{name}: {what}", float((planted & (frame[column] <= 0.05)).sum() / CHANGED.sum())
    if "edges_modes" in tables:
        parts = tables["edges_modes"].frame
        yield f"parts of the spectrum: {what}", float((parts["p_family_wise"] <= 0.05).any())
    if target == "number" and not with_age:
        settings = choose(**common, representations=("embedding",))
        found = ANALYSES["fingerprinting"](only["of_person"], settings)["identification"].frame
        yield "identification", float(found["p_permutation"].iloc[0] <= 0.05)


def count(cohorts: int) -> Found:
    """Share that each test found, by size, mean over cohorts."""
    found: dict[str, list[list[float]]] = defaultdict(lambda: [[] for _ in SIZES])
    for target, with_age in (("number", False), ("number", True), ("patient", False)):
        for place, size in enumerate(SIZES):
            for seed in range(cohorts):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    for name, value in analyse(draw_cohort(size, target, with_age, seed), target, with_age, seed):
                        found[name][place].append(value)
        print(target, with_age, file=sys.stderr, flush=True)
    return {name: [float(np.mean(each)) for each in by_size] for name, by_size in found.items()}


def count_in(checkout: Path, cohorts: int) -> Found:
    """The same by the package of another checkout."""
    command = [sys.executable, str(Path(__file__).resolve()), "--cohorts", str(cohorts), "--as-json"]
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=environment, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohorts", type=int, default=150)
    parser.add_argument("--peer", type=Path, help="a checkout whose tests are compared")
    parser.add_argument("--as-json", action="store_true", help="print the shares as JSON")
    options = parser.parse_args()
    found = count(options.cohorts)
    if options.as_json:
        print(json.dumps(found))
        return
    before = count_in(options.peer.resolve(), options.cohorts) if options.peer else {}
    print("| | " + " | ".join(f"size {size:g}" for size in SIZES) + " |\n" + "|---" * (len(SIZES) + 1) + "|")
    for name, shares in found.items():
        old = [f" ({each:.2f})" for each in before[name]] if name in before else [""] * len(SIZES)
        print(f"| {name} | " + " | ".join(f"{each:.2f}{own}" for each, own in zip(shares, old, strict=True)) + " |")


if __name__ == "__main__":
    main()
