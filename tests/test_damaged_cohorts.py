"""Stored outputs, connectomes and tables that were damaged and can still be read: each is named by the group level.

The faults are the lines of ``planting/damage.tsv`` about them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.outputs.tables import read_matrix, read_series
from tests.running import run_app, run_by_spreadsheet, run_group
from tests.test_damaged_series import UNCHANGED, Line, read_catalogue

SOUND = 6
SAME = 0.02
"""Difference of FC below which it is unchanged."""
NAMED, SILENT = "named", "silent"
CHOICES = ("--min-time", "0", "--drop-people-missing", "1", "--analyses", "spectrum_geometry", "--quiet")


def victims(lines: Sequence[Line]) -> list[str]:
    """The person whom each line damages: another for every line about outputs, and for every line about matrices."""
    of_matrices = iter(range(SOUND + 1, SOUND + 1 + len(lines)))
    others = iter(range(SOUND + 1, SOUND + 1 + len(lines)))
    return [f"sub-{next(of_matrices if line.input == 'matrix' else others):02d}" for line in lines]


@dataclass(frozen=True)
class Cohort:
    """A dataset, its outputs, connectomes of a stranger in a list, and the person to be damaged."""

    root: Path
    person: str

    def stored(self, ending: str, person: str = "") -> Path:
        (path,) = (self.root / "out").rglob(f"{person or self.person}_*{ending}")
        return path

    def matrix(self, person: str = "") -> Path:
        return self.root / "theirs" / f"{person or self.person}.tsv"

    def change_matrix(self, change: Callable[[np.ndarray], np.ndarray]) -> None:
        table = pd.read_csv(self.matrix(), sep="\t")
        pd.DataFrame(change(table.to_numpy()), columns=table.columns).to_csv(self.matrix(), sep="\t", index=False)


def plant(root: Path, lines: Sequence[Line], seed: int = 0) -> None:
    """Make people, process them, write their connectomes as another program does, and damage one for every line."""
    people = victims(lines)
    make_dataset(root / "in", DemoDesign.tiny(subjects=int(max(people)[4:]), sessions=1, seed=seed))
    run = run_app(root / "in", root / "out", "--atlas", "builtin", "--nprocs", "1", "--quiet")
    assert run.code == 0, run.err
    (root / "theirs").mkdir()
    rows = []
    for path in run.files(f"sub-*{FC}.tsv"):
        person = path.name.partition("_")[0]
        values, names = read_matrix(path)
        pd.DataFrame(values, columns=names).to_csv(root / "theirs" / f"{person}.tsv", sep="\t", index=False)
        rows.append({"participant_id": person, "path": f"{person}.tsv", "kind": "matrix"})
    pd.DataFrame(rows).to_csv(root / "theirs" / "list.tsv", sep="\t", index=False)
    shutil.copytree(root / "out", root / "sound")
    for person, line in zip(people, lines, strict=True):
        DAMAGE[line.damage](Cohort(root, person), *line.level.split())


def observe(root: Path, lines: Sequence[Line]) -> list[tuple[str, float, str]]:
    """Run the group level on outputs and on the list: what became of each line, how far FC is off, what was said."""
    places = {"stored": root / "out", "people": root / "out", "matrix": root / "listed"}
    codes = (
        run_group(root / "in", places["stored"], *CHOICES),
        run_group(root / "in", places["matrix"], "-d", f"list={root / 'theirs' / 'list.tsv'}", *CHOICES),
    )
    assert codes == (0, 0)
    people = zip(victims(lines), lines, strict=True)
    return [_observe(root, places[line.input], line, person) for person, line in people]


def _observe(root: Path, output: Path, line: Line, person: str) -> tuple[str, float, str]:
    if line.input == "people":
        return (SILENT if run_by_spreadsheet(output / "group") else NAMED), np.nan, line.words
    told = pd.read_csv(output / "group" / "excluded.tsv", sep="\t", dtype=str, keep_default_na=False)
    said = " ".join(told.loc[told["participant_id"] == person, "reason"])
    used = person in set(pd.read_csv(output / "group" / "scans.tsv", sep="\t", dtype=str)["participant_id"])
    if not used:
        return NAMED, np.nan, said
    ending = ".npy" if line.input == "matrix" else ".tsv"
    (ours,), (sound,) = (
        folder.rglob(f"{person}_*{FC}{end}") for folder, end in ((output, ending), (root / "sound", ".tsv"))
    )
    off = float(np.nanmax(np.abs(read_series(ours)[0] - read_matrix(sound)[0])))
    return (UNCHANGED if line.input == "matrix" and off < SAME else SILENT), off, said


# ---- what is done to the files; the words of the level are the arguments

FC = "_stat-pearsoncorrelation_relmat"
DAMAGE: dict[str, Callable[..., object]] = {}


def damage(function: Callable[..., object]) -> Callable[..., object]:
    DAMAGE[function.__name__] = function
    return function


def of_matrix(function: Callable[..., np.ndarray]) -> Callable[..., object]:
    """A damage of the connectome (P, P) of a list."""

    def apply(cohort: Cohort, *level: str) -> None:
        cohort.change_matrix(lambda matrix: function(matrix, *level))

    DAMAGE[function.__name__] = apply
    return apply


@damage
def digit(cohort, ending):
    """Another digit in the middle of a table."""
    path = cohort.stored(ending)
    content = bytearray(path.read_bytes())
    place = next(at for at in range(len(content) // 2, len(content)) if chr(content[at]) in "123")
    content[place] ^= 0x04
    path.write_bytes(content)


@damage
def half(cohort, ending):
    path = cohort.stored(ending)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@damage
def from_another(cohort, *endings):
    """Files of a sound person under the name of this one."""
    for ending in endings:
        shutil.copyfile(cohort.stored(ending, "sub-01"), cohort.stored(ending))


@of_matrix
def diagonal(matrix, number):
    return np.where(np.eye(len(matrix)) > 0, float(number), matrix)


@of_matrix
def skewed(matrix, number):
    return matrix + np.triu(np.full(matrix.shape, float(number)), 1)


@of_matrix
def fisher(matrix):
    return np.arctanh(np.clip(matrix, -0.9999, 0.9999))


@of_matrix
def covariance(matrix):
    scale = np.linspace(0.5, 3, len(matrix))
    return matrix * np.outer(scale, scale)


@of_matrix
def rounded(matrix, digits):
    return matrix.round(int(digits))


@of_matrix
def gap(matrix):
    matrix = matrix.copy()
    matrix[3, 5] = matrix[5, 3] = np.nan
    return matrix


@of_matrix
def shuffled(matrix):
    """The same values in other places."""
    upper = np.triu_indices(len(matrix), 1)
    new = np.eye(len(matrix))
    new[upper] = np.random.default_rng(0).permutation(matrix[upper])
    return new + np.triu(new, 1).T


@damage
def doubled(cohort):
    path = cohort.matrix()
    names, *rows = path.read_text().split("\n")
    first, _, *others = names.split("\t")
    path.write_text("\n".join(["\t".join([first, first, *others]), *rows]))


@damage
def of_sound(cohort):
    shutil.copyfile(cohort.matrix("sub-01"), cohort.matrix())


@damage
def formula(cohort, cell):
    path = cohort.root / "in" / "participants.tsv"
    people = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
    people.assign(note=cell).to_csv(path, sep="\t", index=False)


LINES = read_catalogue(of_cohorts=True)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    root = tmp_path_factory.mktemp("damaged")
    plant(root, LINES)
    return dict(zip(LINES, observe(root, LINES), strict=True))


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_every_line_becomes_what_it_says(damaged, line):
    became, _, said = damaged[line]
    assert became == (NAMED if line.is_named else line.outcome)
    if line.is_named:
        assert line.words in said
