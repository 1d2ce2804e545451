"""Write the lists of all options into docs/usage.md: ``python -m scripts.options_table`` after a change of them."""

from __future__ import annotations

from pathlib import Path

from fcpower_bids.settings import LEVELS, options

PAGE = Path(__file__).parents[1] / "docs" / "usage.md"
BEGIN, END = "<!-- options -->\n", "<!-- end of options -->"


def options_table() -> str:
    """A list for the options of the same levels, and one of the keys of the file."""
    lists: dict[str, list[str]] = {}
    for option in options().values():
        default = option.default if option.default not in (None, (), False, "") else ""
        words = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
        text = option.text + (f" [{words}]" if words else "")
        levels = "all levels" if len(option.levels) == len(LEVELS) else " and ".join(option.levels)
        rows = lists.setdefault("keys of the file" if option.in_file else levels, [])
        rows.append(f"- `{option.name if option.in_file else option.flag}`: {text}")
    order = ["all levels", "participant", "participant and group", "group", "group and pretrain", "pretrain"]
    parts = [f"### {name.capitalize()}\n\n" + "\n".join(lists[name]) for name in [*order, "keys of the file"]]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{options_table()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
