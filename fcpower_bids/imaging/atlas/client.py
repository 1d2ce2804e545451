"""Fetch one label image or table by the TemplateFlow client: a program of its own.

Importing any part of the client fills ``TEMPLATEFLOW_HOME`` with 2,600 empty files, and it writes downloads in place.
So `templateflow` starts this with a scratch folder as home, and takes the file over when it is whole.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

LACKS = 3
"""Exit code where the archive has none of the files."""


def main(arguments: Sequence[str]) -> int:
    """Fetch the first of the names that the archive has, and print where it is; returns the exit code."""
    # here alone: it fills the home of TemplateFlow
    from templateflow.client import TemplateFlowClient

    archive, template, *names = arguments
    template, _, cohort = template.partition("_cohort-")
    client = TemplateFlowClient(autoupdate=False, s3_root=archive)
    known: dict[str, Any] = {"suffix": "dseg"} | ({"cohort": cohort} if cohort else {})
    listed = {path.name for path in client.ls(template, **known)}
    for name in (name for name in names if name in listed):
        found = client.get(template, **known, **_entities(name))
        sys.stdout.write(f"{found}\n")
        return 0
    return LACKS


def _entities(name: str) -> dict[str, Any]:
    """Entities in the name of a file, as the client calls them; None for those that it must not have."""
    stem, _, extension = name.partition(".")
    labels = dict(part.split("-", 1) for part in stem.split("_") if "-" in part)
    resolution = int(labels["res"]) if "res" in labels else None
    return {
        "atlas": labels.get("atlas"),
        "desc": labels.get("desc"),
        "resolution": resolution,
        "extension": f".{extension}",
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
