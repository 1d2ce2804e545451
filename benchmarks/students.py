"""The students of docs/encoder.md and what needs no training, on people whom none of them saw; scores in numpy alone.

    python -m benchmarks.students made --people 1000 --steps 800
    python -m benchmarks.students stages --shared ../shared

Students are trained by the command on windows of 80 volumes and read windows of other lengths by the file that goes
with each model. ``made``: people of six sites, each with a covariance of its own, and people of as many other sites.
``stages``: 37 people with two sessions in three parts, each judged by students of the others; 400 parcels.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_predict

from fcpower_bids.slices.pretraining.corpus.packing import pack_corpus

Map = Callable[[np.ndarray], np.ndarray]
LENGTHS = (40, 80, 160)
METHODS = {
    "closed-form": ("--method", "closed-form"),
    "steps": (),
    "pairs": ("--loss", "cka_pairs"),
    "residual": ("--method", "residual"),
}
SEEN_SITES, NEW_SITES = range(6), range(100, 106)
UNSEEN, VOLUMES, PARCELS = 300, 320, 100
PERSON, SITE, GAINS = 0.2, 0.1, 0.1
"""How far eigenvectors of a person and of a site are from the shared ones, and spread of the log eigenvalues."""


def edges(window: np.ndarray, exponent: float) -> np.ndarray:
    """Edges of FC^exponent of a window (T, P), centred and of unit norm."""
    _, size, rows = np.linalg.svd((window - window.mean(0)) / window.std(0), full_matrices=False)
    kept = size**2 > 1e-10 * size[0] ** 2
    matrix = (rows[kept].T * (size[kept] ** 2 / len(window)) ** exponent) @ rows[kept]
    flat = matrix[np.triu_indices(len(matrix), 1)]
    flat = flat - flat.mean()
    return flat / np.linalg.norm(flat)


def unit(vectors: np.ndarray) -> np.ndarray:
    centred = vectors - vectors.mean(axis=1, keepdims=True)
    return centred / np.linalg.norm(centred, axis=1, keepdims=True)


def alignment(K: np.ndarray, L: np.ndarray) -> float:
    """Debiased CKA of two kernels (Song et al. 2012)."""
    n = len(K)
    K, L = K * (1 - np.eye(n)), L * (1 - np.eye(n))

    def hsic(A: np.ndarray, B: np.ndarray) -> float:
        return (A * B).sum() + A.sum() * B.sum() / ((n - 1) * (n - 2)) - 2 * (A.sum(0) @ B.sum(0)) / (n - 2)

    return float(hsic(K, L) / np.sqrt(hsic(K, K) * hsic(L, L)))


def kernel_of(vectors: np.ndarray) -> np.ndarray:
    """Kernel of centred vectors (n, d): (n, n)."""
    centred = vectors - vectors.mean(axis=0)
    return centred @ centred.T


def found(one: np.ndarray, other: np.ndarray) -> float:
    """Share of people whose own row of the other is the most similar, in both directions."""
    similar, own = unit(one) @ unit(other).T, np.arange(len(one))
    return float(np.mean([(similar.argmax(axis) == own).mean() for axis in (0, 1)]))


def predicted(vectors: np.ndarray, y: np.ndarray) -> float:
    """Correlation of a phenotype with its prediction from other people, by ridge regression."""
    ridge = RidgeCV(np.logspace(-3, 3, 13) * np.var(vectors, axis=0).sum())
    return float(np.corrcoef(cross_val_predict(ridge, vectors, y, cv=KFold(10, shuffle=True, random_state=0)), y)[0, 1])


def slow_noise(rng: np.random.Generator) -> np.ndarray:
    """Independent columns that hold 0.01 to 0.08 Hz alone; a volume takes two seconds."""
    waves = np.fft.rfft(rng.standard_normal((VOLUMES, PARCELS)), axis=0)
    hertz = np.fft.rfftfreq(VOLUMES, 2.0)
    waves[(hertz < 0.01) | (hertz > 0.08)] = 0.0
    return np.fft.irfft(waves, VOLUMES, axis=0)


ORDER = np.arange(1, PARCELS + 1)
ROOT = np.sqrt(ORDER**-1.3 * np.exp(-3.0 * ORDER / PARCELS))
BASIS = np.linalg.qr(np.random.default_rng(0).standard_normal((PARCELS, PARCELS)))[0]


def turned(rng: np.random.Generator, size: float) -> np.ndarray:
    return np.eye(PARCELS) + size * rng.standard_normal((PARCELS, PARCELS)) / np.sqrt(PARCELS)


def made_person(number: int, sites: range) -> tuple[np.ndarray, float]:
    """Series of a person of one of these sites, and the phenotype: the mean gain of the first five eigenvalues."""
    rng, site = np.random.default_rng([1, number]), np.random.default_rng([2, sites[number % len(sites)]])
    gains = rng.standard_normal(PARCELS)
    root = ROOT * np.exp(GAINS * (gains + site.standard_normal(PARCELS)))
    series = slow_noise(rng) @ (BASIS @ turned(site, SITE) @ turned(rng, PERSON) * root).T
    return (series - series.mean(0)) / series.std(0), float(gains[:5].mean())


def only_series(number: int) -> np.ndarray:
    return made_person(number, SEEN_SITES)[0]


def source(person: str, session: str, read: Callable[[], np.ndarray], n_parcels: int) -> Any:
    names = [f"parcel{i:03d}" for i in range(n_parcels)]
    facts = {"id": f"d/{person}_{session}", "dataset": "d", "subject": person, "session": session}
    return {**facts, "repetition_time": 2.0, "parcel_names": names}, read


def students(sources: list[Any], options: argparse.Namespace, words: list[str]) -> Iterator[tuple[str, Map]]:
    """Train every student by the command; return what the file that goes with each of them makes of windows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pack_corpus(sources, folder / "pack")
        (folder / "bids").mkdir()
        for method in options.methods:
            out, asked = folder / method, METHODS[method]
            command = [sys.executable, "-m", "fcpower_bids", folder / "bids", out, "pretrain", *asked]
            command += ["--corpus", folder / "pack", "--accept-unproven", "--quiet", "--steps", options.steps]
            command += ["--batch-size", options.batch, "--architecture", *options.architecture, *words]
            subprocess.run([*map(str, command)], check=True, capture_output=True)
            (module,) = (out / "encoder" / "model").glob("modeling_*.py")
            spec = importlib.util.spec_from_file_location(module.stem, module)
            loaded = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded)
            kind = loaded.ClosedForm if method == "closed-form" else loaded.FBert
            model = kind.from_pretrained(module.parent)
            parcels = model.config["roi_labels"]
            yield (
                method,
                lambda x, model=model, parcels=parcels: np.stack([np.asarray(model.embed(o, parcels)) for o in x]),
            )


def maps(trained: Iterator[tuple[str, Map]]) -> Iterator[tuple[str, Map]]:
    """FC, FC^0.35, the students, and students beside FC^0.35 with equal weight."""

    def power(x: np.ndarray) -> np.ndarray:
        return np.stack([edges(one, 0.35) for one in x])

    yield "FC", lambda x: np.stack([edges(one, 1.0) for one in x])
    yield "FC^0.35", power
    for name, one in trained:
        yield name, one
        if name not in ("steps", "pairs"):
            yield f"FC^0.35 + {name}", lambda x, one=one: np.concatenate((power(x), unit(one(x))), axis=1)


def on_made_people(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    groups = {
        name: [made_person(10**6 + i, sites) for i in range(UNSEEN)]
        for name, sites in (("same sites", SEEN_SITES), ("new sites", NEW_SITES))
    }
    sources = [source(f"{i:05d}", "1", partial(only_series, i), PARCELS) for i in range(options.people)]
    teachers = {name: np.stack([edges(x, 0.35) for x, _ in people]) for name, people in groups.items()}
    for name, one in maps(students(sources, options, [])):
        for group, people in groups.items():
            x, y = np.stack([series for series, _ in people]), np.array([value for _, value in people])
            for length in LENGTHS:
                first, last = one(x[:, :length]), one(x[:, -length:])
                yield {
                    **{"people": options.people, "group": group, "map": name, "volumes": length},
                    "identification": found(first, last),
                    "alignment": alignment(kernel_of(first), np.corrcoef(teachers[group])),
                    "r": predicted(first, y),
                }


def on_stages(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    stored = np.load(options.shared / "data" / "stages" / "timeseries.npz")
    scans = {tuple(key.removeprefix("sub-").split("_ses-")): stored[key][:, :400].astype(float) for key in stored.files}
    people = sorted({person for person, _ in scans})
    twice = [person for person in people if (person, "1") in scans and (person, "2") in scans]
    order = np.random.default_rng(0).permutation(twice)
    for part in options.parts:
        unseen = sorted(order[part::3].tolist())
        sources = [source(*key, lambda x=x: x, 400) for key, x in scans.items() if key[0] not in unseen]
        first, last = (np.stack([scans[person, session] for person in unseen]) for session in ("1", "2"))
        teacher = np.corrcoef([edges(x, 0.35) for x in (*first, *last)])
        for name, one in maps(students(sources, options, ["--held-out", "0", "--random-seed", str(part)])):
            for length in LENGTHS:
                cut = [[one(x[:, start : start + length]) for start in (0, 234 - length)] for x in (first, last)]
                kernels = [kernel_of(np.concatenate(pair)) for pair in zip(*cut, strict=True)]
                yield {
                    **{"part": part, "map": name, "volumes": length},
                    "identification": np.mean([found(a, b) for a in cut[0] for b in cut[1]]),
                    "alignment": np.mean([alignment(kernel, teacher) for kernel in kernels]),
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("made", "stages"))
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder with data/stages")
    parser.add_argument("--people", type=int, default=1000)
    parser.add_argument("--parts", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--architecture", nargs="+", default=["d=64", "layers=2", "heads=4", "ff=128"])
    options = parser.parse_args()
    rows = []
    for row in on_made_people(options) if options.data == "made" else on_stages(options):
        rows.append(row)
        print({name: round(one, 3) if isinstance(one, float) else one for name, one in row.items()}, flush=True)
    table, keys = pd.DataFrame(rows), [key for key in ("group", "volumes", "map") if key in rows[0]]
    print(table.drop(columns=["part", "people"], errors="ignore").groupby(keys, sort=False).mean().round(3).to_string())


if __name__ == "__main__":
    main()
