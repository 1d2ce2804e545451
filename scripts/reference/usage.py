"""The option reference ``docs/usage.md``, generated from Settings.

``python -m scripts.reference.usage > docs/usage.md`` writes it anew.
"""

from __future__ import annotations

import sys
from typing import Any

from fcpower_bids.cli.options import is_list, option_fields, or_choices, scalar_type
from fcpower_bids.settings import LEVELS, SECTIONS

INTRODUCTION = f"""\
# Every option

<!-- Generated from fcpower_bids/settings by `python -m scripts.reference.usage`; a test compares. -->

```
fcpower_bids bids_dir output_dir {{{",".join(LEVELS)}}} [options]
```

`bids_dir` is a BIDS dataset with fMRIPrep derivatives in `derivatives/fmriprep`, or those derivatives themselves;
`output_dir` is made if it is not there. Every option can be written with `-` or `_` between its words, and stand in a
TOML file given with `--config-file` (`low_pass = 0.1`, lists in brackets); the command line wins. The resolved choices
of a run are in `logs/settings.toml` of the output, which repeats the run when it is given back.

The shell completes options, choices and the names of atlases, transforms and analyses (bash and zsh)
with this line, for example in `~/.bashrc` or `~/.zshrc`:

```sh
eval "$(register-python-argcomplete fcpower_bids)"
```

In zsh `autoload -U compinit && compinit` comes before it. `fcpower_bids participant --help` shows the options that this
level reads, `fcpower_bids group --help` those of the group level, with the names of strategies, transforms, encoders
and analyses. Commands of [XCP-D](from_xcp_d.md) and fMRIPrep are understood as far as there is something like it here.

The other commands have options of their own (`--help` after the name): `predict`, `model` and `identify` for
[new people](models.md), `status` and `combine` for [jobs](hpc.md), `export` for [a copy to share](sharing.md),
`selftest` for [an installation](clinic.md), `prefetch` for [atlases and weights](atlases.md#machines-without-network),
`push` for [an encoder](encoder.md).
"""


def reference() -> str:
    """Return the option reference as Markdown."""
    parts = [INTRODUCTION]
    for section, title in SECTIONS.items():
        rows = [_row(field) for field in option_fields() if field.metadata["section"] == section]
        parts.append(
            "\n".join([f"## {title}\n", "| option | values | default | meaning |", "|---|---|---|---|", *rows])
        )
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


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
