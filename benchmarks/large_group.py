"""A large cohort through the command: memory of every process, CPU, and the same tables with a worker killed.

    python -m benchmarks.large_group --n 4000 --folds 200 --mem-mb 4000

Connectomes of 400 parcels are drawn and put where the group level keeps those that it has parsed; the text is that of
one more person. The figures of `docs/scale.md`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.cohort.cache import edges_beside, read_edges
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.signal.timeseries import z_score
from fcpower_bids.ondisk import Facts, GrowingRows
from fcpower_bids.outputs.tables import write_array, write_json, write_matrix, write_table
from fcpower_bids.settings import Settings

ATLAS, SPACE = "atlas-Drawn_scale-400", "space-MNI152NLin2009cAsym"
FACTS = {"ConfigurationHash": "0", "SoftwareVersion": "0", "NuisanceStrategy": "24P", "NumberOfVolumesUsed": 490}
VOLUMES = 490


class Drawn:
    """People whose connectomes differ around one covariance, and a score that follows some of their modes."""

    def __init__(self, n_parcels: int) -> None:
        rng = np.random.default_rng(0)
        order = np.arange(1, n_parcels + 1)
        basis = np.linalg.qr(rng.standard_normal((n_parcels, n_parcels)))[0]
        self.root = basis * np.sqrt(order**-1.3 * np.exp(-3.0 * order / n_parcels))
        self.parcels = [f"p{number:03d}" for number in range(n_parcels)]

    def person(self, number: int) -> tuple[np.ndarray, float]:
        """FC (P, P) and score of one person."""
        series, score = self.series(number)
        return pearson_connectivity(series), score

    def series(self, number: int) -> tuple[np.ndarray, float]:
        """Series (T, P) and score of one person."""
        rng = np.random.default_rng([1, number])
        gains = 0.25 * rng.standard_normal(len(self.parcels))
        series = rng.standard_normal((VOLUMES, len(self.parcels))) @ (self.root * np.exp(gains)).T
        return z_score(series), float(gains[:5].sum() + 0.5 * rng.standard_normal())


def plant(out: Path, n: int, drawn: Drawn) -> None:
    """Write the outputs of n people: small tables, and the edges of their connectomes as if these had been parsed."""
    scores = {}
    stored = GrowingRows(out / "work" / "cohort" / f"{ATLAS}_{SPACE}")
    stored.clear({"parcels": drawn.parcels}, len(drawn.parcels) * (len(drawn.parcels) - 1) // 2)

    def rows() -> Iterator[tuple[str, Facts, np.ndarray]]:
        for number in range(n):
            fc, scores[name_of(number)] = drawn.person(number)
            path = small_files(out, number)
            path.write_text("Node\n", encoding="utf-8")
            stat, edges = path.stat(), vectorise_edges(fc, weighted=False)
            digest = hashlib.blake2b(edges.tobytes(), digest_size=16).hexdigest()
            facts = {"state": [stat.st_size, stat.st_mtime_ns], "missing": [], "digest": digest}
            yield path.relative_to(out).as_posix(), facts, edges

    stored.add(rows())
    table = pd.DataFrame({"participant_id": list(scores), "score": list(scores.values())})
    write_table(out / "bids" / "participants.tsv", table)


def name_of(number: int) -> str:
    """``sub-00001``."""
    return f"sub-{number:05d}"


def small_files(out: Path, number: int) -> Path:
    """Write what lies beside the connectome of one person; return where that is."""
    folder = out / name_of(number) / "func"
    folder.mkdir(parents=True)
    stem = folder / f"{name_of(number)}_task-rest_{SPACE}"
    path = Path(f"{stem}_{ATLAS}_stat-pearsoncorrelation_relmat.tsv")
    write_json(path.with_suffix(".json"), FACTS, flush=False)
    row = {"atlas": ATLAS, "seconds_kept": 2.0 * VOLUMES, "kept_volumes": VOLUMES, "degrees_of_freedom": 200.0}
    motion = 0.1 + 0.05 * np.random.default_rng([2, number]).random()
    write_table(Path(f"{stem}_desc-fcpower_qc.tsv"), pd.DataFrame([{**row, "mean_fd": motion}]))
    return path


@dataclass
class Watched:
    """A command and the processes that it starts: their peak memory in MB, of their own and with what they map."""

    command: list[str]
    kill_after: float = 0.0
    own: dict[int, float] = field(default_factory=dict)
    peak: dict[int, float] = field(default_factory=dict)

    def run(self) -> tuple[float, float]:
        """Return CPU seconds and wall-clock seconds; a worker is killed after some time at work."""
        started, before = time.monotonic(), os.times()
        with subprocess.Popen(self.command, start_new_session=True) as process:
            while process.poll() is None:
                for pid in family(process.pid):
                    self._look(pid)
                if self.kill_after and time.monotonic() - started > self.kill_after:
                    self._kill(process.pid)
                time.sleep(0.2)
        if process.returncode:
            sys.exit(f"The command ended with {process.returncode}.")
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return cpu, time.monotonic() - started

    def _look(self, pid: int) -> None:
        try:
            lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
        except OSError:
            return
        facts = dict(line.split(":", 1) for line in lines)
        for name, known in (("RssAnon", self.own), ("VmHWM", self.peak)):
            if name in facts:
                known[pid] = max(known.get(pid, 0.0), int(facts[name].split()[0]) * 1024 / 1e6)

    def _kill(self, first: int) -> None:
        workers = [pid for pid in family(first) if pid != first and self.own.get(pid, 0) > 100]
        if workers:
            os.kill(workers[-1], signal.SIGKILL)
            print(f"  worker {workers[-1]} killed", flush=True)
            self.kill_after = 0.0


def family(pid: int) -> list[int]:
    """A process and all that it has started, and these."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        threads = [each for each in Path(f"/proc/{pid}/task").iterdir() if each.name != str(pid)]
        for thread in threads:
            children += (thread / "children").read_text(encoding="ascii").split()
    except OSError:
        return []
    return [pid, *(each for child in children for each in family(int(child)))]


def group_command(out: Path, name: str, options: argparse.Namespace, executor: list[str]) -> list[str]:
    """The command of one run."""
    return [
        *(sys.executable, "-m", "fcpower_bids", str(out / "bids"), str(out), "group", "-w", str(out / "work")),
        *("--analyses", "prediction", "--targets", "score", "--representations", *options.representations),
        *("--predictors", *options.predictors),
        *("--permutations", "0", "--repeats", str(options.folds // 10), "--folds", "10", "--inner-folds", "5"),
        *("--mem-mb", str(options.mem_mb), "--name", name, *executor),
    ]


def one_more(out: Path, n: int, drawn: Drawn) -> None:
    """Add the connectomes of new people as text, and tell what reading them took and wrote."""
    folder = out / "work" / "cohort" / f"{ATLAS}_{SPACE}"
    paths = sorted(out.glob("sub-*/func/*_relmat.tsv"))
    settings = Settings(out / "bids", out, "group", quiet=True, nprocs=1)
    for number in range(n, n + 3):
        paths.append(small_files(out, number))
        fc = drawn.person(number)[0]
        write_matrix(paths[-1], fc, drawn.parcels, drawn.parcels)
        before, start = set(folder.iterdir()), time.process_time()
        edges = read_edges(paths, folder, settings)
        seconds = time.process_time() - start
        fresh = sum(path.stat().st_size for path in set(folder.iterdir()) - before)
        index = (folder / "index.json").stat().st_size
        if not np.array_equal(edges.array[n], vectorise_edges(fc, weighted=False)) and number == n:
            sys.exit("The new row is not what was written.")
        print(f"One more person: {seconds:.2f} CPU s, {(fresh + index) / 1e6:.1f} MB written", flush=True)


def gather(out: Path, drawn: Drawn, number: int = 200) -> None:
    """Tell what reading costs of each connectome, from its table and from the array beside it."""
    tree = out / "gathered"
    settings = Settings(out / "bids", tree, "group", quiet=True, nprocs=1)
    paths = [small_files(tree, person) for person in range(number)]
    connectomes = [drawn.person(person)[0] for person in range(number)]
    for path, fc in zip(paths, connectomes, strict=True):
        write_matrix(path, fc, drawn.parcels, drawn.parcels)
    found = {}
    for form in ("table", "array"):
        start = time.process_time()
        found[form] = np.asarray(read_edges(paths, tree / form, settings).array)
        print(f"Gathering, {form}: {(time.process_time() - start) / number:.4f} CPU s each", flush=True)
        for path, fc in zip(paths, connectomes, strict=True):
            write_array(edges_beside(path), vectorise_edges(fc, weighted=False))
    if not np.array_equal(found["table"], found["array"]):
        sys.exit("The edges differ.")


def compare(tables: list[dict[str, bytes]]) -> None:
    """End where the tables of two ways differ."""
    first, *rest = tables
    if not first or any(each != first for each in rest):
        sys.exit("The tables differ.")
    print(f"{len(first)} tables, the same bytes each time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=4000, help="people")
    parser.add_argument("--parcels", type=int, default=400, help="parcels")
    parser.add_argument("--folds", type=int, default=200, help="outer folds, ten to a repetition")
    parser.add_argument("--mem-mb", type=int, default=4000, help="memory that the command is given")
    parser.add_argument("--ways", nargs="+", default=["serial", "dask", "killed"], help="serial, dask, killed")
    parser.add_argument("--kill-after", type=float, default=60, help="seconds of the run")
    parser.add_argument("--representations", nargs="+", default=["fc_power"], help="what predicts")
    parser.add_argument("--predictors", nargs="+", default=["kernel_ridge"], help="who predicts")
    parser.add_argument("--folder", type=Path, help="where to; a temporary folder by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        out, drawn = Path(folder), Drawn(options.parcels)
        start = time.process_time()
        plant(out, options.n, drawn)
        print(
            f"n={options.n}, {options.folds} outer folds; drawn in {time.process_time() - start:.0f} CPU s", flush=True
        )
        one_more(out, options.n, drawn)
        gather(out, drawn)
        file = out / "local.yml"
        file.write_text(
            "cluster: LocalCluster\noptions: {n_workers: 2, threads_per_worker: 1, dashboard_address: null, "
            "memory_limit: 0}\n",
            encoding="ascii",
        )
        tables = {}
        for way in options.ways:
            executor = ["--nprocs", "1"] if way == "serial" else ["--executor", str(file)]
            watched = Watched(group_command(out, way, options, executor), options.kill_after * (way == "killed"))
            cpu, wall = watched.run()
            peaks = " ".join(f"{watched.own[pid]:.0f} ({watched.peak[pid]:.0f})" for pid in watched.own)
            print(
                f"  {way:<8} CPU {cpu:.0f} s, wall {wall:.0f} s; peak own memory (with files) MB: {peaks}", flush=True
            )
            found = sorted((out / "group" / way).glob("*.tsv")) or sorted(out.glob(f"**/*{way}*/*.tsv"))
            tables[way] = {path.name: path.read_bytes() for path in found}
        compare(list(tables.values()))


if __name__ == "__main__":
    main()
