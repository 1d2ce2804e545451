"""Stored outputs and matrices that were damaged and can be read: each is named by the group level, or harmless."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.outputs.tables import read_matrix, read_series
from tests.cases.people import table
from tests.running import run_app, run_by_spreadsheet, run_group

SOUND, SAME = 6, 0.02
"""People who are left as they are, and the difference of FC below which it is unchanged."""
FC = "_stat-pearsoncorrelation_relmat"
CHOICES = ("--min-time", "0", "--drop-people-missing", "1", "--analyses", "spectrum_geometry", "--quiet")


def digit(path, _):
    """Another digit in the middle of a table."""
    content = bytearray(path.read_bytes())
    place = next(at for at in range(len(content) // 2, len(content)) if chr(content[at]) in "123")
    content[place] ^= 0x04
    path.write_bytes(content)


def half(path, _):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def from_another(path, other):
    for ending in (".tsv", ".npy", ".json"):
        shutil.copyfile(other.with_suffix(ending), path.with_suffix(ending))


STORED = {
    "a digit of a connectome": (f"{FC}.tsv", digit, "outside -1 to 1"),
    "half a series": ("_stat-mean_timeseries.tsv", half, "is cut short"),
    "a connectome of another person": (f"{FC}.tsv", from_another, "run the participant level again"),
}


def shuffled(matrix):
    """The same values in other places."""
    upper = np.triu_indices(len(matrix), 1)
    new = np.eye(len(matrix))
    new[upper] = np.random.default_rng(0).permutation(matrix[upper])
    return new + np.triu(new, 1).T


def with_gap(matrix):
    matrix = matrix.copy()
    matrix[3, 5] = matrix[5, 3] = np.nan
    return matrix


def with_diagonal(number):
    return lambda matrix: np.where(np.eye(len(matrix)) > 0, number, matrix)


MATRICES = {
    "a diagonal of 18": (with_diagonal(18.7), "on its diagonal"),
    "not symmetric": (lambda matrix: matrix + np.triu(np.full(matrix.shape, 0.2), 1), "its two halves differ"),
    "Fisher z as r": (lambda matrix: np.arctanh(np.clip(matrix, -0.9999, 0.9999)), "it is declared as r but has"),
    "covariances": (lambda matrix: matrix * np.outer(*[np.linspace(0.5, 3, len(matrix))] * 2), "it is declared as r"),
    "one pair missing": (with_gap, "single correlations are missing"),
    "values in other places": (shuffled, "eigenvalue"),
    "two parcels of one name": (lambda matrix: matrix, "two parcels of one name"),
    "that of another person": (lambda matrix: matrix, "identical"),
    "a diagonal of zeros": (with_diagonal(0.0), ""),
    "two digits": (lambda matrix: matrix.round(2), ""),
}
"""What is done to the matrix of a list, and the words; none where FC is as it was."""


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """Both output folders of the group level, and who has which damage; a cell of the table of people is a formula."""
    root, damages = tmp_path_factory.mktemp("damaged"), list(MATRICES)
    make_dataset(root / "in", DemoDesign.tiny(subjects=SOUND + len(damages), sessions=1))
    run = run_app(root / "in", root / "out", "--atlas", "builtin", "--nprocs", "1", "--quiet")
    assert run.code == 0, run.err
    sound = {path.name.partition("_")[0]: read_matrix(path) for path in run.files(f"sub-*{FC}.tsv")}
    people = dict(zip(damages, list(sound)[SOUND:], strict=True))
    matrices = sound | {
        person: (MATRICES[kind][0](sound[person][0]), sound[person][1]) for kind, person in people.items()
    }
    matrices[people["that of another person"]] = sound["sub-01"]
    (root / "theirs").mkdir()
    for person, (values, names) in matrices.items():
        header = [names[0], *names[:1], *names[2:]] if person == people["two parcels of one name"] else names
        pd.DataFrame(values, columns=header).to_csv(root / "theirs" / f"{person}.tsv", sep="\t", index=False)
    rows = pd.DataFrame({"participant_id": list(matrices), "path": [f"{person}.tsv" for person in matrices]})
    rows.assign(kind="matrix").to_csv(root / "theirs" / "list.tsv", sep="\t", index=False)
    for kind, person in zip(STORED, list(sound)[SOUND:], strict=False):
        ending, damage, _ = STORED[kind]
        damage(*(next((root / "out").rglob(f"{label}_*{ending}")) for label in (person, "sub-01")))
        people[kind] = person
    table(root / "in" / "participants.tsv").assign(note="=cmd()").to_csv(
        root / "in" / "participants.tsv", sep="\t", index=False
    )
    assert run_group(root / "in", root / "out", *CHOICES) == 0
    assert run_group(root / "in", root / "listed", "-d", f"list={root / 'theirs' / 'list.tsv'}", *CHOICES) == 0
    return root, people, sound


@pytest.mark.parametrize("kind", [*STORED, *MATRICES])
def test_what_was_damaged_is_named_or_leaves_fc_as_it_was(group, kind):
    root, people, sound = group
    out, words = (root / "out", STORED[kind][2]) if kind in STORED else (root / "listed", MATRICES[kind][1])
    excluded, person = table(out / "group" / "excluded.tsv"), people[kind]
    used = person in set(table(out / "group" / "scans.tsv")["participant_id"])
    assert used == (not words)
    assert words in " ".join(excluded.loc[excluded["participant_id"] == person, "reason"])
    if used:
        (ours,) = out.rglob(f"{person}_*{FC}.npy")
        assert np.nanmax(np.abs(read_series(ours)[0] - sound[person][0])) < SAME


def test_a_formula_in_a_cell_is_run_by_no_spreadsheet(group):
    assert run_by_spreadsheet(group[0] / "out" / "group") == []
