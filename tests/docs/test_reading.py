"""What was written opens in other programs as they come: every file, and every example of the page about them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from tests.docs.conftest import PLANTED
from tests.docs.pages import DOCS, code_blocks, read
from tests.telling import telling

PAGE = read(DOCS / "reading.md")


@pytest.fixture(scope="module")
def place(study, tmp_path_factory) -> Path:
    """A folder in which ``OUT`` is an output folder with everything."""
    folder = tmp_path_factory.mktemp("reading")
    (folder / "OUT").symlink_to(study / "out")
    return folder


@pytest.fixture(scope="module")
def said(place) -> dict[str, Any]:
    """What the examples in Python leave behind."""
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for block in code_blocks(PAGE, "python"):
            exec(block, names)
    return names


def written(study: Path, pattern: str) -> list[Path]:
    out = study / "out"
    found = [path for path in sorted(out.rglob(pattern)) if path.relative_to(out).parts[0] != "work"]
    assert found, pattern
    return found


def power_of(study: Path) -> np.ndarray:
    (path,) = (study / "out/sub-01/ses-a/func").glob("*_scale-60_*_desc-power0p35_relmat.tsv")
    return np.genfromtxt(path, skip_header=1)[:, 1:]


def test_the_examples_in_python_run(said):
    assert said["fc"].shape == (60, 60)
    assert said["fc"].index.tolist() == said["fc"].columns.tolist() == said["parcels"]["name"].tolist()
    assert len(said["matrices"]) == len({one.path for one in said["matrices"]}) > 1
    inside = said["strength"].get_fdata()
    values = set(said["fc"].mean(axis=1).astype(np.float32).round(5))
    assert set(inside[inside != 0].astype(np.float32).round(5).tolist()) == {float(value) for value in values}
    assert said["model"]["weights"].shape == (60 * 59 // 2, 1)


@pytest.mark.parametrize(
    ("language", "program", "option"),
    [("r", "Rscript", "-e"), ("matlab", "matlab", "-batch"), ("matlab", "octave-cli", "--eval")],
    ids=["R", "MATLAB", "Octave"],
)
def test_the_example_in_another_language_runs(language, program, option, place, study):
    (script,) = code_blocks(PAGE, language)
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed here")
    done = subprocess.run([program, option, script], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows, columns, symmetric, scores, total = done.stdout.split()
    power = power_of(study)
    assert (int(rows), int(columns)) == power.shape
    assert symmetric in ("TRUE", "1")
    assert int(scores) == len(pd.read_csv(study / "out/group/prediction_summary.tsv", sep="\t"))
    assert float(total) == pytest.approx(power.sum(), rel=1e-5)


def test_pandas_reads_every_table_and_its_sidecar_describes_it(study):
    for path in written(study, "*.tsv"):
        table = pd.read_csv(path, sep="\t", na_values="n/a")
        assert len(table.columns), path
        assert not any(str(name).startswith("Unnamed") for name in table.columns), path


def test_images_arrays_and_weights_open_without_running_anything(study):
    for path in written(study, "*_dseg.nii.gz"):
        labels = np.unique(np.asarray(nibabel.load(path).dataobj))
        table = pd.read_csv(str(path).replace(".nii.gz", ".tsv"), sep="\t")
        assert set(labels) - {0} == set(table["index"])
    for path in written(study, "*.npz"):
        with np.load(path, allow_pickle=False) as arrays:
            assert all(np.asarray(arrays[name]).dtype != object for name in arrays)
    for path in written(study, "*.safetensors"):
        assert load_file(path)


def test_stock_pybids_opens_every_product_with_its_sidecar(study, place, said):
    layout = said["layout"]
    tables = [place / "OUT" / path.relative_to(study / "out") for path in written(study, "sub-*.tsv")]
    found = {one.path: one for one in layout.get(extension=".tsv", scope="all")}
    assert {str(path) for path in tables} <= set(found)
    assert {"relmat", "timeseries", "embedding", "eigenvalues", "bold", "qc", "outliers", "design"} == {
        found[str(path)].entities["suffix"] for path in tables
    }
    for path in tables:
        one, about = found[str(path)], json.loads(path.with_suffix(".json").read_text())
        known = {key: value for key, value in about.items() if value is not None}  # pybids leaves out null
        assert {key: one.get_metadata()[key] for key in known} == known
        names = dict(pair.split("-") for pair in path.stem.split("_")[:-1])
        own = {"subject": "sub", "session": "ses", "atlas": "atlas", "scale": "scale", "stat": "stat", "desc": "desc"}
        assert {key: one.entities[key] for key, short in own.items() if short in names} == {
            key: names[short] for key, short in own.items() if short in names
        }
    for encoder in {path.name.split("_desc-")[1] for path in written(study, "*_embedding.tsv")}:
        label = encoder.removesuffix("_embedding.tsv")
        assert layout.get(suffix="embedding", desc=label, atlas="coarse", extension=".tsv")


def test_nothing_outside_the_logs_names_a_place_a_user_or_a_machine(study):
    words = (str(study), str(Path.home()), PLANTED)
    for output in (study / "out", study / "one_session"):
        assert telling(output, words, "logs", "work") == set()
    assert {name for name, _ in telling(study / "out", words[:1], "work")} >= {
        "logs/settings.toml",
        "logs/settings_group.toml",
    }


def test_what_a_matrix_was_made_from_is_found_from_where_it_lies(study):
    for path in written(study, "*_relmat.json"):
        about = json.loads(path.read_text())
        for source in (*about["Sources"], *about["NodeFiles"]):
            assert source.startswith("bids::")
            assert (study / "out" / source.removeprefix("bids::")).is_file()
