"""Time and size of the pages: a participant with four runs at 450 parcels, a cohort of 1,000 people, every analysis.

    python benchmarks/reports.py --pages participant group

The limits are 10 s and 5 MB, 60 s and 10 MB. The tables of the analyses that list no people are made from 200 of them,
with two repeats: the page does not feel how many there were, the analyses do.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from fcpower_bids.analyses import ANALYSES
from fcpower_bids.outputs.group import NAME
from fcpower_bids.outputs.tables import write_json
from fcpower_bids.reports.cohort.page import write_group_report
from fcpower_bids.reports.person.page import write_participant_report
from fcpower_bids.store import write_text
from tests.reports.group_outputs import make_cohort, write_further, write_group_outputs
from tests.reports.outputs import write_outputs


def participant(folder: Path) -> None:
    settings = write_outputs(folder, n_runs=4, n_parcels=450, n_volumes=1200)
    started, cpu = time.perf_counter(), time.process_time()
    (page,) = write_participant_report(settings, "01").pages
    print(f"{time.perf_counter() - started:.1f} s, {time.process_time() - cpu:.1f} s CPU with imports")
    print(f"{page.stat().st_size / 1e6:.2f} MB")


def draw_places(n_parcels: int) -> np.ndarray:
    """Return places of parcels on a brain of about the right size, so that the page has its brains."""
    directions = np.random.default_rng(0).standard_normal((n_parcels, 3))
    return directions / np.linalg.norm(directions, axis=1)[:, None] * (60, 80, 55) + (0, -18, 15)


def group(folder: Path) -> None:
    cohort = replace(make_cohort(n_people=1000, n_parcels=40), series=(), centroids=draw_places(40))
    choices = {"repeats": 2, "folds": 10, "inner_folds": 5, "permutations": 20}
    settings = write_group_outputs(folder, cohort, **choices)
    write_further(replace(settings, repeats=2), replace(make_cohort(n_people=200, n_parcels=40), series=()))
    write_text(settings.results_record, settings.as_toml())
    done = (name for name in ANALYSES if name not in ("edges", "harmonisation"))
    write_json(settings.results / NAME, {name: {} for name in done})
    started, cpu = time.perf_counter(), time.process_time()
    page = write_group_report(settings)
    print(f"group of 1,000: {time.perf_counter() - started:.1f} s, {time.process_time() - cpu:.1f} s CPU")
    print(", ".join(f"{one.name} {one.stat().st_size / 1e6:.2f} MB" for one in (page, settings.brains_page)))


PAGES = {"participant": participant, "group": group}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder that is kept, to look at the pages [a temporary one]")
    parser.add_argument("--pages", nargs="+", default=list(PAGES), choices=list(PAGES), help="which [both]")
    asked = parser.parse_args()
    for page in asked.pages:
        with tempfile.TemporaryDirectory() as folder:
            PAGES[page](asked.keep / page if asked.keep else Path(folder))


if __name__ == "__main__":
    main()
