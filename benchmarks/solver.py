"""Nested cross-validation of kernel ridge on a device of PyTorch against numpy and scipy, wall-clock, in pairs.

    python -m benchmarks.solver --device cuda --n 2000 4000 10000 --folds 200

Kernel and targets are drawn; 5 inner folds, the paper's 7 penalties. Numpy and scipy have all threads of the machine;
they may do fewer folds (``--host-folds``), with which the device is then compared. The share is that of a plain product
in double precision on the same device. Predictions have to agree to 1e-10, or the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.group import nested_flops
from fcpower_bids.core.regression.dense import HOST, Dense, solving_with
from fcpower_bids.core.regression.folds import Fold, replicated_folds
from fcpower_bids.core.regression.kernels import correlation_kernel
from fcpower_bids.core.regression.nested import NestedResult, nested_cv
from fcpower_bids.core.regression.presets import PAPER
from fcpower_bids.core.regression.ridge import open_kernel
from fcpower_bids.executors.torch_dense import TorchDense

BOUND = 1e-10


def product_rate(device: torch.device, n: int = 8192) -> float:
    """Floating-point operations per second of a product in double precision, best of three after one."""
    matrix = torch.randn(n, n, dtype=torch.float64, device=device)
    seconds = []
    for _ in range(4):
        started = time.perf_counter()
        float((matrix @ matrix)[0, 0])  # which waits for the device
        seconds.append(time.perf_counter() - started)
    return 2 * n**3 / min(seconds[1:])


def timed(dense: Dense, work: Callable[[], object]) -> tuple[float, object]:
    """Seconds, and what the work returned."""
    started = time.perf_counter()
    with solving_with(dense):
        result = work()
    return time.perf_counter() - started, result


def difference(one: NestedResult, other: NestedResult) -> float:
    """Largest difference of a prediction; infinite where other penalties were chosen."""
    if not np.array_equal(one.chosen, other.chosen):
        return float("inf")
    return max(float(np.abs(a - b).max()) for a, b in zip(one.predicted, other.predicted, strict=True))


def compare(n: int, m: int, edges: int, options: argparse.Namespace, device: Dense, rate: float) -> bool:
    """Print the figures of one cohort; return whether its predictions agree."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((n, edges), dtype=np.float32)
    features[:, :300] *= np.linspace(8, 1, 300, dtype=np.float32)
    targets = features[:, :m] + 8 * rng.standard_normal((n, m))
    folds = replicated_folds(n, 10, 5, options.folds // 10)
    few = folds[: options.host_folds]

    on_device, kernel = timed(device, lambda: correlation_kernel(features))
    on_host, expected = timed(HOST, lambda: correlation_kernel(features))
    worst = np.abs(kernel - expected).max()
    print(f"n={n}, {edges} edges: kernel {on_device:.1f} s, by numpy {on_host:.1f} s; differ by {worst:.0e} at most")

    def cross_validate(some: tuple[Fold, ...]) -> NestedResult:
        return nested_cv(open_kernel(expected, PAPER.penalties), targets, some)

    seconds, _ = timed(device, lambda: cross_validate(folds))
    share = nested_flops(n, m, len(folds) * len(PAPER.penalties)) / rate / seconds
    print(f"  {len(folds)} outer folds, {m} target(s): {seconds:.1f} s, {share:.0%} of the product rate", flush=True)
    first, got = timed(device, lambda: cross_validate(few))
    second, reference = timed(HOST, lambda: cross_validate(few))
    worst = difference(got, reference)
    print(f"  {len(few)} outer folds: {first:.1f} s, by numpy and scipy {second:.1f} s; differ by {worst:.0e} at most")
    if torch.cuda.is_available():
        print(f"  peak memory of the device {torch.cuda.max_memory_allocated() / 1e9:.1f} GB", flush=True)
    return worst < BOUND


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="as PyTorch calls it")
    parser.add_argument("--n", type=int, nargs="+", default=[2000, 4000], help="people")
    parser.add_argument("--targets", type=int, default=1, help="targets")
    parser.add_argument("--edges", type=int, default=79800, help="features of a person")
    parser.add_argument("--folds", type=int, default=200, help="outer folds, ten to a repetition")
    parser.add_argument("--host-folds", type=int, default=20, help="of these, by numpy and scipy")
    options = parser.parse_args()
    device = TorchDense(options.device)
    rate = product_rate(device.device)
    print(f"{device.name}: products of 8,192 x 8,192 in double precision {rate / 1e12:.2f} TFLOP/s")
    agree = [compare(n, options.targets, options.edges, options, device, rate) for n in options.n]
    sys.exit(0 if all(agree) else 1)


if __name__ == "__main__":
    main()
