"""The command line, generated from :class:`~fcpower_bids.settings.Settings`."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

from fcpower_bids import __version__, analyses, transforms
from fcpower_bids.cli.checks import problems_of
from fcpower_bids.encoders import CORPUS_ID, ENCODERS
from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.imaging.atlas_files import declared_atlases
from fcpower_bids.settings import LEVELS, METHOD_SECTIONS, PLACES, SECTIONS, Option, Settings, options
from fcpower_bids.settings.options import strategy_names

MEMORY = ("--mem", "--mem-gb")
"""Memory as fMRIPrep and XCP-D take it: 8, 8G or 8GB."""
MEGABYTES = {"T": 1e6, "G": 1e3, "M": 1.0, "K": 1e-3}
SILENT = {"--skip-bids-validation": 0, "--notrack": 0, "--fs-license-file": 1}
"""Options of fMRIPrep that every script has and that change nothing here, and how many values follow."""
NO_SMOOTHING = "leave it out: nothing is smoothed, as means of parcels need not be"
NO_SURFACES = "leave it out: no surfaces are needed"
TABLES = "leave it out: the quality tables are always written"
OURS = {
    **{"-a": "--atlas", "--atlases": "--atlas", "-t": "--task-id", "--task-label": "--task-id"},
    **{"--session-id": "--session-label", "-s": "--session-label", "--run-id": "--bids-filter-file"},
    **{"-p": "--strategy", "--nuisance-regressors": "--strategy", "--confounds": "--strategy"},
    **{"--denoise-strategy": "--strategy", "--custom-confounds": "--strategy FILE", "--nthreads": "--nprocs"},
    **{"--lower-bpf": "--high-pass", "--upper-bpf": "--low-pass", "-f": "--fd-thresh", "-r": "--head-radius"},
    **{"--bpf-order": "filter_order in the file of --config-file", "--seed": "--random-seed"},
    **{"--exact-time": "--equal-minutes", "--create-matrices": "--equal-minutes of the level group"},
    **{"--memory-gb": "--mem-gb", "--low-mem": "--nprocs 1", "--output-spaces": "--space", "--cifti": "--space fsLR"},
    **{"--file-format": "--space fsLR", "--disable-bandpass-filter": "--high-pass 0 --low-pass 0"},
    **{"--disable-bpf": "--high-pass 0 --low-pass 0", "--despike": "--fd-thresh", "--mode": "--strategy 36P"},
    **dict.fromkeys(("--smoothing", "--smoothing-fwhm"), NO_SMOOTHING),
    **{"--standardize": "leave it out: series are z-scored", "--reindex-bids": "another --bids-database-dir"},
    **{"--skip-parcellation": "leave it out: everything here is made of parcels", "--sloppy": "--folds 2 --repeats 1"},
    **{"--linc-qc": TABLES, "--abcc-qc": TABLES, "--aggregate-session-reports": "leave it out: a page shows them all"},
    **{"--md-only-boilerplate": "leave it out: the methods text is Markdown", "--clean-workdir": "another --work-dir"},
    **dict.fromkeys(("--warp-surfaces-native2std", "--fs-no-reconall", "--skull-strip-t1w"), NO_SURFACES),
    **dict.fromkeys(("--calculate-intranetwork-average-correlation", "--stop-on-first-crash"), ""),
    **dict.fromkeys(("--resource-monitor", "--boilerplate-only", "--write-graph"), ""),
}
"""Names of fMRIPrep, XCP-D and giga_connectome, and ours for what they mean; words where there is no such option."""
DATA = Path(__file__).parents[1] / "data"
ALPHA, SELECTION = "alpha", "alpha_selection"
LISTED = ("analyses", "encoder", "strategy", "transforms")
"""Options whose names are shown in their help; atlases are too many."""
SEPARATORS = {"atlas": "+:", "encoder_weights": "", "strategy": "", "corpus": "", "derivatives": ""}
"""Choices that may name a path although they are text, and what joins several of them."""
NO_PATHS = ("builtin", "templateflow")
PREFIXES = {"participant_label": "sub-", "session_label": "ses-"}
COMMANDS = ("predict MODEL [MODEL ...] output_dir", "prefetch --atlas NAME [NAME ...] --folder FOLDER")
EPILOG = """\
examples:
  fcpower_bids BIDS OUT participant                  all recordings, Schaefer-400, FC^0.35
  fcpower_bids FMRIPREP OUT participant --dry-run    what was found and what is missing
  fcpower_bids BIDS OUT group --targets age          prediction, fingerprinting and motion
exit codes: 0 done, 1 internal error, 2 usage, 3 input unusable, 4 some recordings failed, 5 none is done,
  7 pretrained encoder not proven better than random weights.
Documentation: docs/ of the source, README.md first. Research software: not a medical device."""


def known_names(name: str) -> tuple[str, ...]:
    """Return what an option of names takes; empty for any other."""
    known: dict[str, Callable[[], Iterable[str]]] = {
        "atlas": lambda: ("builtin", *declared_atlases()),
        "analyses": lambda: (analyses.ALL, analyses.CHECK, *analyses.NAMES),
        "encoder": lambda: ENCODERS,
        "representations": lambda: ("fc", "fc_power", "embedding"),
        "strategy": strategy_names,
        "transforms": lambda: transforms.NAMES,
    }
    return tuple(known[name]()) if name in known else ()


def as_known(value: str, known: Iterable[str]) -> str:
    """Return the known name that a value spells with other capitals, ``-`` or ``_``; the value where there is none."""

    def plain(name: str) -> str:
        return name.lower().replace("-", "").replace("_", "")

    names = tuple(known)
    return value if value in names else next((name for name in names if plain(name) == plain(value)), value)


def expand_aliases(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Write names with ``-`` and memory in MB, drop what changes nothing; return what is called otherwise here."""
    understood: list[str] = []
    refused: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        name = "--" + name[2:].replace("_", "-") if name.startswith("--") else name
        if name in MEMORY:
            given = value if equals else (rest.pop(0) if rest else "")
            match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([TGMK]?)B?", given.strip(), re.I)  # else the parser refuses it
            megabytes = str(round(float(match[1]) * MEGABYTES[match[2].upper() or "G"])) if match else given
            understood += ["--mem-mb", megabytes]
        elif name in SILENT:
            del rest[: 0 if equals else SILENT[name]]
        elif name in OURS:
            ours = OURS[name] or "leave it out"
            refused.append(f"There is no option {name}: {'use ' * ours.startswith('-')}{ours}.")
            while rest and not equals and not rest[0].startswith("-"):
                rest.pop(0)
        else:
            understood.append(name + equals + value if name.startswith("--") else word)
    return understood, refused


class Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of exiting, so that all errors are reported at once."""

    def error(self, message: str) -> typing.NoReturn:
        """Raise the message as a usage error."""
        raise UsageError(f"{message}. See {self.prog} --help.")


def build_parser(level: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of a level: three positionals and an option for each that it reads; without one, none."""
    summaries = "\n".join(f"  {name:<12} {traits.summary}" for name, traits in LEVELS.items())
    lines = [f"bids_dir output_dir {level or '{' + ','.join(LEVELS) + '}'} [options]", *(() if level else COMMANDS)]
    parser = Parser(
        prog="fcpower_bids",
        usage="\n       ".join(f"fcpower_bids {line}" for line in lines),
        description=f"{level}: {LEVELS[level].summary}." if level else f"levels:\n{summaries}\n  options: LEVEL --help",
        epilog=EPILOG if level is None else None,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=30, width=120),
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("bids_dir", type=Path, help="BIDS dataset, or fMRIPrep derivatives themselves")
    parser.add_argument("output_dir", type=Path, help="output dataset (made if it is not there)")
    parser.add_argument("level", choices=LEVELS, help="what to do")
    parser.add_argument("--version", action="version", version=f"fcpower_bids {__version__}")
    groups = {name: parser.add_argument_group(title) for name, title in SECTIONS.items()}
    for option in (option for option in options().values() if level and option.is_taken(level)):
        names = known_names(option.name) if option.name in LISTED else ()
        text = f"{option.text} ({' '.join(names)})" if names else option.text
        how: dict[str, Any] = {"action": "store_true"}
        if option.kind is not bool:
            default = option.default if isinstance(option.default, tuple) else (option.default,)
            shown = " ".join(str(value) for value in default if value is not None)
            text += f" [{shown}]" if shown else ""
            named = {Path: "PATH", int: "N", float: "X"}.get(option.kind, "NAME")
            how = {"metavar": f"{{{','.join(option.choices)}}}" if option.choices else named}
            how |= {"nargs": "+", "action": "extend"} if option.is_list else {}
        how |= {"dest": option.name, "help": text.replace("%", "%%")}
        groups[option.section].add_argument(option.flag, *option.flags, **how)
    return parser


def parse_settings(argv: Sequence[str] | None = None) -> Settings:
    """Turn a command line into Settings; a file gives what the command line does not. Raises UsageError."""
    words, refused = expand_aliases(list(sys.argv[1:] if argv is None else argv))
    parser = build_parser(next((word for word in words if word in LEVELS), None))
    if {"-h", "--help"} & set(words):
        parser.print_help()
        raise SystemExit(0)
    try:
        given, unknown = parser.parse_known_args(words)
    except UsageError as error:
        if "level" not in str(error):
            raise
        there = next((word for word in words if word in LEVELS), None)
        close = [match for word in words for match in difflib.get_close_matches(word, LEVELS, n=1)]
        meant = f" Did you mean {close[0]}?" if close else ""
        raise UsageError(
            f"The order is bids_dir output_dir level: fcpower_bids BIDS OUT {there}."
            if there
            else f"The level is missing: after bids_dir and output_dir comes one of {', '.join(LEVELS)}.{meant}"
        ) from None
    values, errors = _convert_all({name: value for name, value in vars(given).items() if name not in PLACES})
    values |= {name: vars(given)[name] for name in PLACES}
    flags = [item for item in unknown if item.startswith("-")]
    errors += refused + [_unknown_option(parser, item, given.level) for item in flags]
    errors += [] if flags else [f"'{item}' was not expected here." for item in unknown]
    values = _with_file(values, errors)
    record = Settings(*(values[name] for name in PLACES)).record
    if values.get("reports_only") and values["level"] == "participant" and record.is_file():
        recorded, file_errors = read_configuration(record)
        made_with = {name: value for name, value in recorded.items() if options()[name].section in METHOD_SECTIONS}
        errors += file_errors
        errors += [
            f"{options()[name].flag} is not what the outputs were made with, and --reports-only makes pages alone: "
            "leave one of the two out."
            for name, value in values.items()
            if name not in PLACES and options()[name].section in METHOD_SECTIONS
            if value != made_with.get(name, options()[name].default)
        ]
        values = {**made_with, **values}
    if values.get("preset") == "paper" and not values.get("analyses"):
        values["analyses"] = (analyses.ALL,)  # the paper is asked for by name, not merely the default: all that it has
    return _settings(values, errors)


def settings_of(values: Mapping[str, Any]) -> Settings:
    """Turn choices by name, as Python or a configuration file has them, into Settings. Raises UsageError."""
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    chosen, errors = _convert_all({name: value for name, value in given.items() if name not in PLACES}, "The call")
    return _settings({**{name: values[name] for name in PLACES}, **_with_file(chosen, errors)}, errors)


def _with_file(values: dict[str, Any], errors: list[str]) -> dict[str, Any]:
    """Add what the configuration file says and the values do not; what is wrong with it is added to the errors."""
    if "config_file" not in values:
        return values
    from_file, file_errors = read_configuration(values["config_file"])
    errors += file_errors
    # what an option stands for: --alpha 0.5 wins over a choice in the file as well
    return {name: value for name, value in from_file.items() if not (name == SELECTION and ALPHA in values)} | values


def _settings(values: Mapping[str, Any], errors: Sequence[str]) -> Settings:
    chosen = {name: value for name, value in values.items() if name not in (*PLACES, "config_file")}
    if values["level"] == "group":
        layouts = [path.stem for path in (DATA / "layouts").iterdir()]
        chosen["derivatives"] = tuple(  # xcp_d=PATH as xcpd=PATH; the participant level takes names as they are
            text if not equals or Path(text).exists() else f"{as_known(name, layouts)}={place}"
            for text in chosen.get("derivatives", ())
            for name, equals, place in [text.partition("=")]
        )
    bids_dir, output_dir = (values[name].expanduser().absolute() for name in PLACES[:2])
    settings = Settings(bids_dir, output_dir, values["level"]).changed(**chosen)
    if problems := [*errors, *problems_of(settings)]:
        raise UsageError("\n".join(problems))
    return settings


def _typed(option: Option, item: Any) -> Any:
    """One value as settings have it: its type, its known spelling, one way of accents, an absolute path."""
    if isinstance(item, (list, dict)) or isinstance(item, bool) != (option.kind is bool):
        raise TypeError(option.name)
    value = option.kind(item)
    if isinstance(value, str):
        value = as_known(value.removeprefix(PREFIXES.get(option.name, "")), option.choices or known_names(option.name))
        value = value if option.name in SEPARATORS else normalize("NFC", value)
    return _anchored(value, option.name) if option.kind is Path or option.name in SEPARATORS else value


def _anchored(value: Any, name: str) -> Any:
    """Make absolute what is a path, also in ``FILE[:TSV]``, ``FOLDER[:SELECTOR]`` and their sums; leave names alone."""
    path = Path(value).expanduser().absolute()
    if isinstance(value, Path):
        return path
    if name == "corpus":
        return value if value == CORPUS_ID else str(path)
    if name == "derivatives":
        label, equals, place = value.partition("=") if not Path(value).exists() else ("", "", value)
        absolute = Path(place or label).absolute()
        return f"{label}={absolute}" if equals else str(absolute)
    if value and value not in NO_PATHS and path.exists():
        return str(path)
    for separator in SEPARATORS[name]:
        head, mark, tail = value.rpartition(separator)
        if mark:
            return separator.join(_anchored(part, name) for part in (head, tail))
    return value


def _unknown_option(parser: argparse.ArgumentParser, item: str, level: str) -> str:
    """Say who reads an option, where it is set, or which one may be meant."""
    flag = item.partition("=")[0]
    option = options().get(flag[2:].replace("-", "_"))
    if option is not None and option.in_file:
        return f"{flag} is set in the file of --config-file alone: {option.name} = ..."
    if option is not None:
        levels = f"level{'s' if len(option.levels) > 1 else ''} {' and '.join(option.levels)}"
        return f"{flag} is an option of the {levels}; {level} does not use it. Leave it out."
    close = difflib.get_close_matches(flag, [flag for action in parser._actions for flag in action.option_strings], n=1)
    return f"There is no option {item}." + (f" Did you mean {close[0]}?" if close else " See fcpower_bids --help.")


def read_configuration(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Read options from a TOML file; return them and what is wrong with it."""
    from fcpower_bids.outputs.tables import read_toml  # most runs have no configuration file

    try:
        content = read_toml(path)
    except (OSError, ValueError, DatasetError) as error:
        return {}, [f"The configuration file {path} cannot be read: {error}"]
    if {"config_file", "config-file"} & content.keys():
        return {}, [f"{path} names another configuration file, which is not read: put its lines into {path.name}."]
    # The resolved file carries the places for the record; the command line decides.
    return _convert_all({key: value for key, value in content.items() if key.replace("-", "_") not in PLACES}, path)


IN_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}


def _convert_all(content: Mapping[str, Any], whose: object = None) -> tuple[dict[str, Any], list[str]]:
    """Give values by the names of options the types of these; return what is wrong with them too.

    `whose`: the file or the call that they are of; None for the command line.
    """
    values: dict[str, Any] = {}
    errors = []
    for key, value in content.items():
        name = key.replace("-", "_")
        option = options().get(name)
        if option is None:
            close = difflib.get_close_matches(name, options(), n=1)
            hint = f"Did you mean {close[0]}?" if close else "See docs/usage.md."
            errors.append(f"{whose} has '{key}', which is not an option. {hint}")
            continue
        items = value if isinstance(value, list) and option.is_list else [value]
        try:
            made = tuple(dict.fromkeys(_typed(option, item) for item in items))
        except (TypeError, ValueError):
            if name == ALPHA and value in (ways := options()[SELECTION].choices):  # a choice, and no number
                values[SELECTION] = value
                continue
            others = f" nor one of {', '.join(ways)}" if name == ALPHA else ""
            said = f"{whose} has {key} = {value!r}, which" if whose else " ".join([option.flag, *map(str, items)])
            errors.append(f"{said} is not {IN_WORDS[option.kind]}{others}.")
        else:
            values[name] = made if option.is_list else made[0]
    return values, errors
