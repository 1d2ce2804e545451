"""Help: short for all, and for a level the options that it reads."""

from __future__ import annotations

import argparse
import copy
import difflib
from collections.abc import Sequence

from fcpower_bids.cli.options import option_fields
from fcpower_bids.plugins import slices
from fcpower_bids.settings import LEVELS
from fcpower_bids.settings.levels import is_read

FLAGS = ("-h", "--help", "--help-all")
COMMANDS = ("prefetch --atlas NAME [NAME ...] --folder FOLDER",)
USAGE = "\n       ".join(
    f"fcpower_bids {line}"
    for line in (
        f"bids_dir output_dir {{{','.join(LEVELS)}}} [options]",
        *COMMANDS,
        *(line for one in slices() for line in one.usage),
    )
)
ABOUT = "Functional connectomes with a flattened spectrum (FC^alpha) from fMRIPrep derivatives."
EXAMPLES = """\
examples:
  fcpower_bids BIDS OUT participant                      all recordings, Schaefer-400, FC^0.35
  fcpower_bids FMRIPREP OUT participant --dry-run        what was found and what is missing
  fcpower_bids BIDS OUT group --targets age              prediction, fingerprinting and motion"""
EPILOG = """\
exit codes: 0 done, 1 internal error, 2 usage, 3 input unusable, 4 some recordings failed, 5 all failed,,
  7 pretrained encoder not proven better than random weights.
Documentation: docs/ of the source, README.md first.
Research software: not a medical device."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help that shows one spelling of every option: ``--fd-thresh``, and not also ``--fd_thresh``."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        shown = copy.copy(action)
        shown.option_strings = [flag for flag in action.option_strings if "_" not in flag]
        if not shown.option_strings or shown.nargs == 0:
            return super()._format_action_invocation(shown)
        values = self._format_args(shown, self._get_default_metavar_for_optional(shown))
        return f"{', '.join(shown.option_strings)} {values}"


def asked_for_help(argv: Sequence[str]) -> bool:
    """Whether a command line asks for help."""
    return any(word in FLAGS for word in argv)


def help_for(argv: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """Return the help that a command line asks for: of the level that it names, else the short one."""
    level = next((word for word in argv if word in LEVELS), None)
    return short_help() if level is None else level_help(level, parser, "--help-all" in argv)


def explain_places(words: Sequence[str], message: str) -> str:
    """Return what is wrong with the places and the level where that is the matter, else the message."""
    if "level" not in message:
        return message
    there = next((word for word in words if word in LEVELS), None)
    if there is not None:
        return f"The order is bids_dir output_dir level: fcpower_bids BIDS OUT {there}."
    close = [found for word in words for found in difflib.get_close_matches(word, LEVELS, n=1)]
    meant = f" Did you mean {close[0]}?" if close else ""
    return f"The level is missing: after bids_dir and output_dir comes one of {', '.join(LEVELS)}.{meant}"


def short_help() -> str:
    """Return what the program can do, on one screen."""
    summaries = ((name, level.summary) for name, level in LEVELS.items())
    lines = [f"  {level:<12} {summary}" for level, summary in summaries]
    more = "  the options of a level: fcpower_bids LEVEL --help, all of them: LEVEL --help-all"
    levels = "\n".join(["levels:", *lines, more])
    return f"usage: {USAGE}\n\n{ABOUT}\n\n{levels}\n\n{EXAMPLES}\n{EPILOG}\n"


def level_help(level: str, parser: argparse.ArgumentParser, everything: bool = False) -> str:
    """Return the options of a first run, or all that a level reads by section."""
    shown = {field.name for field in option_fields() if is_read(level, field.name, field.metadata["section"])}
    own = copy.deepcopy(parser)
    own.usage = f"fcpower_bids bids_dir output_dir {level} [options]"
    own.description = f"{level}: {LEVELS[level].summary}."
    if not everything:
        return _first_help(level, own, len(shown))
    next(action for action in own._actions if action.dest == "level").help = argparse.SUPPRESS
    for action in own._actions:
        if action.option_strings and action.dest not in shown and action.dest not in ("help", "version"):
            action.help = argparse.SUPPRESS
    return own.format_help()


def _first_help(level: str, parser: argparse.ArgumentParser, number: int) -> str:
    """Return the help with the options of a first run alone, in their order."""
    by_name = {action.dest: action for action in parser._actions}
    short = argparse.ArgumentParser(
        prog=parser.prog,
        usage=parser.usage,
        description=parser.description,
        epilog=f"All {number} options: fcpower_bids {level} --help-all\n\n{parser.epilog}",
        formatter_class=HelpFormatter,
        add_help=False,
    )
    for name in ("bids_dir", "output_dir"):
        short._add_action(by_name[name])
    group = short.add_argument_group("The options that most people use, in the order of a first run")
    for name in filter(by_name.__contains__, LEVELS[level].first):
        group._add_action(by_name[name])
    return short.format_help()
