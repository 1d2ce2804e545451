"""Files of atlases: names, declared short names, tables of parcels, and label images of TemplateFlow by their names.

The latter are in its folder, else its client fetches them in a process of its own: importing any part of the client
fills ``TEMPLATEFLOW_HOME`` with 2,600 empty files, and it writes downloads in place. So this module is also a program
that fetches a file into a scratch folder, from which it is taken when it is whole.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.records import Entities, space_of
from fcpower_bids.schema import table_fault
from fcpower_bids.store import digest_of, load_json, write_bytes

BUILTIN, ENTITIES = ("builtin", "demo"), (("atlas", "fcpowerbuiltin"), ("scale", "60"))
"""Names and entities of the parcellation that comes with the program."""
EXTENSIONS = (".dlabel.nii", ".nii.gz", ".nii")
NAMING = ("atlas", "seg", "scale")
SPATIAL = ("tpl", "space", "cohort", "res", "den", "hemi")
PREFERRED = ("02", "2", "01", "1", "91k", "32k")
"""Resolutions, and densities of surfaces, the first that is there."""


class AtlasFile(NamedTuple):
    """A label image and what its name says."""

    path: Path
    chunks: dict[str, str]

    @property
    def space(self) -> str | None:
        """The template, if the name declares one."""
        return space_of(self.chunks)

    @property
    def entities(self) -> Entities:
        """Entities for output names; ``atlas-HOSPA_desc-th25`` becomes ``atlas-HOSPAth25``; else the stem."""
        if "atlas" not in self.chunks:
            parts = stem_of(self.path).split("_")
            words = "".join(part for part in parts if part != "dseg" and part.split("-")[0] not in SPATIAL)
            plain = (re.sub(r"[^A-Za-z0-9]", "", text) for text in (words, "".join(parts)))
            if not (label := next(filter(None, plain), "")):
                raise UsageError(f"{self.path} has no plain letter or digit in its name, by which outputs are called.")
            return (("atlas", label),)
        label = self.chunks["atlas"] + self.chunks.get("desc", "")
        return (("atlas", label), *((key, self.chunks[key]) for key in NAMING[1:] if key in self.chunks))

    @property
    def is_cifti(self) -> bool:
        """Whether it is a CIFTI ``dlabel``."""
        return self.path.name.endswith(".dlabel.nii")


def parse_name(path: Path) -> AtlasFile:
    """Read the ``key-value`` chunks of a file name."""
    pairs = (chunk.split("-", 1) for chunk in stem_of(path).split("_") if "-" in chunk)
    return AtlasFile(path, {key: value for key, value in pairs if key.isalpha() and value.isalnum()})


def stem_of(path: Path) -> str:
    """Return the name of an image without its extension."""
    extension = next((extension for extension in EXTENSIONS if path.name.endswith(extension)), path.suffix)
    return path.name.removesuffix(extension)


def parse_selector(selector: str) -> dict[str, str]:
    """Read ``Schaefer2018_seg-7n_scale-400``, with or without ``atlas-`` in front. Raises UsageError."""
    first, *others = selector.split("_")
    chunks = [first if "-" in first else f"atlas-{first}", *others]
    if not all(re.fullmatch(r"[A-Za-z]+-[A-Za-z0-9]+", chunk) for chunk in chunks):
        raise UsageError(f"'{selector}' does not select an atlas: write it like Schaefer2018_seg-7n_scale-400.")
    return dict(chunk.split("-", 1) for chunk in chunks)


def find_files(folder: Path, selector: Mapping[str, str], space: str, cifti: bool) -> list[AtlasFile]:
    """Return the label images of a dataset that match, one per atlas (2 mm preferred), ordered by name."""

    def rank(image: AtlasFile) -> tuple[int, str]:
        resolution = image.chunks.get("res") or image.chunks.get("den") or ""
        return (PREFERRED.index(resolution) if resolution in PREFERRED else len(PREFERRED), image.path.name)

    best: dict[Entities, AtlasFile] = {}
    for image in sorted(label_images(folder), key=rank):
        if image.space == space and image.is_cifti == cifti and selector.items() <= image.chunks.items():
            best.setdefault(image.entities, image)
    return [best[entities] for entities in sorted(best)]


def pick_file(folder: Path, selector: Mapping[str, str], space: str, cifti: bool) -> AtlasFile:
    """Return the one label image of a dataset that matches. Raises UsageError."""
    matches = find_files(folder, selector, space, cifti)
    if len(matches) == 1:
        return matches[0]
    if matches:
        choices = ", ".join(_selector_of(file) for file in matches)
        raise UsageError(f"{folder} has several atlases in {space}: add one of them after a colon: {choices}.")
    kind = "CIFTI (dlabel)" if cifti else "NIfTI"
    others = {f"{_selector_of(file)} in {file.space}" for file in label_images(folder) if file.is_cifti == cifti}
    there = "; ".join(sorted(others)) or "none"
    wanted = "".join(f" {key}-{value}" for key, value in selector.items())
    raise UsageError(f"{folder} has no {kind} label image (*_dseg){wanted} in space {space}. It has: {there}.")


def label_images(folder: Path) -> list[AtlasFile]:
    """Return every ``dseg`` of a folder and of those below it."""
    paths = [path for extension in EXTENSIONS for path in folder.rglob(f"*_dseg{extension}")]
    return [parse_name(path) for path in sorted(set(paths))]


def table_beside(image: Path) -> Path | None:
    """Return the TSV of an image's name, or of fewer entities, in its folder or two above; the nearest; or None."""
    stem = stem_of(image)
    if (same := image.with_name(f"{stem}.tsv")).is_file():
        return same
    known = parse_name(image).chunks.items()
    if "atlas" not in dict(known):
        return None
    for folder in image.absolute().parents[:3]:
        tables = [parse_name(path) for path in sorted(folder.glob("*_dseg.tsv"))]
        fitting = [table for table in tables if "atlas" in table.chunks and table.chunks.items() <= known]
        if fitting:
            return max(fitting, key=lambda table: len(table.chunks)).path
    return None


def describe_dataset(folder: Path, atlas: str) -> tuple[str, str]:
    """Return licence and citation from ``atlas-<label>_description.json`` or ``dataset_description.json``."""
    for name in (f"atlas-{atlas}_description.json", "dataset_description.json"):
        for path in (folder / name, folder.parent / name):
            try:
                description = load_json(path)
            except (OSError, ValueError):
                continue
            references = description.get("ReferencesAndLinks") or ["n/a"]
            references = references if isinstance(references, list) else [references]
            return str(description.get("License") or "n/a"), "; ".join(map(str, references))
    return "n/a", "n/a"


def _selector_of(file: AtlasFile) -> str:
    chunks = [f"{key}-{value}" for key, value in file.chunks.items() if key not in SPATIAL]
    return "_".join(chunks).removeprefix("atlas-")


@dataclass(frozen=True)
class Declaration:
    """Declaration of one short name in ``data/atlases/*.json``."""

    name: str  # spelling of the user
    entities: Entities  # how outputs and BIDS-Atlas folders name it
    # ``atlas`` and ``desc`` in TemplateFlow; empty where it has none
    templateflow: Mapping[str, str] = field(default_factory=dict)
    spaces: tuple[str, ...] = ()  # templates in which TemplateFlow has it
    parts: tuple[str, ...] = ()  # short names to merge, in order; empty for an atlas of its own
    network: str = "n/a"  # network of every parcel, where the table of the atlas knows none; or "n/a"
    # licence, citation: as stated by the authors
    licence: str = "n/a"
    citation: str = "n/a"
    where: str = ""  # how to get an atlas that TemplateFlow does not have
    also: Mapping[str, str] = field(default_factory=dict)  # entities of the same atlas in the folders of other programs
    dlabel: str = ""  # file name under which its authors give it in fsLR; empty where it has none
    # folder of the web in which that file is, at a commit that cannot change; empty where there is none
    address: str = ""


@cache
def declared_atlases() -> dict[str, Declaration]:
    """Return every declared atlas by its short name."""
    declared: dict[str, Declaration] = {}
    folder = files("fcpower_bids") / "data" / "atlases"
    for source in sorted(folder.iterdir(), key=lambda file: file.name):
        if source.name.endswith(".json"):
            family = json.loads(source.read_text(encoding="utf-8"))
            shared = {key: family[key] for key in ("licence", "citation", "where", "address") if key in family}
            for name, entry in family["atlases"].items():
                lists = {key: tuple(entry[key]) for key in ("spaces", "parts") if key in entry}
                about = {**entry, **shared, **lists, "entities": tuple(entry["entities"].items())}
                declared[name] = Declaration(name=name, **about)
    return declared


def split_parts(spec: str) -> list[str]:
    """Parts of ``A+B``; the specification alone where what has that sign is a path, or a file of names, that exists."""
    head, colon, qualifier = spec.rpartition(":")
    of_path = colon and _exists(head) and ("+" not in qualifier or _exists(qualifier))
    return [spec] if "+" not in spec or _exists(spec) or of_path else [part.strip() for part in spec.split("+")]


def _exists(path: str) -> bool:
    return Path(path).expanduser().exists()


def declared_merge(parts: Sequence[str]) -> Entities | None:
    """Return the entities of the declared atlas that is merged of these; None where there is none."""
    return next((known.entities for known in declared_atlases().values() if [*known.parts] == [*parts]), None)


def merged_entities(parts: Sequence[Mapping[str, str]]) -> Entities:
    """``TianS3`` and ``Schaefer2018 7n`` become ``TianS3Schaefer2018 7n``; nothing where a part has no name."""
    if not all("atlas" in chunks for chunks in parts):
        return ()
    segs = "".join(dict.fromkeys(chunks["seg"] for chunks in parts if "seg" in chunks))
    return (("atlas", "".join(chunks["atlas"] for chunks in parts)), *([("seg", segs)] if segs else []))


UNSTATED = "n/a"
NO_NAMES = (UNSTATED, "nan", "node")
BACKGROUND = ("", "???", "0", "n/a", "background", "unknown", "unlabeled", "unlabelled", "none")
LABEL_COLUMNS = ("index", "label", "value", "id")
NAME_COLUMNS = ("name", "label", "region")
NETWORK_COLUMNS = ("network", "network_label", "community")
HEMISPHERE_COLUMNS = ("hemisphere", "hemi")
SIDES = ("l", "lh", "left", "r", "rh", "right")
SCHAEFER_NAME = re.compile(r"^(?:7|17)Networks_(LH|RH)_([A-Za-z]+)")
# A lone letter in the middle is something else: "HIP-head-l-rh" is the lateral part of a right hippocampus.
SIDE = re.compile(r"(?:^|[-_. ])(lh|rh|left|right)(?:[-_. ]|$)|^([lr])[-_. ]|[-_. ]([lr])$", re.IGNORECASE)


class AtlasTable(NamedTuple):
    """One entry per parcel in the order of the outputs; as in :class:`fcpower_bids.records.Atlas`."""

    labels: tuple[int, ...]
    names: tuple[str, ...]
    networks: tuple[str, ...]
    hemispheres: tuple[str, ...]


def read_atlas_table(path: Path) -> AtlasTable:
    """Read a BIDS ``dseg.tsv`` or anything close to one; rows are parcels in their order. Raises UsageError."""
    rows = _read_rows(path)
    whole = (name for name in LABEL_COLUMNS if all(re.fullmatch(r"[+-]?\d+", row.get(name, "")) for row in rows))
    label_column = next(whole, None)
    if label_column is None:
        raise UsageError(
            f"The table {path} has no column 'index' of whole numbers (its columns: {', '.join(rows[0])}): "
            "add the label of each parcel in the image, tab-separated."
        )
    name_column = next((name for name in NAME_COLUMNS if name in rows[0] and name != label_column), None)
    if name_column is None:
        raise UsageError(f"The table {path} has no column 'name': add one, tab-separated, next to '{label_column}'.")
    labels = [int(row[label_column]) for row in rows]
    for label, row in zip(labels, rows, strict=True):
        if label < 0 or (label == 0 and row[name_column].lower() not in BACKGROUND):
            raise UsageError(
                f"The table {path} gives '{row[name_column]}' the label {label}, but 0 is the background of a label "
                "image: number the regions as the image does."
            )
    regions = [row for label, row in zip(labels, rows, strict=True) if label > 0]
    if not regions:
        raise UsageError(f"The table {path} has no parcels: give a row per label above 0.")
    return make_table(
        [label for label in labels if label > 0],
        [row[name_column] for row in regions],
        *(
            next(([row[name] for row in regions] for name in candidates if name in rows[0]), None)
            for candidates in (NETWORK_COLUMNS, HEMISPHERE_COLUMNS)
        ),
        origin=path,
    )


def make_table(
    labels: Sequence[int],
    names: Sequence[str],
    networks: Sequence[str] | None = None,
    hemispheres: Sequence[str] | None = None,
    *,
    origin: Path,
) -> AtlasTable:
    """Check labels and complete unique names, networks and hemispheres, from names. Raises UsageError."""
    if not labels:
        raise UsageError(f"{origin} has no parcels: give a label image with labels above 0.")
    repeated = [str(label) for label, count in Counter(labels).items() if count > 1]
    if repeated:
        raise UsageError(f"The table {origin} has label {', '.join(repeated)} more than once: keep one row per label.")
    unique = unique_names(labels, [" ".join(name.split()) for name in names])
    stated = [
        ["" if value.lower() in ("", UNSTATED, "nan") else value for value in column or [""] * len(labels)]
        for column in (networks, hemispheres)
    ]
    rows = list(zip(*stated, unique, strict=True))
    return AtlasTable(
        labels=tuple(int(label) for label in labels),
        names=unique,
        networks=tuple(network or network_of(name) for network, _, name in rows),
        hemispheres=tuple(
            (side[0].upper() if side.lower() in SIDES else side) or hemisphere_of(name) for _, side, name in rows
        ),
    )


def unique_names(labels: Sequence[int], names: Sequence[str]) -> tuple[str, ...]:
    """Name parcels differently, by label too where needed, and as neither a missing value nor a formula."""
    plain = [name.lstrip("=+-@ ") for name in names]
    plain = ["" if name.lower() in NO_NAMES else name for name in plain]
    named = [name or f"parcel{label:03d}" for label, name in zip(labels, plain, strict=True)]
    counts = Counter(named)
    unique: dict[str, None] = {}
    for label, name in zip(labels, named, strict=True):
        distinct = name if counts[name] == 1 else f"{name}_{label}"
        while distinct in unique or (distinct != name and distinct in counts):
            distinct = f"{distinct}_{label}"
        unique[distinct] = None
    return tuple(unique)


def network_of(name: str) -> str:
    """Return the network in a Schaefer name (``7Networks_LH_Vis_1`` is in ``Vis``), or "n/a"."""
    match = SCHAEFER_NAME.match(name)
    return match.group(2) if match else UNSTATED


def hemisphere_of(name: str) -> str:
    """Return "L" or "R" where the name says so as a word of its own (``HIP-head-rh``), or "n/a"."""
    match = SIDE.search(name)
    return next(filter(None, match.groups()))[0].upper() if match else UNSTATED


def encode_table(table: AtlasTable) -> bytes:
    """Return the table as a BIDS ``dseg.tsv``."""
    rows = ["index\tname\tnetwork\themisphere"]
    rows += ["\t".join(map(str, row)) for row in zip(*table, strict=True)]
    return ("\n".join(rows) + "\n").encode()


def _read_rows(path: Path) -> list[dict[str, str]]:
    try:
        if (fault := table_fault(path)) is not None:
            raise UsageError(f"The atlas table {path} {fault}.")
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, delimiter="\t", restval="", restkey="more")
            rows = [{str(key).strip().lower(): str(value).strip() for key, value in row.items()} for row in reader]
    except FileNotFoundError:
        raise UsageError(f"The atlas table {path} does not exist: check the path.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"The atlas table {path} cannot be read ({error}): save it as tab-separated UTF-8.") from error
    if not rows:
        raise UsageError(f"The atlas table {path} has no rows: give one per parcel, tab-separated, under a header.")
    return rows


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
    there = sorted({*paths, *folder.glob("tpl-*/**/*_dseg.*"), *folder.glob("tpl-*/*.dlabel.nii")})
    lines = [f"{path.relative_to(folder).as_posix()}\t{digest_of(path)}\t{path.stat().st_size}" for path in there]
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
        words = [sys.executable, "-m", "fcpower_bids.imaging.atlas_files", ARCHIVE, space, *names]
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
        from urllib.request import urlopen  # takes longer than all else here

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
