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

sys.path.insert(0, str(Path(__file__).parents[1]))

from fcpower_bids.reports.cohort.page import write_group_report
from fcpower_bids.reports.person.page import write_participant_report
from tests.reports.group_outputs import make_cohort, write_further, write_group_outputs
from tests.reports.outputs import write_outputs


def participant() -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = write_outputs(Path(folder), n_runs=4, n_parcels=450, n_volumes=1200)
        started, cpu = time.perf_counter(), time.process_time()
        (page,) = write_participant_report(settings, "01").pages
        print(f"{time.perf_counter() - started:.1f} s, {time.process_time() - cpu:.1f} s CPU with imports")
        print(f"{page.stat().st_size / 1e6:.2f} MB")


def group() -> None:
    cohort = replace(make_cohort(n_people=1000, n_parcels=40), series=())
    choices = {"repeats": 2, "folds": 10, "inner_folds": 5, "permutations": 20}
    with tempfile.TemporaryDirectory() as folder:
        settings = write_group_outputs(Path(folder), cohort, **choices)
        write_further(replace(settings, repeats=2), replace(make_cohort(n_people=200, n_parcels=40), series=()))
        started, cpu = time.perf_counter(), time.process_time()
        page = write_group_report(settings)
        print(f"group of 1,000: {time.perf_counter() - started:.1f} s, {time.process_time() - cpu:.1f} s CPU")
        print(f"{page.stat().st_size / 1e6:.2f} MB")


PAGES = {"participant": participant, "group": group}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", nargs="+", default=list(PAGES), choices=list(PAGES), help="which [both]")
    for page in parser.parse_args().pages:
        PAGES[page]()


if __name__ == "__main__":
    main()
