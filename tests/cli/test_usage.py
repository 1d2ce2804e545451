"""The option reference in docs/ is the one that Settings gives."""

from __future__ import annotations

from pathlib import Path

from fcpower_bids.cli.options import option_fields
from scripts.reference.usage import reference

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_reference_on_disk_is_up_to_date():
    assert (DOCS / "usage.md").read_text(encoding="utf-8") == reference()


def test_every_option_is_in_it():
    text = reference()
    assert not [field.name for field in option_fields() if f"`--{field.name.replace('_', '-')}`" not in text]
