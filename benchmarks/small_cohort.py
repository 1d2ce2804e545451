"""A hundred people through the command with all defaults, against a script of scikit-learn.

    python -m benchmarks.small_cohort --n 100 --parcels 400

The script reads the same arrays, and does the nested cross-validation of FC and FC^alpha alone: no check, QC-FC,
permutations, edges or page. CPU seconds of each, least of several, and their ratio.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.large_group import Drawn, name_of, small_files
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.outputs.tables import write_array, write_matrix, write_table

PEER = """
import sys
from pathlib import Path
import numpy as np
import pandas as pd
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, KFold
out = Path(sys.argv[1])
edges = np.array([np.load(path) for path in sorted(out.glob("sub-*/func/*_relmat.npy"))])
target = pd.read_csv(out / "bids" / "participants.tsv", sep="\\t")["score"].to_numpy()
P = int((1 + np.sqrt(1 + 8 * edges.shape[1])) / 2)
upper = np.triu_indices(P, 1)
powers = np.empty_like(edges)
for row, own in zip(powers, edges):
    matrix = np.eye(P)
    matrix[upper] = own
    values, vectors = np.linalg.eigh(matrix + matrix.T - np.eye(P))
    row[:] = ((vectors * np.clip(values, 0, None) ** 0.35) @ vectors.T)[upper]
for kernel in map(np.corrcoef, (edges, powers)):
    scores = []
    for repeat in range(20):
        for train, test in KFold(10, shuffle=True, random_state=repeat).split(kernel):
            search = GridSearchCV(KernelRidge(kernel="precomputed"), {"alpha": np.logspace(-3, 3, 7)}, cv=5)
            search.fit(kernel[np.ix_(train, train)], target[train])
            scores.append(np.corrcoef(search.predict(kernel[np.ix_(test, train)]), target[test])[0, 1])
    print(np.mean(scores))
"""


def plant(out: Path, n: int, n_parcels: int) -> None:
    """Write the outputs of n people as the participant level does, and their scores."""
    drawn, scores = Drawn(n_parcels), {}
    for number in range(n):
        fc, scores[name_of(number)] = drawn.person(number)
        path = small_files(out, number)
        write_matrix(path, fc, drawn.parcels, drawn.parcels)
        write_array(path.with_suffix(".npy"), vectorise_edges(fc, weighted=False))
    table = pd.DataFrame({"participant_id": list(scores), "score": list(scores.values())})
    write_table(out / "bids" / "participants.tsv", table)


def cost(command: list[str]) -> float:
    """CPU seconds of a command and of all processes that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--parcels", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        plant(out, options.n, options.parcels)
        words = [str(out / "bids"), folder, "group", "--targets", "score", "--min-time", "60", "--quiet"]
        ours, theirs = [], []
        for _ in range(options.repeats):
            for name in ("work", "group"):
                shutil.rmtree(out / name, ignore_errors=True)
            ours.append(cost([sys.executable, "-m", "fcpower_bids", *words, "--nprocs", "1"]))
            theirs.append(cost([sys.executable, "-c", PEER, folder]))
        ours_least, theirs_least = np.min(ours), np.min(theirs)
        print(f"{options.n} people, {options.parcels} parcels: the command {ours_least:.1f} CPU s, ", end="")
        print(f"the script {theirs_least:.1f} CPU s; {theirs_least / ours_least:.1f} times as much")


if __name__ == "__main__":
    main()
