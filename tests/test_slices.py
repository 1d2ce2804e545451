"""A slice is a folder: without it all else imports, explains itself and shows its pages; a package can add one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fcpower_bids.plugins import SLICES

ROOT = Path(__file__).resolve().parents[1]
CHECKS = Path(__file__).with_name("without_slice.py")
PLUGIN = {
    "__init__": """
from fcpower_bids.plugins import Slice

SLICE = Slice(
    options={"count": "counting.options:CountChoices"},
    checks={"count": "counting.options:check_start"},
    analyses={"count": "counting.analysis:analyse"},
    sections={"count": "counting.analysis:PART"},
)
""",
    "options": """
from dataclasses import dataclass

from fcpower_bids.options import Choices, option


@dataclass(frozen=True)
class CountChoices(Choices):
    count_from: int = option(0, "group", "count: the first number", reader="count")


def check_start(settings):
    if settings.count_from > 9:
        yield "--count-from is too large."
""",
    "analysis": """
import pandas as pd

from fcpower_bids.records import Table
from fcpower_bids.reports.cohort.tables import Part, Section
from fcpower_bids.schema import Column, TableSpec, join_columns

COUNT = TableSpec("people_counted", "How many there are.", join_columns(Column.number("n", "People")), ())
TABLES = (COUNT,)


def analyse(cohort, settings):
    n = settings.count_from + cohort.scans["participant_id"].nunique()
    return {"people_counted": Table(pd.DataFrame({"n": [n]}), COUNT, {})}


def section(tables):
    rows = tables.rows("people_counted")
    return [Section("count", "Counting", (f"There are {rows['n'][0]}.",))] if len(rows) else []


PART = Part(section, "count", "Counting", 55)
""",
}


def run(code: str | Path, folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run Python with the package of a folder, and nothing of this checkout."""
    what = ["-c", code] if isinstance(code, str) else [str(code)]
    return subprocess.run(
        [sys.executable, *what, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )


def copy_package(folder: Path) -> Path:
    """Copy package and scripts; files are links to the same content."""
    for name in ("fcpower_bids", "scripts"):
        shutil.copytree(ROOT / name, folder / name, copy_function=os.link, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """A small output folder with tables of the group level, as any slice set writes them."""
    folder = tmp_path_factory.mktemp("outputs")
    made = run(CHECKS, ROOT, "outputs", folder)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.mark.parametrize("name", SLICES)
def test_nothing_misses_a_slice_whose_folder_is_removed(name, outputs, tmp_path):
    """No import leads nowhere; the help of each level, the reference and the page of a cohort are made."""
    package = copy_package(tmp_path)
    slices = package / "fcpower_bids" / "slices"
    shutil.rmtree(slices / name)
    (slices / name / "__pycache__").mkdir(parents=True)  # as git leaves the folder
    shutil.copytree(outputs, tmp_path / "made")
    done = run(CHECKS, package, name, tmp_path / "made")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["modules", "help", "completion", "reference", "page"]


def test_the_checks_notice_what_is_left_of_a_slice(outputs, tmp_path):
    package = copy_package(tmp_path)
    name = next(name for name in SLICES if (ROOT / "fcpower_bids" / "slices" / name / "page.py").is_file())
    (package / "fcpower_bids" / "slices" / name / "page.py").unlink()
    done = run(CHECKS, package, name, outputs)
    assert done.returncode != 0
    assert f"fcpower_bids.slices.{name}.page" in done.stderr


@pytest.fixture
def installed(tmp_path):
    """Another package with a slice, as pip installs it."""
    (tmp_path / "counting").mkdir()
    for name, text in PLUGIN.items():
        (tmp_path / "counting" / f"{name}.py").write_text(text)
    about = tmp_path / "counting-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[fcpower_bids.plugins]\ncounting = counting:SLICE\n")
    return tmp_path


def test_another_package_adds_an_analysis_an_option_and_a_section(installed):
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from fcpower_bids.analyses import ANALYSES, declared_tables
from fcpower_bids.cli.parser import build_parser, parse_settings
from fcpower_bids.reports.cohort.sections import page_parts
print("count" in ANALYSES, declared_tables("count")[0].name, "--count-from" in build_parser().format_help())
print(parse_settings(["a", "b", "group", "--analyses", "count", "--count-from", "3"]).count_from)
print([part.anchor for part in page_parts()][4:7])
parse_settings(["a", "b", "group", "--count-from", "10"])
"""
    done = run(code, installed)
    assert done.stdout.splitlines() == ["True people_counted True", "3", "['prediction', 'count', 'sites']"]
    assert "--count-from is too large." in done.stderr


def test_a_package_that_cannot_be_loaded_is_named(installed):
    (installed / "counting" / "__init__.py").write_text("import nothing_of_that_name\n")
    done = run(f"import sys; sys.path.insert(0, {str(ROOT)!r}); import fcpower_bids.settings", installed)
    assert "The plug-in 'counting' (counting:SLICE) cannot be loaded" in done.stderr
