"""Inference of F-BERT on one CPU thread against ``torch.nn.TransformerEncoder`` as it comes.

Run: python benchmarks/encoder.py [--parcels 450] [--length 4800]

Each case runs in a fresh process, so that the memory is its own; times are CPU seconds of one thread.
Goals: at 4800 timepoints 4x (1M) and 2x (8M) faster than the torch module in evaluation mode with its defaults, with
less than 150 MB over the imports.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import torch
from torch import nn

from fcpower_bids.encoders.fbert import SIZES, FBert, FBertConfig, forward_flops


class TorchReference(nn.Module):
    """The same model from torch's own parts, with the same weights."""

    def __init__(self, model: FBert) -> None:
        super().__init__()
        c = model.config
        layer = nn.TransformerEncoderLayer(
            c.d, c.heads, c.ff, c.dropout, c.activation, c.norm_eps, batch_first=True, norm_first=c.norm_first
        )
        self.fbert, self.encoder = model, nn.TransformerEncoder(layer, c.layers)
        self.encoder.load_state_dict(model.encoder.state_dict())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Embed (B, T, P) as (B, d)."""
        return self.encoder(self.fbert.tokens(x))[:, 0]


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(size: str, kind: str, length: int, parcels: int) -> dict[str, float]:
    """Median CPU seconds of a forward pass, and the peak memory over what was there before the first one."""
    torch.set_num_threads(1)
    model = FBert(FBertConfig(parcels, **SIZES[size])).eval()
    network = model if kind == "fbert" else TorchReference(model).eval()
    x = torch.randn(1, length, parcels, generator=torch.Generator().manual_seed(0))
    before, times = peak_megabytes(), []
    with torch.inference_mode():
        while len(times) < 3 or (sum(times) < 2 and len(times) < 50):
            start = time.process_time()
            network(x)
            times.append(time.process_time() - start)
    return {
        "seconds": sorted(times)[len(times) // 2],
        "extra_MB": peak_megabytes() - before,
        "flops": float(forward_flops(model.config, length)),
    }


def gemm_rate() -> float:
    """Floating-point operations per second of a 1024 x 1024 product in float32, one thread."""
    torch.set_num_threads(1)
    a, best = torch.randn(1024, 1024), 0.0
    for _ in range(30):
        start = time.process_time()
        a @ a
        best = max(best, 2 * 1024**3 / (time.process_time() - start))
    return best


def in_fresh_process(*arguments: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parcels", type=int, default=450)
    parser.add_argument("--length", type=int, default=4800)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        size, kind, length = options.one
        print(json.dumps(measure(size, kind, int(length), options.parcels)))
        return
    rate = gemm_rate()
    print(f"one thread, {options.parcels} parcels; float32 product {rate / 1e9:.0f} GFLOP/s")
    for size in SIZES:
        for length in (options.length, 200):
            arguments = (str(length), "--parcels", str(options.parcels))
            ours = in_fresh_process(size, "fbert", *arguments)
            torch_ = in_fresh_process(size, "torch", *arguments)
            print(
                f"{size} T={length}: {1e3 * ours['seconds']:.1f} ms, +{ours['extra_MB']:.0f} MB, "
                f"{ours['flops'] / ours['seconds'] / rate:.0%} of the product rate; "
                f"torch {1e3 * torch_['seconds']:.1f} ms, +{torch_['extra_MB']:.0f} MB; "
                f"ratio {torch_['seconds'] / ours['seconds']:.1f}"
            )


if __name__ == "__main__":
    main()
