"""Options of fMRIPrep and XCP-D: translated, ignored with a line, or refused with the remedy."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

MEMORY = {"--mem": "G", "--mem-gb": "G", "--memory-gb": "G"}
"""Memory as others give it, and the unit of a bare number."""
MEGABYTES = {"T": 1e6, "G": 1e3, "M": 1.0, "K": 1e-3}
IGNORED = {
    "--smoothing": (1, "nothing is smoothed, as means of parcels need not be"),
    "--md-only-boilerplate": (0, "the methods text is written as Markdown, HTML and LaTeX"),
    "--linc-qc": (0, "the quality tables are always written"),
    "--abcc-qc": (0, "the quality tables are always written"),
    "--warp-surfaces-native2std": (1, "no surfaces are needed"),
    "--skull-strip-t1w": (1, "nothing anatomical is needed"),
    "--fs-no-reconall": (0, "FreeSurfer is not used"),
    "--sloppy": (0, "there is nothing to shorten"),
}
"""Options of others that change no connectome: how many values follow, and why."""
REFUSED = {
    "--despike": "Despiking is not done; --fd-thresh leaves out volumes with motion.",
    "--mode": "There are no modes. --config-file xcp_d cleans as XCP-D's mode linc does, without despiking.",
    "--cifti": "Surface recordings are found by their space: give --space fsLR.",
    "--file-format": "Surface recordings are found by their space: give --space fsLR.",
    "--output-spaces": "Nothing is resampled. --space chooses among the spaces that fMRIPrep wrote.",
    "--create-matrices": "'group --equal-minutes' cuts all scans to one length; --min-time says what is too short.",
    "--skip-parcellation": "Everything here is made of parcels. Name an atlas with --atlas.",
    "--disable-bandpass-filter": "Give --high-pass 0 --low-pass 0.",
    "--aggregate-session-reports": "A page shows all sessions of a participant.",
    "--landmarks": "Leave it out: the approximation of kernel ridge by landmarks is gone, and kernel_ridge is exact.",
    "--custom-confounds": "Give a strategy of your own as a YAML file: --strategy FILE.",
}
"""Options of others that would change numbers, and options that are gone, with the replacement."""


RENAMED = {
    "--max-parcel-missing": "--drop-parcels-missing-in",
    "--max-missing-parcels": "--drop-people-missing",
    "--draw": "--sampling-unit",
    "--tasks-apart": "--separate-tasks",
    "--evaluation": "--exclude-from-corpus",
    "--group-fit": "--fit-transforms-on",
    "--chunk": "--microbatch",
    "--floor": "--eigenvalue-floor",
    "--shrinkage": "--shrink-to-identity",
}
"""Former spellings of our options, accepted until the release after 0.1 and left out of the help."""


DATA = Path(__file__).parents[1] / "data"


def as_shipped(name: str, folder: str) -> str:
    """Return a name as a file of a folder of ``data`` spells it, whatever its capitals, ``-`` and ``_``."""
    return next((path.stem for path in (DATA / folder).iterdir() if _plain(path.stem) == _plain(name)), name)


def present_name(name: str) -> str:
    """Return the name of an option in a configuration file; of a former one the present name."""
    flag = "--" + name.replace("_", "-")
    return RENAMED.get(flag, flag).removeprefix("--").replace("-", "_")


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def expand_aliases(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Translate a command line."""
    understood: list[str] = []
    refused: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        name = "--" + name[2:].replace("_", "-") if name.startswith("--") else name
        if name in RENAMED:
            understood.append(RENAMED[name] + equals + value)
        elif name in MEMORY:
            given = value if equals else (rest.pop(0) if rest else "")
            understood += ["--mem-mb", _megabytes(given, MEMORY[name])]
        elif name in IGNORED:
            follow, why = IGNORED[name]
            del rest[: 0 if equals else follow]
            print(f"fcpower_bids: {name} is ignored: {why}.", file=sys.stderr)  # noqa: T201
        elif name in REFUSED:
            refused.append(f"There is no option {name}. {REFUSED[name]}")
            while rest and not equals and not rest[0].startswith("-"):
                rest.pop(0)
        else:
            understood.append(word)
    return understood, refused


def _megabytes(text: str, unit: str) -> str:
    """``8G`` as megabytes; what is no amount is left for the parser to refuse."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([TGMK]?)B?", text.strip(), re.I)
    return text if found is None else str(round(float(found[1]) * MEGABYTES[found[2].upper() or unit]))
