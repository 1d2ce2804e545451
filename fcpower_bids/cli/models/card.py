"""``fcpower_bids model``: what the user of a saved model has to know."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fcpower_bids.cli.parser import Parser


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of this command."""
    parser = Parser(prog="fcpower_bids model", description=__doc__)
    parser.add_argument("model", type=Path, help="a folder of OUTPUT_DIR/group/models, made with --save-models")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Check the files of a model against their digests and print its card."""
    options = build_parser().parse_args(argv)
    from fcpower_bids.outputs.models import load_model  # loads numpy, after the limits of threads are set

    _, facts, _ = load_model(options.model)
    for label, value in describe(facts):
        print(f"{label:<22} {value}")  # noqa: T201
    return 0


def describe(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the card of a model as labels and values."""
    interval, made = facts["Interval"], facts["Preprocessing"]
    classes = f" ({facts['PositiveClass']} against {facts['NegativeClass']})" if facts["PositiveClass"] else ""
    sites = ", ".join(f"{name} {n}" for name, n in facts["Sites"].items())
    rows = [
        ("target", f"{facts['Target']}{classes}: {facts['Meaning']}"),
        ("predicted from", f"{facts['Representation']}, alpha {facts['Alpha']:g}, {len(facts['Parcels'])} parcels"),
        ("trained on", f"{facts['NumberOfPeople']} people, {facts['NumberOfScans']} scans"),
        ("sites", sites or "not named"),
        *((name, " or ".join(made[name])) for name in made),
        ("minutes", _range(facts["SecondsRange"], 60)),
        ("mean FD, mm", _range(facts["MeanFDRange"])),
        ("repetition time, s", _range(facts["RepetitionTimeRange"])),
        ("age", _range(facts["AgeRange"])),
        ("values", _range(facts["TargetRange"])),
    ]
    if not classes:
        rows += [
            ("interval", f"+/-{interval['Radius']:.4g} for {interval['HoldsFor']}"),
            ("coverage claimed", f"{100 * interval['NominalCoverage']:.0f} %"),
            (
                "coverage measured",
                f"{100 * interval['MeasuredCoverage']:.0f} % on what was held out ({interval['Groups']} groups, "
                f"the worst {100 * interval['LeastCoverageOfAGroup']:.0f} %)",
            ),
        ]
    if "NewSiteRadius" in interval:
        rows.append(("at an unlike site", f"+/-{interval['NewSiteRadius']:.4g}"))
    return [*rows, ("made with", f"fcpower_bids {facts['SoftwareVersion']}"), ("caution", facts["Caution"])]


def _range(ends: Sequence[float], divisor: float = 1) -> str:
    return f"{ends[0] / divisor:.4g} to {ends[1] / divisor:.4g}" if ends else "not known"
