"""The option reference is the one that Settings gives."""

from __future__ import annotations

from fcpower_bids.cli.options import option_fields
from scripts.reference.usage import reference


def test_every_option_is_in_it_once():
    text = reference()
    assert [
        name for name in (field.name.replace("_", "-") for field in option_fields()) if text.count(f"| `--{name}`") != 1
    ] == []
