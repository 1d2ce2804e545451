"""Which dataset a recording is of, whatever the folder of that dataset is called."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fcpower_bids.errors import UsageError
from fcpower_bids.inputs.spreadsheets import is_table
from fcpower_bids.outputs.dataset import linked_datasets
from fcpower_bids.outputs.tables import read_json

DESCRIPTION = "dataset_description.json"
DESCRIBING = ("Name", "Authors", "License", "Funding", "EthicsApprovals", "ReferencesAndLinks", "SourceDatasets")
"""Entries of a description that stay when the dataset grows or is preprocessed anew."""
ACCESSION = re.compile(r"(?i)openneuro[./](ds\d{6})\b")
"""OpenNeuro gives every version of a dataset another DOI; the people are the same."""
ALLOWED = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")


def dataset_identity(bids_dir: Path, name: str | None = None) -> str:
    """Return one word for a dataset: the name given, else its DOI, else Name and a digest. Raises UsageError."""
    if name:
        if not ALLOWED.fullmatch(name):
            raise UsageError(f"dataset_name {name} must be letters, digits, '.', '+', '_' and '-'.")
        return name
    return next((found for one in _descriptions(bids_dir.absolute()) for found in _names(one)), "")


def _descriptions(folder: Path) -> Iterator[Mapping[str, Any]]:
    """The description of the dataset that a derivative lies in, and its own."""
    places = [folder.parents[1]] if folder.parent.name == "derivatives" else []
    for place in (*places, folder):
        if (path := place / DESCRIPTION).is_file():
            yield read_json(path)


def dataset_terms(bids_dir: Path) -> dict[str, str]:
    """Licence and citation of a dataset, or of the one that a derivative was made of; n/a where none is stated."""
    each = list(_descriptions(bids_dir.absolute()))
    # A derivative says how to acknowledge the program that made it.
    asked = [one.get("HowToAcknowledge") for one in each if one.get("DatasetType") != "derivative"]
    known = {
        "licence": [one.get("License") for one in each],
        "citation": asked + [doi for one in each for doi in _dois(one)],
    }
    return {key: " ".join(str(next(filter(None, found), "n/a")).split()) for key, found in known.items()}


def _dois(description: Mapping[str, Any]) -> list[str]:
    sources = description.get("SourceDatasets") or []
    dois = [one.get("DOI") for one in sources if isinstance(one, Mapping)] if isinstance(sources, list) else []
    return [str(doi) for doi in (*dois, description.get("DatasetDOI")) if doi and _short(str(doi))]


def _names(description: Mapping[str, Any]) -> Iterator[str]:
    yield from map(_short, _dois(description))
    name = re.sub(r"[^A-Za-z0-9]+", "-", str(description.get("Name") or "")).strip("-")
    programs = description.get("GeneratedBy") or []
    made_by = (
        [str(one.get("Name", "")) for one in programs if isinstance(one, Mapping)] if isinstance(programs, list) else []
    )
    # fMRIPrep gives all of its outputs one Name
    starts = [each.casefold().replace("_", "-") for each in (*made_by, "fMRIPrep") if each]
    if name and not name.casefold().startswith(tuple(starts)):
        said = json.dumps({key: description.get(key) for key in DESCRIBING}, sort_keys=True)
        yield f"{name[:40]}-{hashlib.sha256(said.encode()).hexdigest()[:8]}"


def _short(doi: str) -> str:
    """``doi:10.5281/zenodo.12`` as ``10.5281-zenodo.12``."""
    if found := ACCESSION.search(doi):
        return found[1].lower()
    bare = re.sub(r"(?i)^\s*(?:https?://(?:dx\.)?doi\.org/|doi:\s*)", "", doi).strip().lower()
    return re.sub(r"[^a-z0-9.+_-]+", "-", bare).strip("-.")


def people_tables(output_dir: Path) -> list[Path]:
    """Return ``participants.tsv`` of the inputs that outputs link to, or of the datasets that these were made of."""
    found = []
    for root in (folder.resolve() for folder in linked_datasets(output_dir).values()):
        places = (root, root.parents[1]) if root.parent.name == "derivatives" else (root,)
        found += [table for place in places if is_table(table := place / "participants.tsv")]
    return found
