"""``fcpower_bids model``: facts for the user of a saved model."""

from __future__ import annotations

import argparse
import sys
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
    given = list(sys.argv[1:] if argv is None else argv)
    options = build_parser().parse_args(given[1:] if given[:1] == ["show"] and len(given) > 1 else given)
    from fcpower_bids.slices.clinic.folder import load_model  # loads numpy, after the limits of threads are set

    _, facts, _ = load_model(options.model)
    for label, value in describe(facts):
        print(f"{label:<22} {value}")  # noqa: T201
    return 0


def describe(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the card of a model as labels and values."""
    from fcpower_bids.slices.clinic.folder import say_signed  # loads numpy, after the limits of threads
    from fcpower_bids.slices.clinic.skill import say_in_full  # loads numpy, after the limits of threads

    interval, made = facts["Interval"], facts["Preprocessing"]
    classes = f" ({facts['PositiveClass']} against {facts['NegativeClass']})" if facts["PositiveClass"] else ""
    sites = ", ".join(f"{name} {n}" for name, n in facts["Sites"].items())
    rows = [
        ("skill", say_in_full(facts)),
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
            ("interval", f"+/-{_each(interval['RadiusOfParts'], 1)} for {interval['HoldsFor']}"),
            ("coverage claimed", f"{100 * interval['NominalCoverage']:.0f} %"),
            (
                "coverage measured",
                f"{100 * interval['MeasuredCoverage']:.0f} % on what was held out ({interval['Groups']} groups, "
                f"the worst {100 * interval['LeastCoverageOfAGroup']:.0f} %)",
            ),
            (
                "by predicted value",
                f"{_each(interval['CoverageByThirdOfPrediction'], 100)} % (lowest to highest third)",
            ),
            ("by known value", f"{_each(interval['CoverageByThirdOfValue'], 100)} % (lowest to highest third)"),
        ]
    rows += _scores(facts)
    if "NewSiteRadius" in interval:
        rows.append(("at an unlike site", f"+/-{interval['NewSiteRadius']:.4g}"))
    return [
        *rows,
        ("made with", f"fcpower_bids {facts['SoftwareVersion']}"),
        ("signed", say_signed(facts)),
        ("caution", facts["Caution"]),
    ]


def _scores(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How well people of every held-out site were predicted, else of every fold."""
    kinds = facts.get("HeldOutScores", {})  # models of earlier versions have none
    kind = "site" if len(kinds.get("site", {})) > 1 else "fold"
    return [(f"held-out {kind} {name}", _score(one)) for name, one in kinds.get(kind, {}).items()]


def _score(one: Mapping[str, Any]) -> str:
    name = "auc" if "auc" in one else "r"
    value = "not defined" if one[name] is None or one[name] != one[name] else f"{one[name]:.2f}"
    off = f", off by {one['MeanError']:+.3g} on average and {one['MAE']:.3g} in size" if "MAE" in one else ""
    return f"{name} {value}{off} ({one['Scans']:.0f} scans)"


def _each(values: Sequence[float], factor: float) -> str:
    return ", ".join(f"{factor * one:.3g}" for one in values)


def _range(ends: Sequence[float], divisor: float = 1) -> str:
    return f"{ends[0] / divisor:.4g} to {ends[1] / divisor:.4g}" if ends else "not known"
