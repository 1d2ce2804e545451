"""The command, with options that are set in a file alone given as if the command line had them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from fcpower_bids import app
from fcpower_bids.cli import parser
from fcpower_bids.clinic import fit
from fcpower_bids.settings import Settings, options


def in_file(words: Sequence[object]) -> list[str]:
    """Move options that are set in a file alone from a command line into a file."""
    rest, moved, given = [], {}, [str(word) for word in words]
    if given[:1] and given[0] in app.COMMANDS:
        return given
    while given:
        word = given.pop(0)
        name = word[2:].replace("-", "_") if word.startswith("--") else ""
        option = options().get(name)
        if option is None or not option.in_file:
            rest.append(word)
            continue
        values = []
        while given and not (given[0].startswith("-") and not given[0][1:2].isdigit()):
            values.append(given.pop(0))
        kind = option.kind
        typed = [value if kind not in (int, float) else kind(value) for value in values]
        moved[name] = [*moved.get(name, []), *typed] if option.is_list else True if kind is bool else typed[0]
    if not moved:
        return rest
    lines = [f"{name} = {json.dumps(value)}" for name, value in moved.items()]
    flag = next((flag for flag in ("-c", "--config-file") if flag in rest), "")
    if flag:
        place = rest.index(flag)
        shown = Path(rest[place + 1]).read_text()
        lines += [line for line in shown.splitlines() if line.partition("=")[0].strip().replace("-", "_") not in moved]
        del rest[place : place + 2]
    path = Path(tempfile.mkdtemp()) / "choices.toml"
    path.write_text("\n".join(lines) + "\n")
    return [*rest, "--config-file", str(path)]


ANY_SKILL = "--any-skill"
"""A word of the tests alone: models are saved as if skill had been found, which twelve people do not show."""


def main(words: Sequence[object]) -> int:
    """`fcpower_bids.app.main`."""
    if ANY_SKILL not in words:
        return app.main(in_file(words))
    judge = fit.judge_skill
    with mock.patch.object(fit, "judge_skill", lambda *facts: {**judge(*facts), "Found": True}):
        return app.main(in_file([word for word in words if word != ANY_SKILL]))


def parse_settings(words: Sequence[object]) -> Settings:
    """`fcpower_bids.cli.parser.parse_settings`."""
    return parser.parse_settings(in_file(words))
