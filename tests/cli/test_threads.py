"""The threads of BLAS are those of the request: the last bits of every number depend on them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

THREADS = """
import sys
from fcpower_bids import app

def level(settings):
    import numpy, scipy.linalg
    from threadpoolctl import threadpool_info
    print({pool["num_threads"] for pool in threadpool_info()})
    return 0

app.level_of = lambda settings: level
sys.exit(app.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("level", "number"), [("participant", 1), ("group", 2)])
def test_blas_has_the_threads_that_are_asked_for_whatever_the_environment(level, number, tmp_path):
    named = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in named}
    words = [str(tmp_path), str(tmp_path / "out"), level, *(["--omp-nthreads", "2"] if number == 2 else [])]
    done = subprocess.run(
        [sys.executable, "-c", THREADS, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == str({min(number, os.cpu_count() or 1)}), done.stderr
