"""The guide to the paper names every analysis, and no analysis, option or table that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from fcpower_bids.analyses import ANALYSES
from fcpower_bids.cli.options import option_fields

TEXT = (Path(__file__).resolve().parents[1] / "docs" / "paper.md").read_text(encoding="utf-8")
GROUP_LEVEL = set(ANALYSES) - {"qc_fc", "harmonisation", "edges"}  # the paper has no such tables


def test_every_analysis_of_the_paper_is_a_command():
    named = set(re.findall(r"--analyses ([a-z_]+)", TEXT)) - {"all"}
    assert named >= GROUP_LEVEL
    assert named <= set(ANALYSES)


def test_every_option_exists():
    options = {f"--{field.name.replace('_', '-')}" for field in option_fields()}
    ours = "\n".join(line for line in TEXT.splitlines() if "benchmarks" not in line)
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", ours)) <= options


def test_every_table_is_written_by_some_analysis():
    package = Path(__file__).resolve().parents[1] / "fcpower_bids"
    source = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    rows = [line.split("|") for line in TEXT.splitlines() if "--analyses" in line and line.count("|") == 4]
    tables = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row[3])}
    assert len(tables) > 20
    unknown = {
        name for name in tables if f'"{name}"' not in source and f'"{name.removesuffix("_folds")}"' not in source
    }
    assert unknown == set()
