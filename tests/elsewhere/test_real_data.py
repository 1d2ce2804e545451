"""Real connectomes in every form that people store give the same numbers; a wrong declaration is named."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat
from scipy.spatial.distance import squareform

from tests.elsewhere import sources
from tests.elsewhere.test_doors import identified, run_group, write_list, written

PARCELS = slice(0, 50)


def z_of(r: np.ndarray) -> np.ndarray:
    return np.arctanh(r - np.eye(len(r)))


FORMS = {
    "r": (lambda path, r: np.save(f"{path}.npy", r), ".npy", {}),
    "z": (lambda path, r: np.save(f"{path}.npy", z_of(r)), ".npy", {"scale": "z"}),
    "upper": (lambda path, r: np.savetxt(f"{path}.txt", np.triu(r)), ".txt", {}),
    "vector": (lambda path, r: np.save(f"{path}.npy", r[np.triu_indices(len(r), 1)]), ".npy", {"order": "upper"}),
    "matlab5": (
        lambda path, r: savemat(f"{path}.mat", {"v": squareform(r - np.eye(len(r)), checks=False)}),
        ".mat",
        {},
    ),
    "matlab73": (lambda path, r: sources.matlab73(Path(f"{path}.mat"), "fc", r), ".mat", {"key": "fc"}),
}


def list_of(folder: Path, forms: list[str], matrices: dict[str, np.ndarray]) -> Path:
    """A list of the matrices, in one form after the other."""
    folder.mkdir(exist_ok=True)
    rows = []
    for (key, r), form in zip(matrices.items(), itertools.cycle(forms), strict=False):
        save, ending, columns = FORMS[form]
        save(folder / key, r)
        person, _, session = key.partition("_")
        rows.append({"participant_id": person, "session_id": session, "path": f"{key}{ending}", **columns})
    return write_list(folder, rows)


@pytest.fixture(scope="module")
def stages(shared):
    """FC of the first eight people of STAGES with two sessions, in fifty parcels."""
    archive = np.load(shared / "data" / "stages" / "timeseries.npz")
    people = [key[:7] for key in archive.files if key.endswith("ses-2")][:8]
    keys = [f"{person}_ses-{number}" for person in people for number in (1, 2)]
    return {key: np.corrcoef(archive[key][:, PARCELS].astype(float).T) for key in keys}


def test_stages_identifies_alike_in_every_form(stages, tmp_path):
    found = []
    for name, forms in (("r", ["r"]), ("mixed", [form for form in FORMS if form != "r"])):
        (tmp_path / name).mkdir()
        code, out = run_group(tmp_path / name, "-d", f"list={list_of(tmp_path / name / 'list', forms, stages)}")
        assert code == 0
        for values, truth in zip(written(out).values(), stages.values(), strict=True):
            np.testing.assert_allclose(values, truth, rtol=0, atol=1e-10)
        found.append(identified(out).select_dtypes("number"))
    pd.testing.assert_frame_equal(*found, rtol=0, atol=1e-10)


WRONG = {
    "r as z": ("r", {"scale": "z"}, "declare it as r"),
    "z as r": ("z", {"scale": "r"}, "declare it as z"),
    "lower as upper": ("lower", {"order": "upper"}, "which no correlation matrix has"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_declaration_of_real_matrices_is_named(wrong, stages, tmp_path, capsys):
    form, columns, said = WRONG[wrong]
    if form == "lower":
        path = list_of(tmp_path / "lists", ["r"], stages)
        for key, r in stages.items():
            np.save(tmp_path / "lists" / f"{key}.npy", r[np.tril_indices(len(r), -1)])
    else:
        path = list_of(tmp_path / "lists", [form], stages)
    pd.read_csv(path, sep="\t").assign(**columns).to_csv(path, sep="\t", index=False)
    code, _ = run_group(tmp_path, "-d", f"list={path}")
    assert code == 3
    assert said in capsys.readouterr().err
