"""The house keeps its shape: import costs, sizes, declared tables."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.records import Table
from fcpower_bids.schema import TABLES

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "fcpower_bids"
HEAVY = ("torch", "nipype", "nilearn", "bids", "sklearn", "pandas", "matplotlib", "PIL", "nibabel", "templateflow")
HEAVY += ("scipy", "numpy")
PARTICIPANT = """
from importlib import import_module
from fcpower_bids.workflows import participant
from fcpower_bids.reports import person as page
from fcpower_bids.workflows.recording import LAZY
for module in LAZY:
    import_module(module)
"""


def loaded_by(code: str) -> set[str]:
    probe = f"import sys\n{code}\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import fcpower_bids",
        "import fcpower_bids.core.connectome, fcpower_bids.core.series",
        "from fcpower_bids.cli.parser import build_parser; build_parser().format_help()",
        "from fcpower_bids.cli.parser import parse_settings; parse_settings(['a', 'b', 'participant'])",
    ],
)
def test_light_things_load_nothing_heavy(code):
    assert loaded_by(code) <= ({"scipy", "numpy"} if "core" in code else set())


def test_recordings_and_their_pages_need_no_plotting_and_no_pybids():
    assert loaded_by(PARTICIPANT) == {"nipype", "pandas", "nibabel", "scipy", "numpy"}
    assert "torch" not in loaded_by("import fcpower_bids.encoders.checkpoints")


MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = {path: path.read_text(encoding="utf-8") for path in MODULES}
TREES = {path: ast.parse(text) for path, text in SOURCES.items()}


def test_modules_stay_small_and_explain_themselves():
    assert not [str(path) for path, text in SOURCES.items() if len(text.splitlines()) > 500]
    assert not [str(path) for path, tree in TREES.items() if not ast.get_docstring(tree)]


def test_every_sort_of_a_table_is_stable():
    """Rows with equal keys keep their order: that of a file, of its columns, of the person."""
    for path in (each for each in MODULES if "sort_values" in SOURCES[each]):
        calls = [node for node in ast.walk(TREES[path]) if isinstance(node, ast.Call)]
        for call in (each for each in calls if getattr(each.func, "attr", "") == "sort_values"):
            kinds = [getattr(each.value, "value", None) for each in call.keywords if each.arg == "kind"]
            assert kinds == ["stable"], f"{path}, line {call.lineno}"


def test_a_column_that_nobody_has_declared_is_a_slip_of_ours():
    for columns in (["analysis", "state", "reason", "more"], ["analysis", "state"]):
        with pytest.raises(TypeError, match="left_out"):
            Table(pd.DataFrame(np.zeros((1, len(columns))), columns=columns), TABLES["left_out"])
