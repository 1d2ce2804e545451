"""Write the table of all options into docs/usage.md: ``python -m scripts.options_table`` after a change of them."""

from __future__ import annotations

from pathlib import Path

from fcpower_bids.cli.options import option_fields
from fcpower_bids.settings import LEVELS
from fcpower_bids.settings.levels import is_read

PAGE = Path(__file__).parents[1] / "docs" / "usage.md"
BEGIN, END = "<!-- options -->\n", "<!-- end of options -->"


def options_table() -> str:
    """Two tables: the options of the command line with their levels, and the keys of the file."""
    shown = ["| option | of | meaning |", "|---|---|---|"]
    in_file = ["| key of the file | meaning |", "|---|---|"]
    for field in option_fields():
        default = field.default if field.default not in (None, (), False, "") else ""
        words = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
        text = field.metadata["text"].replace("|", "\\|") + (f" [{words}]" if words else "")
        if field.metadata["in_file"]:
            in_file.append(f"| `{field.name}` | {text} |")
        else:
            levels = "".join(level[0] for level in LEVELS if is_read(level, field.name, field.metadata["section"]))
            shown.append(f"| `--{field.name.replace('_', '-')}` | {levels} | {text} |")
    return "\n".join([*shown, "", *in_file]) + "\n"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{options_table()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
