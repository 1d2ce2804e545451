"""Print this machine's pip configuration as it must read inside a build whose ``/mnt`` is the folder given.

Local indexes and wheel folders are mounted below ``/mnt``; the mounts are written, one a line, to file descriptor 3.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

KEPT = ["index-url", "extra-index-url", "find-links", "trusted-host", "proxy", "no-index", "retries", "timeout"]
PATHS = ["find-links", "index-url", "extra-index-url"]


def read_configuration() -> dict[str, str]:
    """Return what ``pip config list`` says; the environment comes last and wins, as in pip."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    found = (re.match(r"(?:global|user|site|:env:)\.(?:default-)?([\w-]+)=(.*)", line) for line in lines)
    return {match[1]: str(ast.literal_eval(match[2])) for match in found if match and match[1] in KEPT}


def relocate(value: str, roots: list[Path]) -> str | None:
    """Move a local folder below ``/mnt``; None if it is not there, the value itself if it is an address.

    The two top levels are mounted, so that links inside an index stay valid.
    """
    scheme, path = ("file://", value[7:]) if value.startswith("file://") else ("", value)
    if not path.startswith("/"):
        return value
    root = Path(*Path(path).parts[:3])
    if not root.is_dir():
        return None
    if root not in roots:
        roots.append(root)
    return f"{scheme}/mnt/{roots.index(root)}{path[len(str(root)) :]}"


def main(mnt: Path) -> None:
    """Print the configuration, and the mounts to file descriptor 3."""
    configuration, roots = read_configuration(), []
    for key in PATHS:
        places = (relocate(place, roots) for place in configuration.pop(key, "").split())
        if kept := " ".join(place for place in places if place):
            configuration[key] = kept
    if (mnt / "ca.crt").exists():
        configuration["cert"] = "/mnt/ca.crt"
    print("[global]", *(f"{key} = {value}" for key, value in configuration.items()), sep="\n")  # noqa: T201
    with os.fdopen(3, "w") as mounts:
        for number, root in enumerate(roots):
            (mnt / str(number)).mkdir()
            print(f"{root}:/mnt/{number}:ro", file=mounts)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
