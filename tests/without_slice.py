"""What the program does without a slice; run as a program by `tests/test_slices.py`, in a copy of the package.

``without_slice.py SLICE FOLDER`` prints each thing that went well; ``without_slice.py outputs FOLDER`` makes the
outputs that the page is made from.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

OPTIONAL = {"torch", "lightning", "dask", "distributed", "cloudpickle", "templateflow", "nipype", "brainmarks"}


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


def import_modules() -> Iterator[str]:
    """Import every module whose packages are installed."""
    import fcpower_bids

    for module in pkgutil.walk_packages(fcpower_bids.__path__, "fcpower_bids."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if str(error.name).partition(".")[0] not in OPTIONAL:
                    raise
    yield "modules"


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


if __name__ == "__main__":
    name, folder = sys.argv[1], Path(sys.argv[2])
    if name == "outputs":
        make_outputs(folder)
    else:
        for done in (*import_modules(), *explain(), *refer(), *show(folder)):
            assert not any(one.startswith(f"fcpower_bids.slices.{name}") for one in sys.modules)
            print(done)
