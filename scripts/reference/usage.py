"""The option reference, generated from Settings.

``python -m scripts.reference.usage`` prints it; ``make docs`` appends it to ``docs/usage.md`` in the site.
"""

from __future__ import annotations

import sys
from typing import Any

from fcpower_bids.cli.options import is_list, option_fields, or_choices, scalar_type
from fcpower_bids.settings import SECTIONS


def reference() -> str:
    """Return the option reference as Markdown."""
    parts = []
    for section, title in SECTIONS.items():
        rows = [_row(field) for field in option_fields() if field.metadata["section"] == section]
        parts.append(
            "\n".join([f"## {title}\n", "| option | values | default | meaning |", "|---|---|---|---|", *rows])
        )
    return "\n\n".join(parts) + "\n"


def _row(field: Any) -> str:
    names = ["--" + field.name.replace("_", "-"), *field.metadata["flags"]]
    text = field.metadata["text"].replace("|", "\\|")
    return f"| {', '.join(f'`{name}`' for name in names)} | {_values(field)} | {_default(field)} | {text} |"


def _values(field: Any) -> str:
    if field.metadata["choices"]:
        return " ".join(f"`{choice}`" for choice in field.metadata["choices"])
    kind = scalar_type(field.name)
    name = {bool: "switch", int: "whole number", float: "number", str: "text"}.get(kind, "path")
    name = " ".join([name, *(f"`{word}`" for word in or_choices(field))])
    return f"one or more: {name}" if is_list(field.name) else name


def _default(field: Any) -> str:
    if field.default in (None, (), False):
        return ""
    shown = field.default if isinstance(field.default, tuple) else (field.default,)
    return " ".join(f"`{value}`" for value in shown)


if __name__ == "__main__":
    sys.stdout.write(reference())
