"""Tests, in which the last digits depend on no machine: one BLAS thread, and no instructions beyond AVX2.

A product in another order of sums decides a tie of penalties otherwise, and moves what is computed in single precision.
"""

import os
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

cpu = Path("/proc/cpuinfo")
instructions = cpu.read_text(encoding="utf-8") if cpu.exists() else ""
if " avx2 " in instructions:
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")
if " avx512f " in instructions:
    os.environ.setdefault("NPY_DISABLE_CPU_FEATURES", "X86_V4 AVX512_ICL AVX512_SPR")
