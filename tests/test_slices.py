"""A slice is a folder: without it all else imports, explains itself and shows its pages; a package can add one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fcpower_bids import plugins
from fcpower_bids.errors import UsageError
from fcpower_bids.plugins import SLICES
from fcpower_bids.settings import Settings
from fcpower_bids.workflows.cohorts import import_sources

ROOT = Path(__file__).resolve().parents[1]
CHECKS = Path(__file__).with_name("without_slice.py")
WITH_PAGE = next(name for name in SLICES if (ROOT / "fcpower_bids" / "slices" / name / "page.py").is_file())
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


@pytest.fixture(scope="module")
def copies(outputs, tmp_path_factory):
    """A copy of the package without each slice, and one that lacks no more than the page of a slice, all walked."""
    folder, made = tmp_path_factory.mktemp("copies"), tmp_path_factory.mktemp("made")
    for name in (*SLICES, "left_over"):
        slices = copy_package(folder / name) / "fcpower_bids" / "slices"
        if name == "left_over":
            (slices / WITH_PAGE / "page.py").unlink()
        else:
            shutil.rmtree(slices / name)
            (slices / name / "__pycache__").mkdir(parents=True)  # as git leaves the folder
        shutil.copytree(outputs, made / name)
    walked = run(CHECKS, folder, folder, made)
    assert walked.returncode == 0, walked.stderr
    return folder


@pytest.mark.parametrize("name", SLICES)
def test_nothing_misses_a_slice_whose_folder_is_removed(name, copies):
    """No import leads nowhere; the help of each level, the reference and the page of a cohort are made."""
    failed = copies / name / "failed"
    assert not failed.exists(), failed.read_text()
    assert (copies / name / "done").read_text().split() == ["modules", "help", "completion", "reference", "page"]


def test_the_checks_notice_what_is_left_of_a_slice(copies):
    assert f"fcpower_bids.slices.{WITH_PAGE}.page" in (copies / "left_over" / "failed").read_text()


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
print([part.anchor for part in page_parts() if part.anchor != "plan"][4:7])
parse_settings(["a", "b", "group", "--count-from", "10"])
"""
    done = run(code, installed)
    assert done.stdout.splitlines() == ["True people_counted True", "3", "['prediction', 'count', 'sites']"]
    assert "--count-from is too large." in done.stderr


def test_a_package_that_cannot_be_loaded_is_named(installed):
    (installed / "counting" / "__init__.py").write_text("import nothing_of_that_name\n")
    done = run(f"import sys; sys.path.insert(0, {str(ROOT)!r}); import fcpower_bids.settings", installed)
    assert "The plug-in 'counting' (counting:SLICE) cannot be loaded" in done.stderr


def test_a_package_may_not_take_a_name_that_is_known(installed):
    init = installed / "counting" / "__init__.py"
    init.write_text(init.read_text().replace('"count"', '"prediction"').replace("'count'", "'prediction'"))
    done = run(f"import sys; sys.path.insert(0, {str(ROOT)!r}); import fcpower_bids.analyses", installed)
    assert "Two places have the name 'prediction' (analyses)" in done.stderr


def test_derivatives_at_group_level_are_refused_where_no_slice_reads_them(monkeypatch, tmp_path):
    monkeypatch.setattr(plugins, "slices", lambda: ())
    with pytest.raises(UsageError, match="nothing that reads --derivatives at group level"):
        import_sources(Settings(tmp_path, tmp_path / "out", "group", derivatives=("xcpd=there",)))
    import_sources(Settings(tmp_path, tmp_path / "out", "group"))


def test_the_readme_of_a_slice_names_its_files_and_no_other():
    for folder in (ROOT / "fcpower_bids" / "slices").glob("*/"):
        if not (folder / "README.md").is_file():
            continue
        named = set(re.findall(r"`(\w+\.py)`", (folder / "README.md").read_text()))
        there = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
        assert named <= there, folder.name
        assert {name for name in there - named if not name.endswith("_command.py")} == set(), folder.name
