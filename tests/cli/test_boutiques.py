"""The Boutiques descriptor is that of the settings, valid to Boutiques itself, and its command lines are ours."""

from __future__ import annotations

import json
import shlex

import pytest

from fcpower_bids.cli.options import option_fields
from fcpower_bids.cli.parser import parse_settings
from scripts.reference.boutiques import descriptor, descriptor_text
from tests.docs.pages import ROOT

boutiques = pytest.importorskip("boutiques", reason="boutiques is not installed (pip install -e '.[test]')")
PATH = ROOT / "boutiques.json"


def test_the_file_is_that_of_the_settings():
    assert PATH.read_text(encoding="utf-8") == descriptor_text(), (
        "write it anew: python -m scripts.reference.boutiques > boutiques.json"
    )
    named = {one["id"] for one in json.loads(PATH.read_text())["inputs"]}
    assert named == {"bids_dir", "output_dir", "level", *(field.name for field in option_fields())}


def test_boutiques_finds_it_valid_and_a_faulty_one_not():
    from boutiques.validator import DescriptorValidationError, validate_descriptor

    validate_descriptor(descriptor())
    faulty = descriptor()
    faulty["inputs"][3]["type"] = "Word"
    with pytest.raises(DescriptorValidationError):
        validate_descriptor(faulty)


def test_a_command_line_that_boutiques_makes_is_read_as_it_was_meant(tmp_path):
    chosen = {
        "targets": ["age", "iq"],
        "alpha": "nested",
        "repeats": 3,
        "stratify": True,
        "min_time": 90.5,
        "combine_runs": "concat",
        "participant_label": ["01", "02"],
    }
    invocation = tmp_path / "invocation.json"
    places = {"bids_dir": str(tmp_path / "in"), "output_dir": str(tmp_path / "out"), "level": "group"}
    invocation.write_text(json.dumps({**places, **chosen}))
    made = boutiques.bosh(["exec", "simulate", str(PATH), "-i", str(invocation)])
    line = made.shell_command if hasattr(made, "shell_command") else str(made)
    settings = parse_settings(shlex.split(line)[1:])
    typed = "--targets age iq --alpha nested --repeats 3 --stratify --min-time 90.5 --combine-runs concat"
    words = [*places.values(), *typed.split(), "--participant-label", "01", "02"]
    assert settings == parse_settings(words)
