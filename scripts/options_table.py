"""Write the table of all options into docs/usage.md: ``python -m scripts.options_table`` after a change of them."""

from __future__ import annotations

from pathlib import Path

from fcpower_bids.cli.options import help_text, option_fields
from fcpower_bids.settings import LEVELS
from fcpower_bids.settings.levels import is_read

PAGE = Path(__file__).parents[1] / "docs" / "usage.md"
BEGIN, END = "<!-- options -->\n", "<!-- end of options -->"


def options_table() -> str:
    """One row per option: name, levels that read it, default, meaning."""
    rows = ["| option | levels | default | meaning |", "|---|---|---|---|"]
    for field in option_fields():
        section = field.metadata["section"]
        levels = ", ".join(level for level in LEVELS if is_read(level, field.name, section))
        default = field.default if field.default not in (None, (), False, "") else ""
        words = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
        text = help_text(field).replace("|", "\\|")
        rows.append(f"| `--{field.name.replace('_', '-')}` | {levels} | {words} | {text} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{options_table()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
