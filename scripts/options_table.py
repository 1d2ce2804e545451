"""Write the table of all options into docs/usage.md: ``python -m scripts.options_table`` after a change of them."""

from __future__ import annotations

from pathlib import Path

from fcpower_bids.cli.parser import options

PAGE = Path(__file__).parents[1] / "docs" / "usage.md"
BEGIN, END = "<!-- options -->\n", "<!-- end of options -->"


def options_table() -> str:
    """Two tables: the options of the command line with their levels, and the keys of the file."""
    shown = ["| option | of | meaning |", "|---|---|---|"]
    in_file = ["| key of the file | meaning |", "|---|---|"]
    for option in options().values():
        default = option.default if option.default not in (None, (), False, "") else ""
        words = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
        text = option.text.replace("|", "\\|") + (f" [{words}]" if words else "")
        if option.in_file:
            in_file.append(f"| `{option.name}` | {text} |")
        else:
            levels = "".join(level[0] for level in option.levels)
            shown.append(f"| `{option.flag}` | {levels} | {text} |")
    return "\n".join([*shown, "", *in_file]) + "\n"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{options_table()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
