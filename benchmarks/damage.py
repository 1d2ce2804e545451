"""The catalogue of damage through the real command: tried, named, unchanged, silent, and how far FC is off.

Usage: ``make faults``, or ``python -m benchmarks.damage [--seed SEED] [--only WORD ...]``

The catalogue is ``tests/planting/damage.tsv``: a fault that was found by hand is one line more. The exit code is the
number of lines that did not end as the catalogue says.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.planting import damage_of_cohorts
from tests.planting.damage import NAMED, SILENT, UNKNOWABLE, Line, observe, plant, read_catalogue
from tests.running import run_app


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the recordings that are damaged")
    parser.add_argument("--only", nargs="+", default=[""], help="lines with one of these words in their name")
    given = parser.parse_args()
    lines, of_cohorts = (
        [line for line in read_catalogue(kind) if any(word in line.name for word in given.only)]
        for kind in (False, True)
    )
    seen: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        if lines:
            plant(Path(folder, "in"), lines, given.seed)
            run = run_app(Path(folder, "in"), Path(folder, "out"), "--atlas", "builtin", "--nprocs", "1", "--quiet")
            seen += [observe(run, line, number) for number, line in enumerate(lines)]
        if of_cohorts:
            damage_of_cohorts.plant(Path(folder, "cohort"), of_cohorts, given.seed)
            found = damage_of_cohorts.observe(Path(folder, "cohort"), of_cohorts)
            seen += [(became, off) for became, off, _ in found]
    return tell([*lines, *of_cohorts], seen, given.seed)


def tell(lines: Sequence[Line], seen: Sequence[tuple[str, float]], seed: int) -> int:
    """Print the table and the counts; return the number of lines that did not end as the catalogue says."""
    wrong = 0
    print("| input | fault | became | largest difference of FC | |\n|---|---|---|---|---|")
    for line, (became, off) in zip(lines, seen, strict=True):
        wanted = NAMED if line.is_named else line.outcome
        expected = became == wanted or wanted == UNKNOWABLE
        wrong += not expected
        why = "" if expected and line.is_named else line.words if expected else f"expected: {wanted}"
        print(f"| {line.input} | {line.name} | {became} | {'' if np.isnan(off) else f'{off:.3f}'} | {why} |")
    counts = Counter(became for became, _ in seen)
    known = sum(became == SILENT and line.outcome == UNKNOWABLE for line, (became, _) in zip(lines, seen, strict=True))
    print(
        f"\nseed {seed}: {len(lines)} tried, "
        + ", ".join(f"{number} {became}" for became, number in sorted(counts.items()))
        + f" ({known} of the silent cannot be known)"
    )
    return wrong


if __name__ == "__main__":
    sys.exit(main())
