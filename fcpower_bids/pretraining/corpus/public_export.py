"""Write our pack in the layout of the public corpus: windows that follow each other, and the stored teacher."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.errors import DatasetError
from fcpower_bids.pretraining.corpus.opened import Indices
from fcpower_bids.pretraining.corpus.pack import Pack, load_corpus
from fcpower_bids.pretraining.corpus.proof import stored_vector
from fcpower_bids.pretraining.corpus.public import FACTS, LICENCES, OWNERS, RECORDINGS, TEACHERS, WINDOWS
from fcpower_bids.store import replace_folder, write_text


def write_public(pack: Path, folder: Path, window: int = 80) -> int:
    """Write a pack in the public layout; the volumes after the last whole window of a recording are left out.

    ``corpus.json`` beside it has what the layout cannot say: parcels, exponent, atlas, families, repetition times,
    and the signatures of the whole recordings.

    Parameters
    ----------
    pack : Path
    folder : Path
        Appears whole or not at all.
    window : int
        Volumes.

    Returns
    -------
    int
        Number of windows.

    Raises
    ------
    DatasetError
        No recording is as long as a window.
    """
    corpus = load_corpus(pack)
    counts = corpus.table["T"].to_numpy(dtype=np.intp) // window
    rows = np.flatnonzero(counts)
    if not len(rows):
        raise DatasetError(f"No recording of {pack} has {window} volumes; give a shorter --window.")
    counts, table = counts[rows], corpus.table.iloc[rows]

    def write(target: Path) -> None:
        _write_windows(corpus, rows, counts, target / WINDOWS, window)
        _write_teachers(pack, table, target / TEACHERS, len(corpus.parcel_names))
        np.save(target / OWNERS, np.repeat(np.arange(len(rows)), counts).astype(np.int32))
        _write_json(target / RECORDINGS, [_name(row) for _, row in table.iterrows()])
        _write_json(target / LICENCES, dict(zip(table["dataset"], table["licence"], strict=True)))
        facts = {"roi_labels": corpus.parcel_names, "alpha": corpus.alpha, "atlas": corpus.atlas}
        facts |= {"families": table["family"].tolist()}
        facts |= {"repetition_times": table["TR"].tolist()} if table["TR"].notna().all() else {}
        facts |= {"signatures": corpus.signatures(rows)}
        _write_json(target / FACTS, facts)

    folder.parent.mkdir(parents=True, exist_ok=True)
    replace_folder(folder, write)
    return int(counts.sum())


def _write_windows(corpus: Pack, rows: Indices, counts: Indices, path: Path, window: int) -> None:
    shape = (int(counts.sum()), len(corpus.parcel_names), window)
    array = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    at = 0
    for row, count in zip(rows, counts, strict=True):
        cut = corpus.windows(np.full(count, row), np.arange(count) * window, window)
        array[at : at + count] = cut.transpose(1, 2).numpy()
        at += count
    array.flush()


def _write_teachers(pack: Path, table: pd.DataFrame, path: Path, n_parcels: int) -> None:
    array = np.lib.format.open_memmap(path, "w+", np.float32, (len(table), n_parcels * (n_parcels - 1) // 2))
    for i, (_, row) in enumerate(table.iterrows()):
        array[i] = stored_vector(pack, row)
    array.flush()


def _name(row: pd.Series[Any]) -> str:
    """DATASET/sub-LABEL/NAME, whatever the recording is called in the pack."""
    return f"{row['dataset']}/sub-{row['subject']}/{str(row['id']).rsplit('/', 1)[-1]}"


def _write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
