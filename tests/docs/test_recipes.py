"""The recipes of docs/architecture.md, followed to the letter in a copy of the package, give what they promise."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fcpower_bids.imaging.atlas.builtin import builtin_atlas
from fcpower_bids.outputs.tables import read_json, read_table
from fcpower_bids.settings import LEVELS
from tests.docs.conftest import QUICK, SPACE
from tests.docs.pages import DOCS, ROOT, read

NEW = ("signed_root", "quadratic", "smoothness", "mean-edges", "scan_minutes", "six", "Mine60")


def steps() -> Iterator[tuple[str, str]]:
    """Path and content of every file of the recipes; of a registry, the line to add."""
    recipes = read(DOCS / "architecture.md").partition("## Six recipes")[2].partition("\n## ")[0]
    for name in re.findall(r"\]\(examples/recipes/(\S+)\)", recipes):
        yield f"fcpower_bids/{name}", read(DOCS / "examples" / "recipes" / name)
    for line, folder in re.findall(r'^("[\w-]+": "fcpower_bids\.(\w+)\.[\w.]+:\w+",)$', recipes, re.M):
        yield f"fcpower_bids/{folder}/__init__.py", f"        {line}\n"


@pytest.fixture(scope="module")
def extended(tmp_path_factory) -> Path:
    """A folder with a copy of the package to which everything is added."""
    folder = tmp_path_factory.mktemp("extended")
    shutil.copytree(ROOT / "fcpower_bids", folder / "fcpower_bids", ignore=shutil.ignore_patterns("__pycache__"))
    for name, content in steps():
        path = folder / name
        if path.name == "__init__.py":
            opening = re.search(r"\n +\{\n", read(path))
            assert opening, f"{name} has a registry"
            path.write_text(read(path)[: opening.end()] + content + read(path)[opening.end() :])
        else:
            assert not path.exists(), f"{name} is new"
            path.write_text(content)
    return folder


def start(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_is_a_recipe_for_each_of_them():
    names = [name for name, _ in steps()]
    assert len(names) == 12
    assert sum(name.endswith("__init__.py") for name in names) == 5


def test_the_new_names_can_be_chosen(extended):
    shown = "".join(start(extended, "-m", "fcpower_bids", level, "--help-all") for level in LEVELS)
    assert [name for name in NEW if name not in shown] == ["smoothness", "Mine60"], (
        "an output, and atlases are too many"
    )


CONTRACTS = (
    *("tests/transforms/test_contracts.py", "tests/measures/test_contracts.py", "tests/encoders/test_contracts.py"),
    *("tests/analyses/test_contracts.py", "tests/test_contracts.py"),
    *("tests/cli/test_usage.py", "tests/docs/test_site.py"),
)
"""What has to stay green with a file and a line, and nothing else."""
UNTOUCHED = "test_the_gallery_draws or test_the_site_can_be_searched or test_files_and_functions_of_the_source"
"""What is dear and does not depend on what can be chosen."""
ABOUT_THE_NEW = "signed_root or quadratic or smoothness or mean-edges or scan_minutes"


def test_contracts_and_documentation_hold_with_nothing_else(extended):
    for name in ("tests", "docs", "scripts", "examples"):
        shutil.copytree(ROOT / name, extended / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, extended)
    plain = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    of_registries = start(extended, *plain, "-k", ABOUT_THE_NEW, *CONTRACTS[:5])
    assert int(re.search(r"(\d+) passed", of_registries)[1]) >= 20
    assert re.search(r"\b[1-9]\d* passed", start(extended, *plain, "-k", f"not ({UNTOUCHED})", *CONTRACTS[5:]))


def test_the_code_of_the_recipes_is_well_formed():
    checked = [sys.executable, "-m", "ruff", "check", "--quiet", "--stdin-filename"]
    for name, content in steps():
        if name.endswith(".py") and not name.endswith("__init__.py"):
            assert ast.get_docstring(ast.parse(content))
            done = subprocess.run(
                [*checked, name], cwd=ROOT, input=content, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout


def test_everything_is_written(extended, study):
    atlas = builtin_atlas(SPACE, extended / "made")
    place = extended / "atlases"
    place.mkdir()
    stem = f"tpl-{SPACE}_atlas-Mine_scale-60_dseg"
    shutil.copy(atlas.image, place / f"{stem}.nii.gz")
    shutil.copy(atlas.image.with_name(atlas.image.name.replace(".nii.gz", ".tsv")), place / f"{stem}.tsv")
    level = ["-m", "fcpower_bids", str(study / "bids"), str(extended / "out")]
    chosen = ["--atlas", "Mine60", "--atlas-dir", str(place), "--strategy", "six", "--transforms", "signed_root"]
    people = ["--participant-label", "01", "02", "--session-label", "a", "--encoder", "mean-edges", "--nprocs", "1"]
    start(extended, *level, "participant", *chosen, *people)
    start(extended, *level, "group", "--analyses", "scan_minutes", *QUICK)
    written = {path.name.partition("scale-60_res-2_")[2]: path for path in (extended / "out" / "sub-01").rglob("*.*")}
    relmat = written["stat-pearsoncorrelation_desc-signedroot_relmat.tsv"]
    assert read_json(relmat.with_suffix(".json"))["NuisanceStrategy"] == "six"
    assert list(read_table(written["desc-smoothness_qc.tsv"]).columns) == ["Node", "lag1"]
    assert "lag1" in read_json(written["desc-smoothness_qc.json"])
    page = read(extended / "out" / "sub-01.html")
    lag1 = read_table(written["desc-smoothness_qc.tsv"])["lag1"].astype(float)
    assert f"{lag1.median():.3f} ({lag1.min():.3f} to {lag1.max():.3f})" in page.partition(">Smoothness<")[2]
    assert "Embedding by mean-edges" in page
    assert read_json(written["desc-meanedges_embedding.json"])["name"] == "mean-edges"
    minutes = read_table(extended / "out" / "group" / "scan_minutes.tsv")
    assert list(minutes.columns) == ["participant_id", "minutes"]
    assert len(minutes) == 2
