"""Label images of TemplateFlow, by file name: from its folder, else over the network, never hanging.

The ``templateflow`` client is not used: it unpacks 2,540 empty files into an empty home when it is imported, fails
at import where the home cannot be written, and writes downloads in place, so that a parallel process can read half
a file. The names below are the archive's own, and a file fetched here is where that client would have put it.
"""

from __future__ import annotations

import csv
import hashlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from fcpower_bids.errors import DatasetError
from fcpower_bids.store import stored_path, write_bytes

STORE = "https://templateflow.s3.amazonaws.com"
RESOLUTIONS = ("02", "01")
CHECKSUMS = "checksums.tsv"
SECONDS_PER_FILE = 30.0
MAGIC = {"gz": b"\x1f\x8b", "nii": b"\x1c\x02\x00\x00"}
"""How a compressed file and a NIfTI-2 (CIFTI) file begin."""


def templateflow_home() -> Path:
    """Return the folder of TemplateFlow: ``TEMPLATEFLOW_HOME``, else the cache folder of the user."""
    declared = os.environ.get("TEMPLATEFLOW_HOME")
    if declared:
        return Path(declared).absolute()
    cache = (
        Path("~/Library/Caches") if sys.platform == "darwin" else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    )
    return cache.expanduser() / "templateflow"


def templateflow_atlas(
    query: Mapping[str, str], space: str, cache: Path | None = None, also_in: Sequence[Path] = ()
) -> tuple[Path, Path]:
    """Return the label image and the table of an atlas, fetching what is not there.

    Parameters
    ----------
    query : mapping
        ``atlas`` and optionally ``desc``, as in the file names of TemplateFlow.
    space : str
        Template.
    cache : Path, optional
        Used for what is fetched if the folder of TemplateFlow cannot be written.
    also_in : sequence of Path
        Folders that are searched first and never written, such as a prefetched one.

    Returns
    -------
    image, table : Path
        2 mm where it exists, else 1 mm.

    Raises
    ------
    DatasetError
        If a file is not there and cannot be fetched (no network, or ``FCPOWER_OFFLINE`` is set).
    """
    home = templateflow_home()
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
    """Put atlases into a folder that can serve as ``TEMPLATEFLOW_HOME``, with their checksums.

    Parameters
    ----------
    queries : sequence of (query, space)
        As in :func:`templateflow_atlas`.
    folder : Path
        Made if missing; ``checksums.tsv`` in it lists file, sha256 and bytes.
    addresses : sequence of str
        Files in fsLR that TemplateFlow does not have, where their authors give them.

    Returns
    -------
    Path
        ``checksums.tsv``, which lists every file, there before or fetched now.

    Raises
    ------
    DatasetError
        If a file cannot be fetched, or one that was there has changed since its checksum was written.
    """
    recorded = _read_checksums(folder)
    paths = [_obtain(names, space, [folder]) for query, space in queries for names in file_names(query, space)]
    for path in (*paths, *(_obtain_address(address, folder / "tpl-fsLR") for address in addresses)):
        name = path.relative_to(folder).as_posix()
        recorded[name] = _verify(path, recorded.get(name))
    rows = [f"{name}\t{digest}\t{(folder / name).stat().st_size}" for name, digest in sorted(recorded.items())]
    return write_bytes(folder / CHECKSUMS, ("\n".join(["file\tsha256\tbytes", *rows]) + "\n").encode())


def _obtain(names: Sequence[str], space: str, folders: Sequence[Path], also_in: Sequence[Path] = ()) -> Path:
    """Return the first of the names that is in a folder; else fetch the first that TemplateFlow has."""
    below = "tpl-" + space.replace("_", "/")  # a template of ages has a folder for each: tpl-MNIInfant/cohort-3
    for folder in (*also_in, *folders):
        for name in names:
            path = folder / below / name
            if path.is_file() and path.stat().st_size > 0:  # the client's stubs are empty files
                return path
    reasons = []
    for name in names:
        try:
            return _keep(_fetch(f"{STORE}/{below}/{name}"), Path(below, name), folders)
        except HTTPError as error:  # the archive answers, but has no such file: try the next name
            reasons.append(f"{name}: HTTP {error.code}")
        except OSError as error:
            reasons.append(f"{name}: {error}")
            break
    raise DatasetError(
        f"The TemplateFlow file {names[0]} is not in {folders[0]} and could not be fetched ({'; '.join(reasons)}). "
        "On a machine with network run 'fcpower_bids prefetch --atlas NAME --folder FOLDER', copy the folder here and "
        "set TEMPLATEFLOW_HOME to it; or give the atlas as FILE:TSV, or its folder with --atlas-dir."
    )


def _obtain_address(address: str, folder: Path) -> Path:
    """Return the file of an address, fetched into a folder if it is not there."""
    path = folder / address.rpartition("/")[2]
    if not path.is_file():
        try:
            write_bytes(path, _fetch(address))
        except OSError as error:
            raise DatasetError(
                f"{address} could not be fetched ({error}): download it on a machine with network and put it into a "
                "folder for --atlas-dir."
            ) from None
    return path


def _keep(content: bytes, name: Path, folders: Sequence[Path]) -> Path:
    """Write into the first folder that can be written."""
    for folder in folders[:-1]:
        try:
            return write_bytes(folder / name, content)
        except OSError:
            continue
    return write_bytes(folders[-1] / name, content)


def _fetch(url: str, seconds: float = SECONDS_PER_FILE) -> bytes:
    """Download within a time limit that also holds for name resolution, which no socket timeout covers."""
    if os.environ.get("FCPOWER_OFFLINE", "").lower() not in ("", "0", "false", "no", "off"):
        raise OSError("FCPOWER_OFFLINE is set")
    outcome: list[bytes | Exception] = []

    def download() -> None:
        try:
            with urlopen(url, timeout=seconds) as response:
                outcome.append(response.read())
        except Exception as error:
            outcome.append(error)

    worker = threading.Thread(target=download, daemon=True)
    worker.start()
    worker.join(seconds)
    if not outcome:
        raise TimeoutError(f"no answer within {seconds:g} s")
    if isinstance(outcome[0], OSError):
        raise outcome[0]
    if isinstance(outcome[0], Exception):
        raise OSError(str(outcome[0])) from outcome[0]
    if not outcome[0] or not outcome[0].startswith(MAGIC.get(url.rpartition(".")[2], b"")):
        raise OSError("the answer is not the file, perhaps the page of a login portal")
    return outcome[0]


def _verify(path: Path, recorded: str | None) -> str:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if recorded not in (None, digest):
        raise DatasetError(f"{path} has changed since it was fetched (sha256 {digest}): delete it and prefetch again.")
    return digest


def _read_checksums(folder: Path) -> dict[str, str]:
    path = folder / CHECKSUMS
    if not path.is_file():
        return {}
    with path.open(newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t")
        return {row["file"]: row["sha256"] for row in rows if stored_path(folder, row["file"]).is_file()}
