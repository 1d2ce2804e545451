"""Compare two output folders byte by byte, and explain what differs; the exit status tells whether all is explained.

    compare_outputs.py EXPECTED ACTUAL [EXPECTED_PATH=ACTUAL_PATH ...]

What may differ: the paths of the mounts (given as pairs) in text files, in the statuses of the recordings the computing
time and the memory, in archives their headers, in settings which participants the last command was for, and in pages
the foot, and in pages of people where their recordings stand among all. Every other difference is an error.
"""

from __future__ import annotations

import io
import re
import sys
import zipfile
from collections import Counter
from pathlib import Path

FREE = (
    (
        re.compile(r"logs/status"),
        re.compile(rb'"(?:seconds|peak_mb)": [0-9.e+-]+|\t[0-9.e+-]+\t[0-9.e+-]+$', re.M),
        "only computing time and memory differ",
    ),
    (
        re.compile(r"logs/settings\.toml$"),
        re.compile(rb"^participant_label = .*$", re.M),
        "only the participants of the last command differ",
    ),
    (
        re.compile(r"logs/settings_group"),
        re.compile(rb"^(?:nprocs|mem_mb) = .*$", re.M),
        "only the cores and the memory of the job differ",
    ),
    (
        re.compile(r".*\.html$"),
        re.compile(rb"<footer>.*?</footer>"),
        "only the foot of the page differs",
    ),
    (
        re.compile(r"sub-.*\.html$"),
        re.compile(
            rb'<td data-value="(?:\d+|n/a)"><bdi>(?:\d+ of \d+|not used)</bdi></td>'
            rb'|<th scope="col"><button type="button"><bdi>FD among all</bdi></button></th>'
            rb"|<footer>.*?</footer>"
        ),
        "only the foot and where recordings stand among all differ, which a job of some cannot know",
    ),
)
IGNORED = ("work", "logs/crashes", "logs/slurm")


def files_below(root: Path) -> set[str]:
    """Return the relative paths of all files but the intermediate results."""
    names = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    return {name for name in names if not name.startswith(tuple(f"{folder}/" for folder in IGNORED))}


def members(archive: bytes) -> dict[str, bytes]:
    """Return the content of a zip archive."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def explain(name: str, expected: bytes, actual: bytes, paths: list[tuple[str, str]]) -> str | None:
    """Return why two files differ, "identical" if they do not, None if there is no good reason."""
    if expected == actual:
        return "identical"
    for old, new in paths:
        expected = expected.replace(old.encode(), new.encode())
    if expected == actual:
        return "only the paths of the mounts differ"
    if name.endswith(".npz") and members(expected) == members(actual):
        return "only the headers inside the archive differ, which depend on the version of Python"
    for names, pattern, reason in FREE:
        if names.match(name) and pattern.sub(b"", expected) == pattern.sub(b"", actual):
            return reason
    return None


def main(expected: Path, actual: Path, paths: list[tuple[str, str]]) -> int:
    """Print the table; return 0 if every difference is explained."""
    there, here = files_below(expected), files_below(actual)
    reasons = {
        name: explain(name, (expected / name).read_bytes(), (actual / name).read_bytes(), paths)
        for name in sorted(there & here)
    }
    lines = [f"{count:6d} files: {reason}" for reason, count in Counter(filter(None, reasons.values())).most_common()]
    faults = [f"differs without a reason: {name}" for name, reason in reasons.items() if reason is None]
    faults += [f"missing: {name}" for name in sorted(there - here)] + [
        f"not expected: {name}" for name in sorted(here - there)
    ]
    if not reasons:
        faults.append(f"nothing to compare in {expected} and {actual}")
    print(*lines, *faults, sep="\n")  # noqa: T201
    return int(bool(faults))


if __name__ == "__main__":
    pairs = [(old, new) for old, _, new in (pair.partition("=") for pair in sys.argv[3:])]
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), pairs))
