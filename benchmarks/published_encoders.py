"""Cost of embedding one recording of ten minutes with each published encoder, at full size with random weights.

Usage: ``python benchmarks/published_encoders.py [--models brainlm-111m ...] [--threads 2] [--seconds 600]``

Weights of the published shapes are written to a temporary folder (2.5 GB for BrainLM-650M), one model at a time. A
process of its own then loads and embeds; its CPU seconds and peak memory are those that the kernel counted, imports
included. Random weights cost what real ones cost.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from fcpower_bids.encoders import PUBLISHED
from fcpower_bids.encoders.checkpoint_files import same_key
from fcpower_bids.encoders.statistics import CohortStatistics, write_statistics
from fcpower_bids.slices.published_encoders import brain_harmonix, brain_jepa, brain_semantoks, brainlm, brainmass
from fcpower_bids.slices.published_encoders.parcel_orders import BUCKNER, parcel_order

CHILD = """
import json, sys, time
import numpy as np, torch
from pathlib import Path
from fcpower_bids.encoders import load_encoder
name, weights, aux, series, names, tr, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
names = json.loads(Path(names).read_text())
start = time.process_time()
encoder = load_encoder(name, weights, parcel_names=names, aux=(Path(aux),), accept_licence=True)
loaded, wall = time.process_time(), time.perf_counter()
vector = encoder.embed([np.load(series)], names, float(tr))
print(json.dumps([loaded - start, time.process_time() - loaded, time.perf_counter() - wall, vector.shape[1]]))
"""


def random_tensors(
    model: torch.nn.Module, published: Callable[[str], tuple[str, ...]] = same_key
) -> dict[str, torch.Tensor]:
    """Random values for every tensor of a model without memory, under the published names."""
    tensors = {}
    for key, like in model.state_dict().items():
        names = published(key)
        shape = (like.shape[0] // len(names), *like.shape[1:]) if len(names) > 1 else tuple(like.shape)
        for name in names:
            random = 0.02 * torch.randn(shape) + (like.dim() < 2)
            tensors[name] = torch.tensor(True) if like.dtype == torch.bool else random
    return tensors


def write_brainlm(name: str, folder: Path) -> tuple[Path, list[str]]:
    with torch.device("meta"):
        model = brainlm.BrainLM(brainlm.SIZES[name])
    save_file(random_tensors(model, brainlm.published_keys), folder / "model.safetensors")
    coordinates = np.random.default_rng(0).integers(-40, 40, (424, 3)) * 2
    np.savetxt(folder / brainlm.COORDINATES, np.column_stack([np.arange(1, 425), coordinates]), fmt="%d")
    labels = [str(label) for label in range(1, 425)]
    write_statistics(folder / "cohort_statistics.tsv", CohortStatistics(np.zeros(424), np.ones(424), ""), labels)
    return folder, [f"parcel{label:03d}" for label in range(1, 425)]


def write_table(path: Path, rows: int, columns: int, labelled: bool = False) -> None:
    table = np.random.default_rng(0).standard_normal((rows, columns))
    if labelled:
        table = np.vstack([np.arange(columns), table])
        table = np.column_stack([np.arange(rows + 1), table])
    np.savetxt(path, table, delimiter=",")


def write_model(name: str, folder: Path) -> tuple[Path, list[str]]:
    """Write weights and auxiliary files of a model; returns the weights and the parcels of its recordings."""
    if name.startswith("brainlm"):
        return write_brainlm(name, folder)
    path = folder / "weights.pth"
    with torch.device("meta"):
        models = {
            "brain-jepa": brain_jepa.BrainJEPA(brain_jepa.BrainJEPASize(), torch.empty(0)),
            "brainmass": brainmass.BrainMass(brainmass.BrainMassSize()),
            "brain-harmonix-f": brain_harmonix.BrainHarmonix(
                brain_harmonix.HarmonixSize(), torch.empty(0), torch.empty(0)
            ),
            "brain-semantoks": brain_semantoks.BrainSemantoks(brain_semantoks.SemantoksSize()),
        }
    published = brain_semantoks.published_keys if name == "brain-semantoks" else same_key
    state = random_tensors(models[name], published)
    if name == "brain-jepa":
        write_table(folder / brain_jepa.GRADIENTS, 450, 30)
        torch.save({"target_encoder": state}, path)
        return path, list(parcel_order("Schaefer450x17").names)
    if name == "brainmass":
        torch.save({"online_network_state_dict": state}, path)
        return path, list(parcel_order("Schaefer100").names)
    if name == "brain-harmonix-f":
        write_table(folder / brain_harmonix.GRADIENTS, 400, 30)
        write_table(folder / brain_harmonix.EIGENMODES, 400, 200, labelled=True)
        torch.save({f"encoder_ema.{key}": value for key, value in state.items()}, path)
        return path, list(parcel_order("Schaefer400x17").names)
    torch.save({"model_state_dict": {f"teacher_encoder.{key}": value for key, value in state.items()}}, path)
    return path, [*parcel_order("Schaefer400").names, *parcel_order("TianS3").names, *BUCKNER]


def measure(name: str, seconds: float, repetition_time: float, threads: int) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        weights, names = write_model(name, folder)
        volumes = round(seconds / repetition_time)
        np.save(folder / "series.npy", np.random.default_rng(0).standard_normal((volumes, len(names))))
        (folder / "names.json").write_text(json.dumps(names))
        told = [name, weights, folder, folder / "series.npy", folder / "names.json", repetition_time, threads]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-c", CHILD, *map(str, told)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        output = child.stdout.read() if child.stdout else ""
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            raise SystemExit(f"{name} failed with status {status}")
    load, embed, wall, size = json.loads(output)
    total = usage.ru_utime + usage.ru_stime
    return f"| {name} | {size} | {load:.1f} | {embed:.1f} | {wall:.1f} | {total:.1f} | {usage.ru_maxrss / 2**20:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=PUBLISHED, choices=PUBLISHED)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--time", type=float, default=0.8, help="repetition time in seconds")
    chosen = parser.parse_args()
    print("| encoder | d | load CPU s | embed CPU s | embed wall s | whole process CPU s | peak GiB |")
    print("|---|---|---|---|---|---|---|")
    for name in chosen.models:
        print(measure(name, chosen.seconds, chosen.time, chosen.threads), flush=True)


if __name__ == "__main__":
    main()
