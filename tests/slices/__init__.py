"""Tests of the slices, a folder each, which go with the folder of the slice."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent


def sentences_of_slices() -> tuple:
    """Sentences of the pages of all slices that are there, each with its check."""
    names = [path.parent.name for path in sorted(HERE.glob("*/sentences.py"))]
    return tuple(one for name in names for one in import_module(f"tests.slices.{name}.sentences").SENTENCES)
