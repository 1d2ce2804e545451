"""Who may import what, who may touch files, and why an import comes late; what breaks a contract is found."""

from __future__ import annotations

import ast
import configparser
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.contracts import file_access, imports_without_reason

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "fcpower_bids"
MODULES = sorted(PACKAGE.rglob("*.py"))
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"

MAY_TOUCH_FILES = {
    "workers": "whether there is a home",
    "store": "the one place that writes files whole",
    "claims": "who is at work on what",
    "ondisk": "arrays that do not have to be in memory",
    "cli": "the paths of the command line",
    "cohort": "what the participant level wrote, and the cache",
    "data/models": "loads a released model where this program is not installed",
    "demo": "the demo dataset",
    "encoders/checkpoints": "weights",
    "executors": "what workers share, while they work",
    "encoders/checkpoint_files": "published weights",
    "encoders/statistics": "statistics of a cohort",
    "imaging": "images, atlases, confounds",
    "inputs": "the derivatives",
    "interfaces": "between the nodes",
    "outputs": "the outputs",
    "reports": "templates, and tables that were written",
    "plugins": "which packages are installed",
    "slices/clinic": "models and tables of new people",
    "slices/elsewhere": "files of other programs",
    "slices/plan": "the plan, and the journal of results",
    "slices/pretraining": "corpus, checkpoints, and a model that is to be published",
    "slices/published_encoders": "statistics, and tables of parcels",
    "slices/sharing": "copies of the outputs",
    "workflows": "work folders",
}
FOR_ALL = {"numpy"}
"""Packages that every room may import."""


def lint(folder: Path) -> str:
    command = [sys.executable, "-c", LINT, "--no-cache"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return " ".join((done.stdout + done.stderr).split())


def third_party() -> set[str]:
    found = set()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            found |= {name.partition(".")[0] for name in names}
    return (
        found - sys.stdlib_module_names - {"fcpower_bids", "tomllib"}
    )  # tomllib: of the standard library from 3.11 on


def test_every_package_of_others_has_an_allow_list():
    settings = configparser.ConfigParser()
    settings.read_string(contracts_of_what_is_there(planted=()))
    contracts = [settings[name] for name in settings.sections() if name.startswith("importlinter:contract:")]
    listed = {name for one in contracts if one["type"] == "protected" for name in one["protected_modules"].split()}
    assert third_party() - FOR_ALL == listed


def test_only_some_rooms_touch_files():
    places = {path.relative_to(PACKAGE).with_suffix("").as_posix(): path for path in MODULES}
    rest = [place for place in places if not f"{place}/".startswith(tuple(f"{room}/" for room in MAY_TOUCH_FILES))]
    assert {place: found for place in rest if (found := file_access(places[place].read_text()))} == {}


def test_no_permission_to_touch_files_is_left_over():
    for allowed in MAY_TOUCH_FILES:
        paths = [PACKAGE / f"{allowed}.py", *(PACKAGE / allowed).rglob("*.py")]
        there = [path for path in paths if path.is_file()]
        assert not there or any(file_access(path.read_text()) for path in there), allowed


def test_an_import_inside_a_function_says_why():
    found = {str(path.relative_to(ROOT)): imports_without_reason(path.read_text()) for path in MODULES}
    assert {name: imports for name, imports in found.items() if imports} == {}


def test_the_network_has_one_door_of_our_own():
    callers = [
        path.stem for path in MODULES if re.search(r"^(from|import) (urllib\.request|http)", path.read_text(), re.M)
    ]
    assert callers == ["templateflow"]


PLANTED = {
    "core/connectome/spd.py": "pandas",
    "cohort/assembly.py": "nibabel",
    "measures/quality.py": "nilearn",
    "outputs/tables.py": "matplotlib",
    "cli/options.py": "jinja2",
    "analyses/prediction/prediction.py": "sklearn",
    "imaging/confounds/cleaning.py": "nipype",
    "cohort/scans.py": "bids",
    "reports/kit/methods.py": "huggingface_hub",
    "workflows/group.py": "lightning",
    "outputs/status.py": "torch",
    "imaging/atlas/loading.py": "templateflow",
    "transforms/power.py": "yaml",
    "records/recordings.py": "tqdm",
    "reports/cohort/page.py": "requests",
    "analyses/engine/people.py": "fcpower_bids.outputs.tables",
    "core/signal/filtering.py": "fcpower_bids.imaging.grids",
}
"""Module of a copy of the package, and what it must not import."""


def contracts_of_what_is_there(planted: Collection[str]) -> str:
    """``setup.cfg`` without slices whose folder is removed, and without contracts that named no other importer."""
    there = {path.parent.name for path in PACKAGE.glob("slices/*/__init__.py")}
    lines = (ROOT / "setup.cfg").read_text().splitlines()
    named = [re.match(r"    fcpower_bids\.slices\.(\w+)", line) for line in lines]
    kept = [line for line, name in zip(lines, named, strict=True) if not name or name[1] in there]
    parts = re.split(r"(?m)^(?=\[)", "\n".join(kept) + "\n")
    empty = {part for part in parts if part.rstrip().endswith("allowed_importers =")}
    return "".join(part for part in parts if part not in empty or {*planted} & {*part.split()})


@pytest.fixture(scope="module")
def broken(tmp_path_factory) -> str:
    """What the contracts say of a copy with every planted import, half of them hidden in functions, and a circle."""
    folder = tmp_path_factory.mktemp("broken")
    (folder / "setup.cfg").write_text(contracts_of_what_is_there(PLANTED.values()))
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__", "data"))
    for number, (name, imported) in enumerate(PLANTED.items()):
        path = folder / PACKAGE.name / name
        late = f"\n\ndef _late():\n    import {imported}\n"
        path.write_text(path.read_text() + (late if number % 2 else f"\nimport {imported}\n"))
    atlas = folder / PACKAGE.name / "imaging" / "atlas" / "tables.py"
    atlas.write_text(atlas.read_text() + "\nimport fcpower_bids.imaging.series.voxels\n")
    return lint(folder)


@pytest.mark.parametrize(("name", "imported"), PLANTED.items())
def test_a_forbidden_import_is_named(broken, name, imported):
    module = "fcpower_bids." + name.removesuffix(".py").replace("/", ".")
    assert f"{module} -> {imported}" in broken


def test_a_circle_is_named(broken):
    assert "No cycles are allowed in fcpower_bids.imaging." in broken


@pytest.mark.parametrize(
    "line",
    [
        "text = open('a').read()",
        "text = Path('a').read_text()",
        "values = np.load('a.npy')",
        "frame = pd.read_csv('a')",
        "numpy.savez('a', b=1)",
        "path.mkdir()",
        "urlopen('b')",
    ],
)
def test_a_call_that_touches_files_is_seen(line):
    assert file_access(f"def f():\n    {line}\n")


def test_other_calls_are_no_files():
    assert not file_access("frame.to_csv()\nmodel.load(1)\nname.replace('a', 'b')\nframe.rename(columns={})\n")


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("def f():\n    import torch\n", ["2: import torch"]),
        ("def f():\n    import torch  # large\n", []),
        ("def f():\n    # large\n    import torch\n    import os\n", []),
        ("def f():\n    import torch  # type: ignore\n", ["2: import torch  # type: ignore"]),
        (
            "def f():\n    try:\n        from a import b\n    except ImportError:\n        pass\n",
            ["3: from a import b"],
        ),
        ("import torch\n", []),
    ],
)
def test_a_late_import_without_a_reason_is_seen(source, faults):
    assert imports_without_reason(source) == faults
