"""Time and size of the page of a participant with four runs at 450 parcels: ``python benchmarks/reports.py``."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fcpower_bids.reports.participant import write_participant_report
from tests.reports.outputs import write_outputs


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = write_outputs(Path(folder), n_runs=4, n_parcels=450, n_volumes=1200)
        started, cpu = time.perf_counter(), time.process_time()
        (page,), _ = write_participant_report(settings, "01")
        print(f"{time.perf_counter() - started:.1f} s, {time.process_time() - cpu:.1f} s CPU with imports")
        print(f"{page.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
