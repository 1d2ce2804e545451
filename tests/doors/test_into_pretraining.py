"""Every way that brings series in, with every way to train on them: the numbers of the series, or one sentence.

``make test-long`` walks cells in which every two choices meet; ``FCPOWER_FAULTS=all`` walks all (``make faults``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.encoders.training_people import person_digest
from tests.command import in_file
from tests.doors.cohort import PEOPLE, WAYS_IN, Entered, Shape, Truth, flattened
from tests.doors.ways_on import run, table

WINDOW = 30
WAYS = ("fMRIPrep", "XCP-D", "list of series")
SHAPES = {
    "one scan shorter than two windows": Shape(volumes=40),
    "one scan": Shape(),
    "two sessions": Shape(sessions=2),
}
CHOICES = (WAYS, tuple(SHAPES), ("pack", "public layout"), (1, 2), (1, 2))
"""Way in, shape, layout of the corpus, datasets that have one folder name, processes."""
CELLS = list(product(*CHOICES))
TRAINING = (
    *("--window", WINDOW, "--steps", "4", "--checkpoint-every", "2", "--warmup", "1", "--batch-size", "4"),
    *("--architecture", "d=16", "layers=1", "heads=2", "dropout=0.0", "--held-out", "0.5"),
    *("--accept-unproven", "--accelerator", "cpu", "--quiet"),
)
Cell = tuple[str, str, str, int, int]


def pairs_of(cell: Cell) -> set[tuple[object, ...]]:
    return {(i, cell[i], j, cell[j]) for i, j in combinations(range(len(CHOICES)), 2)}


def covering() -> list[Cell]:
    """Cells in which any two choices meet, each the one that adds most."""
    missing, chosen = set().union(*map(pairs_of, CELLS)), list[Cell]()
    while missing:
        chosen.append(max(CELLS, key=lambda cell: len(pairs_of(cell) & missing)))
        missing -= pairs_of(chosen[-1])
    return chosen


WALKED = CELLS if os.environ.get("FCPOWER_FAULTS") == "all" else covering()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pretraining")


@cache
def truth_of(folder: Path, shape: Shape, seed: int) -> Truth:
    design = DemoDesign.tiny(
        subjects=PEOPLE, sessions=shape.sessions, volumes=shape.volumes, noise=0, nuisance=0, seed=seed
    )
    known = make_dataset(folder / "bids", design)
    scans = [tuple(part.partition("-")[2] for part in name.split("_")[:2]) for name in known.recordings]
    return Truth(folder / "bids", dict(zip(scans, known.painted, strict=True)))


@cache
def dataset(folder: Path, way: str, shape: Shape, seed: int) -> Entered:
    """Outputs of one dataset; those of other seeds have other people with the same labels, in folders of one name."""
    place = folder / f"{shape.volumes}_{shape.sessions}" / str(seed)
    entered = WAYS_IN[way](place / way.replace(" ", "_"), truth_of(place, shape, seed), shape)
    if entered.options:  # the group level reads what other programs wrote
        words = (entered.bids, entered.out, "group", *entered.options, "--check", "--min-time", "30", "--quiet")
        assert run(*words).code == 0
    return entered


def pack(cell: Cell, folder: Path, place: Path) -> tuple[dict[str, Entered], Path]:
    """Put the datasets of a cell into one corpus; returns them by name, and the folder to train on."""
    way, shape, layout, n, _ = cell
    entered = {f"study{seed}": dataset(folder, way, SHAPES[shape], seed) for seed in range(n)}
    corpus = ("--corpus", place / "corpus", "--window", WINDOW, "--quiet", "--nprocs", "1")
    public = ("--public-corpus", place / "public") if layout == "public layout" else ()
    for number, (name, one) in enumerate(entered.items(), 1):
        written = public if number == n else ()
        packed = run(one.bids, one.out, "pack", *corpus, *written, "--dataset-name", name)
        assert packed.code == 0, packed.said
    return entered, place / ("public" if public else "corpus")


def train(place: Path, corpus: Path, bids: Path, processes: int) -> Path:
    """Train in processes of their own where there are several; returns the folder of the encoder."""
    out = place / f"trained_{processes}"
    words = in_file([bids, out, "pretrain", "--corpus", corpus, *TRAINING])
    if processes == 1:
        assert (ended := run(*words)).code == 0, ended.said
    else:
        command = [sys.executable, "-m", "fcpower_bids", *words, "--devices", str(processes)]
        ended_apart = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended_apart.returncode == 0, ended_apart.stderr
    return out / "encoder"


def held_out(encoder: Path, entered: dict[str, Entered]) -> list[tuple[str, str]]:
    """Dataset and label of those who were not trained on, by the digests that the model states."""
    facts = json.loads((encoder / "model" / "config.json").read_text())
    people = [(name, label) for name, one in entered.items() for label in one.people]
    digests = {person_digest(facts["corpus_sha256"], *person): person for person in people}
    assert set(facts["held_out"]) | set(facts["trained_on"]) == set(digests)
    return sorted(digests[one] for one in facts["held_out"])


def ends_of(entered: Entered, label: str, layout: str) -> list[np.ndarray]:
    """First and last window of a person; fewer than two where they would share volumes."""
    series = [entered.truth.series[scan] for scan in entered.scans() if scan[0] == label]
    if len(series) == 1 and len(series[0]) < 2 * WINDOW:
        return []
    last = len(series[-1]) - WINDOW if layout == "pack" else (len(series[-1]) // WINDOW - 1) * WINDOW
    return [series[0][:WINDOW], series[-1][last : last + WINDOW]]


def edges(series: np.ndarray, flat: bool) -> np.ndarray:
    matrix = flattened(series) if flat else np.corrcoef(series.T)
    return matrix[np.triu_indices(len(matrix), 1)]


def identification(pairs: list[list[np.ndarray]], flat: bool) -> float:
    """Share of people who are found by their other window, by numpy."""
    one, other = (np.array([edges(pair[end], flat) for pair in pairs]) for end in (0, 1))
    similar = np.corrcoef(one, other)[: len(one), len(one) :]
    return float(np.mean([(similar.argmax(axis) == np.arange(len(one))).mean() for axis in (0, 1)]))


@pytest.mark.parametrize("cell", WALKED, ids=lambda cell: ", ".join(map(str, cell)))
def test_every_cell_ends_in_the_numbers_of_its_series(cell, folder, tmp_path):
    entered, corpus = pack(cell, folder, tmp_path)
    _, shape, layout, n, processes = cell
    encoder = train(tmp_path, corpus, next(iter(entered.values())).bids, processes)
    own = held_out(encoder, entered)
    assert len(own) == PEOPLE * n // 2
    found = table(encoder / "alignment.tsv").set_index("map")["identification"]
    pairs = [ends_of(entered[name], label, layout) for name, label in own]
    if shape == "one scan shorter than two windows":
        assert found.isna().all()
    else:
        expected = [identification(pairs, flat) for flat in (False, True)]
        np.testing.assert_allclose(found[["fc", "fc_power"]], expected, atol=1e-12)
        assert np.isfinite(found).all()
    if processes == 2:
        losses = [table(one / "log.tsv")["loss"].dropna() for one in (encoder, train(tmp_path, corpus, tmp_path, 1))]
        np.testing.assert_allclose(*losses, atol=1e-4)


def test_two_datasets_under_one_name_are_refused(folder, tmp_path):
    """Without a name of their own, people of the second would take the places of the first."""
    first, second = (dataset(folder, "list of series", SHAPES["one scan"], seed) for seed in (0, 1))
    words = ("pack", "--corpus", tmp_path / "corpus", "--window", WINDOW, "--quiet", "--nprocs", "1")
    nameless = run(first.bids, first.out, *words)
    assert nameless.code == 2
    assert "Name it by dataset_name in a file" in nameless.said
    assert run(first.bids, first.out, *words, "--dataset-name", "one").code == 0
    again = run(second.bids, second.out, *words, "--dataset-name", "one")
    assert again.code == 2, again.said
    assert "other outputs" in again.said


def test_any_two_choices_meet_in_the_cells_that_are_walked():
    assert set().union(*map(pairs_of, covering())) == set().union(*map(pairs_of, CELLS))
