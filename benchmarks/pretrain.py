"""Steps per second and model FLOP utilisation of pretraining, on the accelerator if there is one.

Run: python benchmarks/pretrain.py [--accelerator auto] [--batch 1024] [--steps 20] [--precision bf16-mixed]

The corpus is random and resident on the device, so that only the step is timed. On an accelerator the loss of one
batch is also compared with that of the CPU (1e-5 in float32, 1e-3 in bfloat16), and the exit status is 1 if it differs.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import torch

from fcpower_bids.encoders.fbert import SIZES, FBert, FBertConfig, forward_flops
from fcpower_bids.pretraining.configuration import PretrainConfig
from fcpower_bids.pretraining.engine import BATCH, Gradient, draw_batch, measure_gemm_rate
from fcpower_bids.pretraining.losses import LOSSES
from fcpower_bids.pretraining.processes import make_fabric

WINDOW, PARCELS, LENGTH = 80, 450, 200


def corpus(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Series (n, T, P) in half precision and a correlation kernel (n, n)."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((n, 500))
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, LENGTH, PARCELS, generator=generator).half(), torch.from_numpy(np.corrcoef(z)).float()


def time_steps(size: str, options: argparse.Namespace, precision: str) -> None:
    fabric = make_fabric(PretrainConfig(accelerator=options.accelerator, precision=precision))
    config = FBertConfig(PARCELS, **SIZES[size])
    raw = FBert(config)
    model, optimizer = fabric.setup(raw, torch.optim.AdamW(raw.parameters(), lr=8.5e-4, weight_decay=1e-4))
    gradient = Gradient(fabric, model.train(), LOSSES["cka"], options.chunk)
    series, kernel = (t.to(fabric.device) for t in corpus(options.batch + options.batch // 4))
    places = np.full(len(series), LENGTH - WINDOW + 1)

    def step(number: int) -> float:
        rows, starts = draw_batch(places, options.batch, (0, BATCH, number))
        times = torch.from_numpy(starts[:, None] + np.arange(WINDOW)).to(fabric.device)
        index = torch.from_numpy(rows).to(fabric.device)
        x = series[index[:, None], times].float()
        optimizer.zero_grad(set_to_none=True)
        loss = gradient.accumulate(x, kernel[index][:, index], (0, number))
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        return float(loss) if number % 10 == 0 else 0.0

    step(0)  # allocations and the choice of kernels
    start = time.perf_counter()
    for number in range(1, options.steps + 1):
        step(number)
    step(10 * (options.steps // 10 + 1))  # reading the loss waits for the device
    rate = (options.steps + 1) / (time.perf_counter() - start)
    flops = (3 if options.chunk is None else 4) * forward_flops(config, WINDOW) * options.batch
    limit = measure_gemm_rate(fabric.device, precision)
    print(
        f"{size} {precision} on {fabric.device}: B={options.batch}, {rate:.2f} steps/s, "
        f"{rate * flops / 1e12:.2f} TFLOP/s, MFU {rate * flops / limit:.0%} of a measured {limit / 1e12:.2f} TFLOP/s"
    )


def loss_on(accelerator: str, precision: str) -> float:
    fabric = make_fabric(PretrainConfig(accelerator=accelerator, precision=precision))
    raw = FBert(FBertConfig(PARCELS, **SIZES["fbert-1m"], dropout=0.0))
    model, _ = fabric.setup(raw, torch.optim.SGD(raw.parameters()))
    series, kernel = (t.to(fabric.device) for t in corpus(64))
    x = series[:, :WINDOW].float()
    return float(Gradient(fabric, model, LOSSES["cka"]).accumulate(x, kernel, (0, 0)))


def devices_agree(accelerator: str) -> bool:
    exact, agree = loss_on("cpu", "32-true"), True
    for precision, tolerance in (("32-true", 1e-5), ("bf16-mixed", 1e-3)):
        difference = abs(loss_on(accelerator, precision) - exact)
        agree &= difference < tolerance
        print(f"loss on the accelerator in {precision} minus CPU in float32: {difference:.1e} (at most {tolerance:g})")
    return agree


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--precision", default=None)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--chunk", type=int, default=None)
    options = parser.parse_args()
    has_gpu = torch.cuda.is_available() and options.accelerator != "cpu"
    for size in SIZES:
        time_steps(size, options, options.precision or ("bf16-mixed" if has_gpu else "32-true"))
    if has_gpu:
        sys.exit(0 if devices_agree(options.accelerator) else 1)
    print("No accelerator: the agreement of devices was not checked.")


if __name__ == "__main__":
    main()
