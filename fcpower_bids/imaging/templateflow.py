"""Label images of TemplateFlow, by file name: from its folder, else by its client in a process of its own.

Importing any part of the client fills ``TEMPLATEFLOW_HOME`` with 2,600 empty files, and it writes downloads in place.
So this module is also a program that fetches a file into a scratch folder, from which it is taken when it is whole.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from fcpower_bids.errors import DatasetError
from fcpower_bids.store import digest_of, stored_path, write_bytes

ARCHIVE = "https://templateflow.s3.amazonaws.com"
RESOLUTIONS = ("02", "01")
CHECKSUMS = "checksums.tsv"
LACKS = 3
"""Exit code of the program where the archive has none of the files."""
SECONDS = 120.0
"""The client unpacks and indexes its list of files first, which takes some seconds of processing."""
MAGIC = {"gz": b"\x1f\x8b", "nii": b"\x1c\x02\x00\x00"}
"""How a compressed file and a NIfTI-2 (CIFTI) file begin."""


def templateflow_atlas(
    query: Mapping[str, str], space: str, cache: Path | None = None, also_in: Sequence[Path] = ()
) -> tuple[Path, Path]:
    """Return the label image and the table of an atlas, fetching what is not there. Raises DatasetError."""
    system = "~/Library/Caches" if sys.platform == "darwin" else os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = Path(os.environ.get("TEMPLATEFLOW_HOME") or Path(system).expanduser() / "templateflow").absolute()
    folders = [home] if cache is None else [home, cache / "templateflow"]
    image_names, table_names = file_names(query, space)
    return _obtain(image_names, space, folders, also_in), _obtain(table_names, space, folders, also_in)


def file_names(query: Mapping[str, str], space: str) -> tuple[list[str], list[str]]:
    """Return the names that the label image, and its table, can have in TemplateFlow, the best first."""
    atlas = "_".join(f"{key}-{query[key]}" for key in ("atlas", "desc") if key in query)
    images = [f"tpl-{space}_res-{resolution}_{atlas}_dseg.nii.gz" for resolution in RESOLUTIONS]
    tables = [f"tpl-{space}_{atlas}_dseg.tsv"]
    tables += [f"tpl-{space}_res-{resolution}_{atlas}_dseg.tsv" for resolution in RESOLUTIONS]
    return images, tables


def prefetch_files(
    queries: Sequence[tuple[Mapping[str, str], str]], folder: Path, addresses: Sequence[str] = ()
) -> Path:
    """Put atlases into a folder that can serve as ``TEMPLATEFLOW_HOME``, with their checksums. Raises DatasetError."""
    recorded: dict[str, str] = {}
    if (folder / CHECKSUMS).is_file():
        with (folder / CHECKSUMS).open(newline="") as stream:
            rows = csv.DictReader(stream, delimiter="\t")
            recorded = {row["file"]: row["sha256"] for row in rows if stored_path(folder, row["file"]).is_file()}
    paths = [_obtain(names, space, [folder]) for query, space in queries for names in file_names(query, space)]
    for address in addresses:
        paths.append(path := folder / "tpl-fsLR" / address.rpartition("/")[2])
        if not path.is_file():
            try:
                write_bytes(path, _fetch([address], "")[1])
            except OSError as error:
                raise DatasetError(
                    f"{address} could not be fetched ({error}): download it on a machine with network and put it into "
                    "a folder for --atlas-dir."
                ) from None
    for path in paths:
        name = path.relative_to(folder).as_posix()
        digest = digest_of(path)
        if recorded.setdefault(name, digest) != digest:
            raise DatasetError(
                f"{path} has changed since it was fetched (sha256 {digest}): delete it and prefetch again."
            )
    lines = [f"{name}\t{digest}\t{(folder / name).stat().st_size}" for name, digest in sorted(recorded.items())]
    return write_bytes(folder / CHECKSUMS, ("\n".join(["file\tsha256\tbytes", *lines]) + "\n").encode())


def _obtain(names: Sequence[str], space: str, folders: Sequence[Path], also_in: Sequence[Path] = ()) -> Path:
    """Return the first of the names that is in a folder; else fetch the first that TemplateFlow has."""
    below = "tpl-" + space.replace("_", "/")  # a template of ages has a folder for each: tpl-MNIInfant/cohort-3
    for folder in (*also_in, *folders):
        for name in names:
            path = folder / below / name
            if path.is_file() and path.stat().st_size > 0:  # the client's stubs are empty files
                return path
    try:
        name, content = _fetch(names, space)
        for folder in folders[:-1]:  # the first that can be written
            with suppress(OSError):
                return write_bytes(folder / below / name, content)
        return write_bytes(folders[-1] / below / name, content)
    except OSError as error:
        reason = str(error)
    raise DatasetError(
        f"The TemplateFlow file {names[0]} is not in {folders[0]} and could not be fetched ({reason}). "
        "On a machine with network run 'fcpower_bids prefetch --atlas NAME --folder FOLDER', copy the folder here and "
        "set TEMPLATEFLOW_HOME to it; or give the atlas as FILE:TSV, or its folder with --atlas-dir."
    )


def _fetch(names: Sequence[str], space: str) -> tuple[str, bytes]:
    """Fetch the first of the names that TemplateFlow has, or an address; return its name with its content."""
    if os.environ.get("FCPOWER_OFFLINE", "").lower() not in ("", "0", "false", "no", "off"):
        raise OSError("FCPOWER_OFFLINE is set")
    with tempfile.TemporaryDirectory(prefix="templateflow-") as scratch:
        words = [sys.executable, "-m", "fcpower_bids.imaging.templateflow", ARCHIVE, space, *names]
        home = {"TEMPLATEFLOW_HOME": scratch, "TEMPLATEFLOW_AUTOUPDATE": "0", "TEMPLATEFLOW_USE_DATALAD": "0"}
        try:
            ended = subprocess.run(
                words, env={**os.environ, **home}, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"no answer within {SECONDS:g} s") from None
        if ended.returncode == LACKS:
            raise OSError("TemplateFlow has no such file")
        if ended.returncode:
            raise OSError((ended.stderr.strip().splitlines() or ["the TemplateFlow client ended without a word"])[-1])
        path = Path(ended.stdout.splitlines()[-1])
        content = path.read_bytes()
        if not content or not content.startswith(MAGIC.get(path.suffix[1:], b"")):
            raise OSError("the answer is not the file, perhaps the page of a login portal")
        return path.name, content


def main(arguments: Sequence[str]) -> int:
    """Fetch the first of the names that there is, or an address, and print where it is; return the exit code."""
    archive, template, *names = arguments
    if not template:
        path = Path(os.environ["TEMPLATEFLOW_HOME"], names[0].rpartition("/")[2])
        with urlopen(names[0], timeout=SECONDS) as response:
            write_bytes(path, response.read())
        sys.stdout.write(f"{path}\n")
        return 0
    # here alone: it fills the home of TemplateFlow
    from templateflow.client import TemplateFlowClient

    template, _, cohort = template.partition("_cohort-")
    client = TemplateFlowClient(autoupdate=False, s3_root=archive)
    known: dict[str, Any] = {"suffix": "dseg"} | ({"cohort": cohort} if cohort else {})
    listed = {path.name for path in client.ls(template, **known)}
    name = next((name for name in names if name in listed), "")
    if not name:
        return LACKS
    stem, _, extension = name.partition(".")
    labels = dict(part.split("-", 1) for part in stem.split("_") if "-" in part)
    query: dict[str, Any] = {"atlas": labels.get("atlas"), "desc": labels.get("desc"), "extension": f".{extension}"}
    query["resolution"] = int(labels["res"]) if "res" in labels else None
    sys.stdout.write(f"{client.get(template, **known, **query)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
