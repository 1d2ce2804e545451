"""Which folders hold the inputs, which raw datasets they were made from, and which dataset a recording is of."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.inputs.sources import is_hcp
from fcpower_bids.outputs.dataset import LABEL, linked_datasets
from fcpower_bids.outputs.tables import program_names, programs_in, read_json
from fcpower_bids.schema import is_table
from fcpower_bids.settings import Settings

OWN = "fcpower_bids"
PREPROCESSED = re.compile(r"fmriprep\d*|nibabies")
"""Names of derivatives that are read at participant level."""
OWN_FOLDER = (
    "{} is an output folder of fcpower_bids: give it as the output folder, after BIDS_DIR, or as a site of the group "
    "level, -d SITE={}."
)


def input_type_of(root: Path, stated: str | None = None) -> str:
    """Return which pipeline wrote a tree: as the user says, else as the tree shows; fMRIPrep where it shows nothing."""
    if stated is not None:
        return stated
    if not (root / "dataset_description.json").is_file():
        return "hcp" if is_hcp(root) else "fmriprep"
    try:
        return "nibabies" if "nibabies" in map(str.lower, program_names(root)) else "fmriprep"
    except DatasetError:
        return "fmriprep"  # its faults are reported where it is needed


def derivative_root(settings: Settings) -> tuple[str, Path]:
    """Return the name of the fMRIPrep dataset to read, and its folder. Raises DatasetError, UsageError."""
    bids_dir, given = settings.bids_dir, settings.inputs.derivatives
    check_input_folder(bids_dir)
    if len(given) > 1:
        raise UsageError(
            f"--derivatives names {len(given)} datasets, and an output folder holds one: run each into a folder of its "
            "own, then group -d one=OUT1 two=OUT2. Of people with scans in both make one tree, by links."
        )
    if given:
        match = None if Path(given[0]).exists() else re.fullmatch(r"([A-Za-z0-9_.+-]+)=(.+)", given[0])
        name, root = (match[1], Path(match[2])) if match else ("fmriprep", Path(given[0]))
    elif input_type_of(bids_dir, settings.inputs.input_type) == "hcp":
        name, root = "hcp", bids_dir
    else:
        name, root = "fmriprep", _implied_root(bids_dir)
    _check_dataset(root, input_type_of(root, settings.inputs.input_type) == "hcp")
    return name, root.absolute()


def output_folders(settings: Settings, output_dir: Path) -> dict[str, Path]:
    """Return the output folders that a group run reads, by the names of sites; without any its own. Raises UsageError.

    A person is then a label at a site: labels of two sites are not those of one person.
    """
    folders: dict[str, Path] = {}
    others = []
    for text in settings.inputs.derivatives:
        name, _, place = text.rpartition("=")
        root = Path(place).absolute()
        if not root.is_dir() or OWN not in program_names(root):
            others.append(text)
            continue
        if not LABEL.fullmatch(name) or "+" in name:
            raise UsageError(OWN_FOLDER.format(root, root) + " Its name has letters and digits.")
        if name.casefold() in map(str.casefold, folders) or any(root.samefile(other) for other in folders.values()):
            raise UsageError(f"--derivatives {text} names a site or a folder twice. Give each a name of its own.")
        folders[name] = root
    if folders and others:
        raise UsageError(
            f"--derivatives {others[0]} is no output folder of fcpower_bids, as the others are: run the group level "
            "with it first, into a folder of its own, and name that one."
        )
    return folders or {"": output_dir}


def check_input_folder(folder: Path, kind: str = "input") -> None:
    """Refuse a folder that is not there, whose name and tables are needed. Raises DatasetError."""
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise DatasetError(f"The {kind} folder {folder} {what}. Check the path (and the mount of a container).")


def _implied_root(bids_dir: Path) -> Path:
    path = bids_dir / "dataset_description.json"
    description = read_json(path) if path.is_file() else {}
    kind = description.get("DatasetType")
    # Before DatasetType existed, fMRIPrep named itself in PipelineDescription.
    if kind == "derivative" or (kind is None and {"PipelineDescription", "GeneratedBy"} & set(description)):
        return bids_dir
    root = bids_dir / "derivatives" / "fmriprep"
    if root.is_dir():
        return root
    if not path.exists() and any(bids_dir.glob("sub-*")):
        return bids_dir
    raise DatasetError(
        f"{bids_dir} has no fMRIPrep derivatives: there is no {root}. Give the folder that fMRIPrep wrote to, as the "
        "input folder or with --derivatives."
    )


def _check_dataset(root: Path, no_bids: bool) -> None:
    check_input_folder(root, "derivatives")
    path = root / "dataset_description.json"
    if not no_bids and not path.is_file():
        raise DatasetError(
            f"{root} has no dataset_description.json, so it is no BIDS dataset. Give the folder that fMRIPrep wrote it "
            "to, or put that file there."
        )
    if not os.access(root, os.R_OK | os.X_OK):
        raise DatasetError(f"{root} may not be read. Give yourself read access to it.")
    if path.is_file() and not isinstance(read_json(path).get("GeneratedBy", []), list):  # pybids stumbles over it
        raise DatasetError(
            f'GeneratedBy in {path} must be a list: write it as [{{"Name": "fMRIPrep"}}], or take the line out.'
        )


def raw_roots(settings: Settings, root: Path) -> tuple[Path, ...]:
    """Return the datasets that may hold the scanner's JSON files, the most trusted last."""
    holders = [parent.parent for parent in root.parents if parent.name == "derivatives"]
    candidates = dict.fromkeys([*reversed(holders), settings.bids_dir.absolute()])
    return tuple(path for path in candidates if path != root)


DESCRIPTION = "dataset_description.json"
DESCRIBING = ("Name", "Authors", "SourceDatasets")
"""Entries of a description that stay when the dataset grows, is preprocessed anew, or gets a licence."""
ACCESSION = re.compile(r"(?i)openneuro[./](ds\d{6})\b")
"""OpenNeuro gives every version of a dataset another DOI; the people are the same."""


def dataset_identity(bids_dir: Path) -> str:
    """Return one word for a dataset: its DOI, else Name and a digest; empty where its description has neither."""
    return dataset_names(bids_dir).partition(" ")[0]


def dataset_names(bids_dir: Path) -> str:
    """Return all words by which a dataset can be known, that of `dataset_identity` first: a DOI may come later."""
    names = (name for description in _descriptions(bids_dir.absolute()) for name in _names(description))
    return " ".join(dict.fromkeys(names))


def _descriptions(folder: Path) -> Iterator[Mapping[str, Any]]:
    """The description of the dataset that a derivative lies in, and its own."""
    places = [folder.parents[1]] if folder.parent.name == "derivatives" else []
    for place in (*places, folder):
        if (path := place / DESCRIPTION).is_file():
            yield read_json(path)


def dataset_terms(bids_dir: Path) -> dict[str, str]:
    """Licence and citation of a dataset, or of the one that a derivative was made of; n/a where none is stated."""
    descriptions = list(_descriptions(bids_dir.absolute()))
    # A derivative says how to acknowledge the program that made it.
    asked = [
        description.get("HowToAcknowledge")
        for description in descriptions
        if description.get("DatasetType") != "derivative"
    ]
    known = {
        "licence": [description.get("License") for description in descriptions],
        "citation": asked + [doi for description in descriptions for doi in _dois(description)],
    }
    return {key: " ".join(str(next(filter(None, values), "n/a")).split()) for key, values in known.items()}


def _dois(description: Mapping[str, Any]) -> list[str]:
    sources = description.get("SourceDatasets") or []
    dois = [source.get("DOI") for source in sources if isinstance(source, Mapping)] if isinstance(sources, list) else []
    return [str(doi) for doi in (*dois, description.get("DatasetDOI")) if doi and _short(str(doi))]


def _names(description: Mapping[str, Any]) -> Iterator[str]:
    yield from map(_short, _dois(description))
    name = re.sub(r"[^A-Za-z0-9]+", "-", str(description.get("Name") or "")).strip("-")
    makers = (*(str(program.get("Name", "")) for program in programs_in(description)), "fMRIPrep")
    # fMRIPrep gives all of its outputs one Name
    starts = [maker.casefold().replace("_", "-") for maker in makers if maker]
    if name and not name.casefold().startswith(tuple(starts)):
        text = json.dumps({key: description.get(key) for key in DESCRIBING}, sort_keys=True)
        yield f"{name[:40]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _short(doi: str) -> str:
    """``doi:10.5281/zenodo.12`` as ``10.5281-zenodo.12``."""
    if match := ACCESSION.search(doi):
        return match[1].lower()
    bare = re.sub(r"(?i)^\s*(?:https?://(?:dx\.)?doi\.org/|doi:\s*)", "", doi).strip().lower()
    return re.sub(r"[^a-z0-9.+_-]+", "-", bare).strip("-.")


def people_tables(output_dir: Path, notes: list[str]) -> list[Path]:
    """Return ``participants.tsv`` of the inputs that outputs link to, or of the datasets that these were made of.

    A link of outputs that were copied may lead to another study: what is left out for that is added to `notes`.
    """
    words = dataset_words(output_dir)
    found: dict[Path, None] = {}
    for root in linked_datasets(output_dir).values():
        tables = [table for place in _datasets_of(root) if is_table(table := place / "participants.tsv")]
        if tables and is_another(root.resolve(), words):
            notes.append(
                f"{tables[0]} is of another dataset than the recordings in {output_dir}, and is not read: correct the "
                "DatasetLinks there, or give --phenotypes."
            )
        else:
            found |= dict.fromkeys(tables)
    return list(found)


def dataset_words(output_dir: Path) -> list[str]:
    """Return the words by which the dataset of the recordings in outputs is known, by the first sidecar."""
    sidecar = next(chain(output_dir.glob("sub-*/func/*_qc.json"), output_dir.glob("sub-*/ses-*/func/*_qc.json")), None)
    with suppress(DatasetError):  # it is damaged, for which the scan is left out
        return str(read_json(sidecar).get("Dataset", "")).split() if sidecar else []
    return []


def is_another(folder: Path, words: Collection[str]) -> bool:
    """Whether a dataset has names and none of them is among these words, whatever its authors are."""
    both = dataset_names(folder).split(), words
    stems, known = ({re.sub("-[0-9a-f]{8}$", "", word) for word in some} for some in both)
    return bool(stems and known) and stems.isdisjoint(known)


def is_of_others(bids_dir: Path, output_dir: Path) -> bool:
    """Whether neither the description of a dataset nor the links of outputs say that the recordings there are of it."""
    linked = {root.resolve() for root in linked_datasets(output_dir).values()}
    return bids_dir.resolve() not in linked and is_another(bids_dir, dataset_words(output_dir))


def people_home(bids_dir: Path) -> Path:
    """Return the folder with the tables of people: that which was given, or the dataset that it was made of."""
    places = [bids_dir, *_datasets_of(bids_dir)[1:]]
    return next((place for place in places if is_table(place / "participants.tsv")), bids_dir)


def people_beside(bids_dir: Path, root: Path) -> Path | None:
    """Return `bids_dir` where it has a table of people that is found by no link to the derivatives in `root`."""
    place = bids_dir.resolve()
    return bids_dir if place not in _datasets_of(root) and is_table(place / "participants.tsv") else None


def _datasets_of(root: Path) -> list[Path]:
    """The dataset of a folder, and the one that it was made of."""
    root = root.resolve()
    return [root, root.parents[1]] if root.parent.name == "derivatives" else [root]
