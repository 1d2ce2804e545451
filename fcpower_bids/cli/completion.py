"""Shell completion of options, choices and names, by argcomplete; no cost when the shell does not ask for it.

``eval "$(register-python-argcomplete fcpower_bids)"`` in bash or zsh; the shell then starts the program with
``_ARGCOMPLETE`` in the environment at every press of TAB.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence

from fcpower_bids.cli.options import known_names

ASKED = "_ARGCOMPLETE"
LINE = "COMP_LINE"


def answer_the_shell(find_parser: Callable[[Sequence[str]], argparse.ArgumentParser]) -> None:
    """Print what can follow on the command line and end the process, if it is the shell that asks; else do nothing."""
    if ASKED not in os.environ:
        return
    import argcomplete  # only a shell that completes needs it

    parser = find_parser(os.environ.get(LINE, "").split()[1:])
    argcomplete.autocomplete(parser, always_complete_options="long", exclude=_second_spellings(parser))


def with_names(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add to the options that take names of a registry, or of the shipped data, what these names are."""
    names = known_names()
    for action in parser._actions:
        if action.dest in names:
            action.completer = _completer(names[action.dest])  # type: ignore[attr-defined]
    return parser


def _completer(names: tuple[str, ...]) -> Callable[..., list[str]]:
    """Names that begin as the word does; files where none does, since most of these options also take a path."""

    def complete(prefix: str, **_: object) -> list[str]:
        from argcomplete.completers import FilesCompleter  # only a shell that completes needs it

        found = [name for name in names if name.startswith(prefix)]
        return found or list(FilesCompleter()(prefix))

    return complete


def _second_spellings(parser: argparse.ArgumentParser) -> list[str]:
    """``--fd_thresh`` is understood, but only ``--fd-thresh`` is offered."""
    return [flag for action in parser._actions for flag in action.option_strings if "_" in flag]
