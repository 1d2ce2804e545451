"""What the participant level leaves behind, planted: the pretrain level is run on it as a user runs it."""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from fcpower_bids.errors import Unproven
from fcpower_bids.pretrain import engine
from fcpower_bids.pretrain.corpus import LICENCES, OWNERS, RECORDINGS, TEACHERS, VECTORS, WINDOWS, open_pack
from fcpower_bids.pretrain.engine import PretrainConfig, on_all_processes
from fcpower_bids.pretrain.train import train
from tests.planting.trees import put
from tests.running import Finished, run

ENDING = "task-rest_space-MNI_atlas-Toy_scale-10_stat-mean_timeseries"
TINY = ("--architecture", "d=8", "layers=1", "heads=2", "ff=8", "dropout=0.0", "--window", "20", "--batch-size", "12")
HERE = ("--nprocs", "1")
QUICK = (*TINY, "--nprocs", "1", "--steps", "4", "--warmup", "1", "--held-out", "0.4")
PACKED = ("--steps", "0", "--window", "20", "--nprocs", "1")


def plant_outputs(folder: Path, recordings: list[tuple[dict, NDArray[np.float64]]]) -> dict[str, Path]:
    """Write every recording as the participant level does; returns the tables by recording id in a dataset ``bids``."""
    put(folder / "bids" / "dataset_description.json", {"Name": "toy", "BIDSVersion": "1.9.0", "DatasetDOI": "bids"})
    tables = {}
    for facts, series in recordings:
        stem = f"sub-{facts['subject']}_ses-{facts['session']}_{ENDING}"
        path = folder / "out" / f"sub-{facts['subject']}" / f"ses-{facts['session']}" / "func" / f"{stem}.tsv"
        about = {"RepetitionTime": facts["repetition_time"], "NumberOfVolumesUsed": len(series)}
        put(path.with_suffix(".json"), about)
        table = pd.DataFrame(series, columns=facts["parcel_names"])
        table.to_csv(path, sep="\t", index=False, na_rep="n/a")
        fc = path.with_name(path.name.replace("stat-mean_timeseries", "stat-pearsoncorrelation_relmat"))
        names = facts["parcel_names"]
        table.corr().set_axis(names, axis=0).to_csv(fc, sep="\t", index_label="Node", na_rep="n/a")
        tables[f"bids/{stem.removesuffix('_stat-mean_timeseries')}"] = path
    return tables


@contextmanager
def checkpoints(every: int) -> Iterator[None]:
    """Have a checkpoint every so many steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "PretrainConfig", partial(PretrainConfig, checkpoint_every=every))
        yield


def run_pretrain(
    folder: Path, *options: object, out: str = "out", quick: Sequence[str] = QUICK, every: int = 2, code: int = 0
) -> Finished:
    """Run the pretrain level on the planted outputs in this process; with `PACKED` it makes the corpus alone.

    It has to end with this exit code. Few steps prove no model, which is as good as 0 here.
    """
    with checkpoints(every):
        found = run(folder / "bids", folder / out, "pretrain", *quick, *options)
    assert found.code in ((0, Unproven.exit_code) if code == 0 else (code,)), found.err
    return found


def read_log(encoder: Path) -> pd.DataFrame:
    """The log of a run by step, without what differs from run to run."""
    table = pd.read_csv(encoder / "log.tsv", sep="\t", index_col="step", na_values="n/a")
    return table.drop(columns="steps_per_s")


def pretrain(corpus: Path, output: Path, config: PretrainConfig, stop_step: int | None = None) -> dict:
    """Train in all processes of a run, or go on with one."""
    return on_all_processes(config, partial(train, corpus=corpus, output=output, config=config, stop_step=stop_step))


def write_public(pack: Path, folder: Path, window: int = 20) -> None:
    """Write a pack in the public layout, whole windows, with ``parcels.txt``."""
    corpus = open_pack(pack)
    counts = corpus.count * (corpus.volumes // window)
    rows = np.flatnonzero(counts)
    counts, table = counts[rows], corpus.table.iloc[rows]
    names = table["dataset"] + "/sub-" + table["subject"] + "/" + table["id"].str.rsplit("/", n=1).str[-1]
    licences = dict(zip(table["dataset"], table["licence"], strict=True))
    folder.mkdir(parents=True)
    windows = np.concatenate(
        [corpus.windows(np.full(n, row), np.arange(n) * window, window) for row, n in zip(rows, counts, strict=True)]
    )
    np.save(folder / WINDOWS, windows.transpose(0, 2, 1).astype(np.float32))
    np.save(folder / TEACHERS, np.load(pack / VECTORS)[table["position"]])
    np.save(folder / OWNERS, np.repeat(np.arange(len(rows)), counts).astype(np.int32))
    for name, content in {RECORDINGS: names.tolist(), LICENCES: licences}.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    (folder / "parcels.txt").write_text("\n".join(corpus.parcel_names))


def in_child(work: Callable[[], int]) -> int | None:
    """Exit code of some work, or minus its signal, in a copy of this process: the libraries are there already."""
    child = multiprocessing.get_context("fork").Process(target=lambda: sys.exit(work()))
    child.start()
    child.join()
    return child.exitcode
