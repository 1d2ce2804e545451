"""The command line, generated from :class:`~fcpower_bids.settings.Settings`."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import re
import sys
import typing
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import normalize

from fcpower_bids import __version__
from fcpower_bids.analyses import ALL
from fcpower_bids.cli.checks import problems_of
from fcpower_bids.cli.options import help_text, is_list, known_names, option_fields, or_choices, scalar_type
from fcpower_bids.encoders import CORPUS_ID
from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.settings import LEVELS, METHOD_SECTIONS, SECTIONS, Settings
from fcpower_bids.settings.levels import is_read, is_taken

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
    **{"--disable-bpf": "--high-pass 0 --low-pass 0", "--despike": "--fd-thresh", "--mode": "--config-file xcp_d"},
    **{
        "--smoothing": NO_SMOOTHING,
        "--smoothing-fwhm": NO_SMOOTHING,
        "--calculate-intranetwork-average-correlation": "",
    },
    **{"--standardize": "leave it out: series are z-scored", "--reindex-bids": "another --bids-database-dir"},
    **{"--skip-parcellation": "leave it out: everything here is made of parcels", "--sloppy": "--folds 2 --repeats 1"},
    **{"--linc-qc": TABLES, "--abcc-qc": TABLES, "--aggregate-session-reports": "leave it out: a page shows them all"},
    **{"--md-only-boilerplate": "leave it out: the methods text is Markdown", "--stop-on-first-crash": ""},
    **{"--warp-surfaces-native2std": NO_SURFACES, "--fs-no-reconall": NO_SURFACES, "--skull-strip-t1w": NO_SURFACES},
    **{
        "--clean-workdir": "another --work-dir",
        "--resource-monitor": "",
        "--boilerplate-only": "",
        "--write-graph": "",
    },
}
"""Names of fMRIPrep, XCP-D and giga_connectome, and ours for what they mean; words where there is no such option."""


DATA = Path(__file__).parents[1] / "data"


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def as_known(value: str, known: Iterable[str]) -> str:
    """Return the known name that a value spells with other capitals, ``-`` or ``_``; the value where there is none."""
    names = tuple(known)
    return value if value in names else next((name for name in names if _plain(name) == _plain(value)), value)


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
            found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([TGMK]?)B?", given.strip(), re.I)  # else the parser refuses it
            megabytes = str(round(float(found[1]) * MEGABYTES[found[2].upper() or "G"])) if found else given
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


SEPARATORS = {"atlas": "+:", "encoder_weights": "", "strategy": "", "corpus": ""}
"""Choices that may name a path although they are text, and what joins several of them."""
MAY_BE_PATHS = (*SEPARATORS, "derivatives")
NO_PATHS = ("builtin", "templateflow")


def anchor(settings: Settings) -> Settings:
    """Make every path in the settings absolute."""
    changes: dict[str, Any] = {"config_file": None}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name == "config_file" or value is None:
            continue
        if scalar_type(field.name) is Path:
            paths = [path.expanduser().absolute() for path in (value if is_list(field.name) else [value])]
            changes[field.name] = tuple(paths) if is_list(field.name) else paths[0]
        elif field.name in SEPARATORS or field.name == "derivatives":
            texts = [_anchor_text(text, field.name) for text in (value if is_list(field.name) else [value])]
            changes[field.name] = tuple(texts) if is_list(field.name) else texts[0]
    return dataclasses.replace(settings, **changes)


def _anchor_text(text: str, name: str) -> str:
    if name == "corpus":
        return text if text == CORPUS_ID else str(Path(text).expanduser().absolute())
    if name == "derivatives":
        label, equals, place = text.partition("=") if not Path(text).exists() else ("", "", text)
        path = Path(place or label).absolute()
        return f"{label}={path}" if equals else str(path)
    return _anchor_pieces(text, SEPARATORS[name])


def _anchor_pieces(text: str, separators: str) -> str:
    """Make absolute what is a path in ``FILE[:TSV]``, ``FOLDER[:SELECTOR]`` and their sums; leave names alone."""
    path = Path(text).expanduser().absolute()
    if text and text not in NO_PATHS and path.exists():
        return str(path)
    for separator in separators:
        head, found, tail = text.rpartition(separator)
        if found:
            return separator.join(_anchor_pieces(part, separators) for part in (head, tail))
    return text


PLACES = ("bids_dir", "output_dir", "level")
PREFIXES = {"participant_label": "sub-", "session_label": "ses-"}


class Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of exiting, so that all errors are reported at once."""

    def error(self, message: str) -> typing.NoReturn:
        """Raise the message as a usage error."""
        raise UsageError(f"{message}. See {self.prog} --help.")


COMMANDS = (
    "predict MODEL [MODEL ...] output_dir",
    "prefetch --atlas NAME [NAME ...] --folder FOLDER",
)
EPILOG = """\
examples:
  fcpower_bids BIDS OUT participant                  all recordings, Schaefer-400, FC^0.35
  fcpower_bids FMRIPREP OUT participant --dry-run    what was found and what is missing
  fcpower_bids BIDS OUT group --targets age          prediction, fingerprinting and motion
exit codes: 0 done, 1 internal error, 2 usage, 3 input unusable, 4 some recordings failed, 5 none is done,
  7 pretrained encoder not proven better than random weights.
Documentation: docs/ of the source, README.md first. Research software: not a medical device."""


def build_parser(level: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of a level: three positionals and an option for each that it reads; without one, none."""
    summaries = "\n".join(f"  {name:<12} {each.summary}" for name, each in LEVELS.items())
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
    for field in option_fields() if level else ():
        if not field.metadata["in_file"] and is_taken(str(level), field.name, field.metadata["section"]):
            names = ("--" + field.name.replace("_", "-"), *field.metadata["flags"])
            groups[field.metadata["section"]].add_argument(*names, **_arguments(field))
    return parser


def _arguments(field: dataclasses.Field[Any]) -> dict[str, Any]:
    kind = scalar_type(field.name)
    text = help_text(field).replace("%", "%%")
    if kind is bool:
        return {"action": "store_true", "dest": field.name, "help": text}
    shown = field.default if field.default not in (None, (), "") else None
    shown = " ".join(map(str, shown)) if isinstance(shown, tuple) else shown
    arguments: dict[str, Any] = {
        "dest": field.name,
        "type": kind,
        "help": text if shown is None else f"{text} [{shown}]".replace("%%", "%").replace("%", "%%"),
        "metavar": {Path: "PATH", int: "N", float: "X"}.get(kind, "NAME"),
    }
    if field.metadata["choices"]:
        arguments |= {"choices": field.metadata["choices"], "type": partial(as_known, known=field.metadata["choices"])}
        del arguments["metavar"]
    if is_list(field.name):
        arguments |= {"nargs": "+", "action": "extend"}
    if or_choices(field):
        arguments["type"] = str  # split with all others, so that every error is reported at once
    return arguments


def parse_settings(argv: Sequence[str] | None = None) -> Settings:
    """Turn a command line into Settings; a file gives what the command line does not. Raises UsageError."""
    words, refused = expand_aliases(list(sys.argv[1:] if argv is None else argv))
    level = next((word for word in words if word in LEVELS), None)
    parser = build_parser(level)
    if {"-h", "--help"} & set(words):
        parser.print_help()
        raise SystemExit(0)
    try:
        given, unknown = parser.parse_known_args(words)
    except UsageError as error:
        raise UsageError(_explain_places(words, str(error))) from None
    values, errors = split_alternatives(vars(given))
    flags = [item for item in unknown if item.startswith("-")]
    errors += refused + [_unknown_option(parser, item, given.level) for item in flags]
    errors += [] if flags else [f"'{item}' was not expected here." for item in unknown]
    if "config_file" in values:
        values["config_file"] = _shipped(values["config_file"])
        from_file, file_errors = read_configuration(values["config_file"])
        # what an option of the command line stands for: --alpha 0.5 wins over a choice in the file as well
        replaced = {field.metadata["or_choice"] for field in option_fields() if field.name in values}
        kept = {name: value for name, value in from_file.items() if name not in replaced}
        values, errors = {**kept, **values}, errors + file_errors
    elif values.get("reports_only") and values["level"] == "participant":
        record = Settings(*(values[name] for name in PLACES)).record
        recorded, file_errors = read_configuration(record) if record.is_file() else ({}, [])
        method = {field.name for field in option_fields() if field.metadata["section"] in METHOD_SECTIONS}
        made_with = {name: value for name, value in recorded.items() if name in method}
        errors += file_errors + ([] if errors or file_errors else _made_otherwise(values, made_with))
        values = {**made_with, **values}
    if vars(given).get("preset") == "paper" and not values.get("analyses"):
        values["analyses"] = [ALL]  # the paper is asked for by name, not merely the default: all that it has
    return _settings(values, errors)


def settings_of(values: Mapping[str, Any]) -> Settings:
    """Turn choices by name, as Python or a configuration file has them, into Settings. Raises UsageError."""
    places = {name: values[name] for name in PLACES}
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    chosen, errors = _convert_all({name: value for name, value in given.items() if name not in PLACES}, "The call")
    return _settings({**places, **chosen}, errors)


def _settings(values: Mapping[str, Any], errors: Sequence[str]) -> Settings:
    clean = {name: _clean(name, value) for name, value in values.items()}
    if clean["level"] == "group":
        layouts = [one.stem for one in (DATA / "layouts").iterdir()]
        clean["derivatives"] = tuple(  # xcp_d=PATH as xcpd=PATH; the participant level takes names as they are
            text if not equals or Path(text).exists() else f"{as_known(name, layouts)}={place}"
            for text in clean.get("derivatives", ())
            for name, equals, place in [text.partition("=")]
        )
    settings = Settings(**clean)
    found = [*errors, *problems_of(settings)]
    if found:
        raise UsageError("\n".join(found))
    return anchor(settings)


def _made_otherwise(given: Mapping[str, Any], made_with: Mapping[str, Any]) -> list[str]:
    """Say which choices of the command line are not those that made the outputs: pages alone change no number."""
    chosen, made = _settings(given, ()), _settings({**given, **made_with}, ())
    return [
        f"--{name.replace('_', '-')} is not what the outputs were made with, and --reports-only makes pages alone: "
        "leave one of the two out."
        for name in made_with
        if name in given and getattr(chosen, name) != getattr(made, name)
    ]


def _shipped(path: Path) -> Path:
    """Return the file of a configuration that comes with the program, or the path as it is."""
    name = as_known(str(path), (one.stem for one in (DATA / "configurations").iterdir()))
    shipped = DATA / "configurations" / f"{name}.toml"
    return shipped if not path.exists() and shipped.is_file() else path


def split_alternatives(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Turn ``--alpha nested`` into the choice that it is, and ``--alpha 0.5`` into a number; return what is neither."""
    chosen, faults = dict(values), []
    for field in option_fields():
        text = values.get(field.name)
        if not isinstance(text, str) or not (words := or_choices(field)):
            continue
        del chosen[field.name]
        if text in words:
            chosen.setdefault(field.metadata["or_choice"], text)
            continue
        try:
            chosen[field.name] = scalar_type(field.name)(text)
        except ValueError:
            faults.append(f"--{field.name.replace('_', '-')} {text} is neither a number nor one of {', '.join(words)}.")
    return chosen, faults


def _explain_places(words: Sequence[str], message: str) -> str:
    """Return what is wrong with the places and the level where that is the matter, else the message."""
    if "level" not in message:
        return message
    there = next((word for word in words if word in LEVELS), None)
    if there is not None:
        return f"The order is bids_dir output_dir level: fcpower_bids BIDS OUT {there}."
    close = [found for word in words for found in difflib.get_close_matches(word, LEVELS, n=1)]
    meant = f" Did you mean {close[0]}?" if close else ""
    return f"The level is missing: after bids_dir and output_dir comes one of {', '.join(LEVELS)}.{meant}"


def _unknown_option(parser: argparse.ArgumentParser, item: str, level: str) -> str:
    """Say who reads an option, where it is set, or which one may be meant."""
    flag = item.partition("=")[0]
    field = Settings.__dataclass_fields__.get(flag[2:].replace("-", "_"))
    if field is not None and field.metadata.get("in_file"):
        return f"{flag} is set in the file of --config-file alone: {field.name} = ..."
    if field is not None and "section" in field.metadata:
        readers = [one for one in LEVELS if is_read(one, field.name, field.metadata["section"])]
        levels = f"level{'s' if len(readers) > 1 else ''} {' and '.join(readers)}"
        return f"{flag} is an option of the {levels}; {level} does not use it. Leave it out."
    close = difflib.get_close_matches(flag, [flag for one in parser._actions for flag in one.option_strings], n=1)
    return f"There is no option {item}." + (f" Did you mean {close[0]}?" if close else " See fcpower_bids --help.")


def read_configuration(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Read options from a TOML file; return them and what is wrong with it."""
    from fcpower_bids.outputs.tables import read_toml  # most runs have no configuration file

    try:
        content = read_toml(path)
    except (OSError, ValueError, DatasetError) as error:
        return {}, [f"The configuration file {path} cannot be read: {error}"]
    # The resolved file carries the places for the record; the command line decides.
    return _convert_all({key: value for key, value in content.items() if key.replace("-", "_") not in PLACES}, path)


def _convert_all(content: Mapping[str, Any], whose: object) -> tuple[dict[str, Any], list[str]]:
    """Give values by the names of options the types of these; return what is wrong with them too."""
    names = {field.name for field in option_fields()}
    values: dict[str, Any] = {}
    errors = []
    for key, value in content.items():
        name = key.replace("-", "_")
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"Did you mean {close[0]}?" if close else "See docs/usage.md."
            errors.append(f"{whose} has '{key}', which is not an option. {hint}")
            continue
        try:
            values[name] = _convert(name, value)
        except (TypeError, ValueError):
            errors.append(f"{whose} has {key} = {value!r}, which is not a {scalar_type(name).__name__}.")
    values, faults = split_alternatives(values)
    return values, errors + faults


def _convert(name: str, value: Any) -> Any:
    kind = scalar_type(name)
    if isinstance(value, str) and or_choices(Settings.__dataclass_fields__[name]):
        return value
    if kind is bool or isinstance(value, bool):
        if kind is not bool or not isinstance(value, bool):
            raise TypeError(name)
        return value
    items = value if isinstance(value, list) and is_list(name) else [value]
    if any(isinstance(item, (list, dict)) for item in items):
        raise TypeError(name)
    return [kind(item) for item in items] if is_list(name) else kind(value)


def _clean(name: str, value: Any) -> Any:
    """Make lists tuples in which each value stands once; leave out the prefixes of BIDS labels; one way of accents."""
    if isinstance(value, list):
        prefix = PREFIXES.get(name, "")
        items = [_clean(name, item.removeprefix(prefix) if prefix else item) for item in value]
        return tuple(dict.fromkeys(items))
    if not isinstance(value, str):
        return value
    known = Settings.__dataclass_fields__[name].metadata.get("choices") if name not in PLACES else None
    value = as_known(value, known or known_names().get(name, ()))
    return normalize("NFC", value) if name not in MAY_BE_PATHS else value
