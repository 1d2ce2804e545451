"""What the program does without a slice; run as a program by `tests/test_slices.py`, on copies of the package.

``without_slice.py FOLDER OUTPUTS`` takes each copy ``FOLDER/SLICE`` in a process of its own, and writes there what
went well (``done``) and what did not (``failed``); ``without_slice.py outputs FOLDER`` makes the outputs that the page
is made from.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

PLACE = re.compile(r"fcpower_bids(\.\w+)+:\w+")


def make_outputs(folder: Path) -> None:
    """Write the tables that every analysis of a small cohort leaves."""
    from fcpower_bids.settings import Settings
    from tests.reports.group_outputs import SETTINGS, make_cohort, write_further, write_group

    settings = Settings(folder / "bids", folder / "out", "group", scan_minutes=(1.0,), sample_sizes=(6,))
    settings = replace(settings, **SETTINGS | {"folds": 2, "inner_folds": 2, "repeats": 1, "permutations": 3})
    cohort = make_cohort(n_people=14, n_parcels=6)
    write_group(settings, cohort, ("prediction", "fingerprinting", "edges", "qc_fc"))
    write_further(settings, cohort)
    settings.results_record.parent.mkdir(parents=True, exist_ok=True)
    settings.results_record.write_text(settings.as_toml())


def find_imports(root: Path) -> Iterator[str]:
    """Follow every import of the package, and every place that is written as text, to a file that is there."""
    for path in sorted(root.glob("fcpower_bids/**/*.py")):
        for name in imports_of(path.read_text(encoding="utf-8")):
            place = root.joinpath(*name.split("."))
            assert place.with_suffix(".py").is_file() or place.is_dir(), f"{path} needs {name}"
    yield "modules"


@cache
def imports_of(text: str) -> tuple[str, ...]:
    """Modules of the package that a module imports, or names as ``"package.module:attribute"``."""
    return tuple(_imports_of(text))


def _imports_of(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fcpower_bids"):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.startswith("fcpower_bids"))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and PLACE.fullmatch(node.value):
            yield node.value.partition(":")[0]


def explain() -> Iterator[str]:
    """Build the help of each level, and all that the shell completes."""
    from fcpower_bids.cli.help import help_for
    from fcpower_bids.cli.parser import build_parser
    from fcpower_bids.cli.run import commands, parser_of
    from fcpower_bids.settings import LEVELS

    for level in LEVELS:
        assert len(help_for(["a", "b", level, "--help-all"], build_parser()).splitlines()) > 20
    yield "help"
    assert all(parser_of([command]).prog for command in (*commands(), "a"))
    yield "completion"


def refer() -> Iterator[str]:
    """Build the reference of options and tables."""
    from scripts.reference.boutiques import descriptor
    from scripts.reference.group_tables import describe_tables
    from scripts.reference.usage import reference

    assert reference()
    assert describe_tables()
    assert descriptor()
    yield "reference"


def show(folder: Path) -> Iterator[str]:
    """Make the page of a cohort, from tables that the slice has written among others."""
    from fcpower_bids.reports.cohort.page import write_group_report
    from fcpower_bids.settings import Settings

    text = write_group_report(Settings(folder / "bids", folder / "out", "group")).read_text(encoding="utf-8")
    assert "planted" in text
    assert "could not be made" not in text
    yield "page"


def walk(copy: Path, outputs: Path) -> None:
    """Do all of it in a copy of the package, whose name is that of the slice that it lacks."""
    sys.path.insert(0, str(copy))
    os.chdir(copy)
    for done in (*find_imports(copy), *explain(), *refer(), *show(outputs)):
        assert not any(one.startswith(f"fcpower_bids.slices.{copy.name}") for one in sys.modules)
        with Path("done").open("a") as file:
            file.write(f"{done}\n")


def main(folder: Path, outputs: Path) -> None:
    """Fork for each copy, after the imports that all of them need."""
    for name in ("jinja2", "nibabel", "pandas", "scipy.linalg", "scipy.stats", "yaml"):
        import_module(name)
    for copy in sorted(folder.iterdir()):
        for path in copy.glob("fcpower_bids/**/*.py"):
            imports_of(path.read_text(encoding="utf-8"))  # kept for the next copy
        if not (child := os.fork()):
            try:
                walk(copy, outputs / copy.name)
            except BaseException:
                Path(copy, "failed").write_text(traceback.format_exc())
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    if sys.argv[1] == "outputs":
        make_outputs(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
