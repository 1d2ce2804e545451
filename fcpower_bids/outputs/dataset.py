"""The output dataset: names of files, description, ``.bidsignore``, README, atlas copies, BIDS URIs.

This is the one place that knows which names are drafts of BIDS. Order and keys are those of BIDS 1.11.1. ``relmat`` is
BEP017's draft (2024-11), ``stat-`` and the region ``timeseries`` are BEP012's draft (2024-09): when they are released
with other names, this module is what changes.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlparse

import pandas as pd

from fcpower_bids._version import __version__
from fcpower_bids.encoders import embedding_label
from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.outputs.tables import json_text, made_by, program_names, read_json, read_table, table_text
from fcpower_bids.records import Atlas, Entities, Output, join
from fcpower_bids.settings import Settings
from fcpower_bids.store import LOCKS, atomic, lock, write_shared
from fcpower_bids.transforms.connectomes import make_transform

BIDS_VERSION = "1.11.1"
ENTITY_ORDER = (
    *("sub", "tpl", "ses", "cohort", "sample", "task", "tracksys", "acq", "nuc", "voi", "ce", "trc", "stain", "rec"),
    *("dir", "run", "mod", "echo", "flip", "inv", "mt", "part", "proc", "hemi", "space", "split", "recording"),
    *("chunk", "atlas", "seg", "scale", "res", "den", "label", "stat", "desc"),
)
LABEL = re.compile(r"[A-Za-z0-9+]+")
ATLAS_KEYS = frozenset({"atlas", "seg", "scale"})

TIMESERIES = Output("timeseries", (("stat", "mean"),))
COVERAGE = Output("bold", (("stat", "coverage"),))
COVERAGE_END = "_stat-coverage_bold.tsv"
CONNECTIVITY = Output("relmat", (("stat", "pearsoncorrelation"),))
DESIGN = Output("design", (("desc", "confounds"),))
OUTLIERS = Output("outliers", (("desc", "confounds"),))
QUALITY = Output("qc", (("desc", "fcpower"),))
SPECTRUM = Output("eigenvalues", (("desc", "spectrum"),))
BEFORE = "_stat-mean_desc-before_timeseries.npz"
"""End of the names of previews, which only a page reads: a recording is finished without them."""

BIDSIGNORE = (
    *("*_timeseries.*", "*_relmat.*", "*_design.*", "*_outliers.*", "*_qc.*", "*_embedding.*", "*_eigenvalues.*"),
    *("*stat-coverage_bold.*", "*.html", "exclude.tsv", "recordings.tsv", "layout_config.json"),
    *("figures", "group", "logs", "work", "corpus", "encoder"),
)
PYBIDS = {
    "name": "fcpower_bids",
    "entities": [{"name": key, "pattern": f"_{key}-([a-zA-Z0-9+]+)"} for key in ("seg", "scale", "stat")],
}
"""Entities that stock pybids does not know; ``layout_config.json`` is where it looks for them by itself."""


def order_entities(*parts: Entities) -> Entities:
    """Merge entities, later ones winning, in the order of the specification. Raises DatasetError."""
    merged = {key: value for part in parts for key, value in part}
    for key, value in merged.items():
        if not LABEL.fullmatch(value):
            raise DatasetError(f"The label '{value}' of '{key}-' is not alphanumeric, so no BIDS name can hold it.")
    rank = {key: place for place, key in enumerate(ENTITY_ORDER)}
    ordered = sorted(merged, key=lambda key: (rank.get(key, len(rank) - 1.5), key))
    return tuple((key, merged[key]) for key in ordered)


def output_folder(output_dir: Path, entities: Entities) -> Path:
    """Return ``output_dir/sub-X[/ses-Y]/func``."""
    labels = dict(entities)
    parts = [f"sub-{labels['sub']}"] + ([f"ses-{labels['ses']}"] if "ses" in labels else [])
    return output_dir.joinpath(*parts, "func")


def path_of(output_dir: Path, recording: Entities, atlas: Entities, output: Output) -> Path:
    """Return where one output is, by the entities of its recording and of its atlas."""
    named = join(order_entities(recording, atlas, output.entities))
    return output_folder(output_dir, recording) / f"{named}_{output.suffix}{output.extension}"


def parse_name(name: str) -> tuple[Entities, str, str]:
    """Split a file name into entities, suffix and extension. Raises ValueError."""
    head, _, end = name.rpartition("_")  # a label with a dot is no beginning of an extension
    suffix, dot, extension = end.partition(".")
    pairs = head.split("_")
    if not all("-" in pair for pair in pairs) or not dot:
        raise ValueError(f"'{name}' is not a BIDS file name.")
    entities = tuple((pair.partition("-")[0], pair.partition("-")[2]) for pair in pairs)
    return entities, suffix, dot + extension


def folders_of(output_dir: Path, recording: Entities) -> tuple[Path, Path]:
    """Return the folders in which files of a recording are: its outputs, and what its page shows."""
    return output_folder(output_dir, recording), output_dir / f"sub-{dict(recording)['sub']}" / "figures"


def files_of(output_dir: Path, recording: Entities) -> list[Path]:
    """Return every file that there is of a recording, under any parcellation, and its previews."""
    there = (path for folder in folders_of(output_dir, recording) for path in folder.glob("sub-*"))
    return sorted(path for path in there if is_file_of(path.name, recording))


def is_file_of(name: str, recording: Entities) -> bool:
    """Whether a file is of a recording, by its name."""
    try:
        entities = parse_name(name)[0]
    except ValueError:  # not one of ours
        return False
    return sorted(pair for pair in entities if pair[0] not in {*ATLAS_KEYS, "stat", "desc"}) == sorted(recording)


def preview_path(coverage: Path) -> Path:
    """Return where the preview belongs that goes with a coverage table: ``sub-X/figures``."""
    name = coverage.name.removesuffix(COVERAGE_END) + BEFORE
    subject = next(folder for folder in coverage.parents if folder.name.startswith("sub-"))
    return subject / "figures" / name


def short_name(atlas: str) -> str:
    """Return ``Schaefer2018 7n 400`` for the name of an atlas in file names; several may be joined by &."""
    if " & " in atlas:
        return " & ".join(map(short_name, atlas.split(" & ")))
    return " ".join(part.partition("-")[2] or part for part in atlas.split("_"))


NAME = "fcpower_bids"
PEOPLE = "raw"
"""Name of the link to the dataset with the tables of people: that of the last run."""
DESCRIPTION = "dataset_description.json"
README = """\
# Functional connectomes by fcpower_bids

Cleaned parcel time series, functional connectomes (FC) and connectomes with a flattened spectrum (FC^alpha), made from
the datasets that `dataset_description.json` links to. All recordings, to decide by: `index.html`. Pages: `sub-*.html`
of a participant, `group*.html` of a cohort. Status of each recording: `logs/status.tsv`. Every choice of a run:
`logs/settings*.toml`; give it back with `--config-file` to repeat the run.

FC^alpha is a strong fingerprint: people can be recognised from it. Treat these files as personal data.
Research software: not a medical device.
"""
DESCRIPTIONS = {
    "spectrum": "Eigenvalues of the connectome before and after they are raised to alpha",
    "confounds": "Regressors and censored volumes of the cleaning",
    "fcpower": "Quality of the recording after cleaning",
    "before": "Parcel means before cleaning, for the page",
}


def prepare_dataset(settings: Settings, inputs: Mapping[str, Path], people: Path | None = None) -> dict[str, Path]:
    """Make the output folder a BIDS derivative dataset, and return its inputs as links name them. Raises UsageError.

    `people`: the dataset with the tables of people, where it is none of the inputs; the last that is given holds.
    """
    output = settings.output_dir
    check_dataset(output)
    of_people = {} if people is None or PEOPLE in inputs else {PEOPLE: people}
    try:
        write_shared(
            output,
            output / DESCRIPTION,
            lambda: json_text(describe_dataset(of_people | name_inputs(inputs, output), output)),
        )
    except OSError as error:
        raise UsageError(f"Nothing can be written to {output} ({error.strerror}). Choose another folder.") from error
    write_shared(output, output / ".bidsignore", "\n".join(BIDSIGNORE) + "\n")
    write_shared(output, output / "README.md", README)
    write_shared(output, output / "layout_config.json", json_text(PYBIDS))
    write_shared(output, output / "descriptions.tsv", lambda: table_text(describe_labels(settings)))
    return name_inputs(inputs, output)


def name_inputs(inputs: Mapping[str, Path], output_dir: Path) -> dict[str, Path]:
    """Keep the names that the outputs have for their inputs: the same folder has one, another dataset another."""
    known = {name: Path(os.path.realpath(folder)) for name, folder in linked_datasets(output_dir).items()}
    named: dict[str, Path] = {}
    for name, root in inputs.items():
        there = [label for label in (name, *known) if label in known and known[label].is_dir()]
        same = [label for label in there if root.is_dir() and known[label].samefile(root)]
        others = (f"{name}{number}" for number in count(2)) if name in there else iter([name])
        named[same[0] if same else next(label for label in others if label not in there)] = root
    return named


def check_dataset(output: Path) -> None:
    """Refuse a folder for outputs that holds the dataset of another program. Raises UsageError."""
    description = output / DESCRIPTION
    if not description.exists():
        return
    with suppress(DatasetError):
        if NAME in program_names(output):
            return
    raise UsageError(f"{output} holds another dataset ({description}). Choose an empty folder for the outputs.")


def describe_labels(settings: Settings) -> pd.DataFrame:
    """Return ``descriptions.tsv``: the meaning of each ``desc`` label, those of earlier runs included."""
    labels = dict(DESCRIPTIONS)
    for transform in (make_transform(name, settings.method) for name in settings.method.transforms):
        if (label := dict(transform.entities).get("desc")) is not None:
            labels[label] = transform.summary
    if settings.method.encoder:
        labels[embedding_label(settings.method)] = f"Embedding by the encoder {settings.method.encoder}"
    path, known = settings.output_dir / "descriptions.tsv", {}
    if path.is_file():
        table = read_table(path)
        known = dict(zip(table["desc_id"], table["description"], strict=True))
    known |= {f"desc-{label}": text for label, text in labels.items()}
    return pd.DataFrame({"desc_id": list(known), "description": list(known.values())})


def describe_dataset(inputs: Mapping[str, Path], output_dir: Path) -> dict[str, Any]:
    """Return ``dataset_description.json``: this program, what made the inputs, those of earlier runs too; links."""
    links = {name: link for name, link in _links(output_dir).items() if name not in inputs}  # the last run comes last
    home = os.path.realpath(output_dir)  # as links are read: a folder above may be a link
    links |= {name: quote(os.path.relpath(os.path.realpath(path), home)) for name, path in inputs.items()}
    chain: list[Any] = [program for program in made_by(output_dir) if program.get("Name") != NAME]
    for path in inputs.values():
        chain += [entry for entry in made_by(path) if entry not in chain]
    return {
        "Name": "Functional connectomes with a flattened spectrum",
        "BIDSVersion": BIDS_VERSION,
        "DatasetType": "derivative",
        "License": "See the licence of the source datasets",
        "GeneratedBy": [{"Name": NAME, "Version": __version__}, *chain],
        "SourceDatasets": [{"URL": link} for link in links.values()],
        "DatasetLinks": links,
    }


def _links(output_dir: Path) -> dict[str, str]:
    description = output_dir / DESCRIPTION
    links = read_json(description).get("DatasetLinks", {}) if description.is_file() else {}
    if not isinstance(links, dict):
        raise DatasetError(f"{description} has DatasetLinks that are no object. Correct it, or remove it.")
    return links


def linked_datasets(output_dir: Path) -> dict[str, Path]:
    """Return the input datasets that the description of outputs links to, by name."""
    parsed = {name: urlparse(str(link)) for name, link in _links(output_dir).items()}
    return {name: output_dir / unquote(link.path) for name, link in parsed.items() if link.scheme in ("", "file")}


def bids_uri(path: Path, datasets: Mapping[str, Path]) -> str:
    """Return ``bids:NAME:relative/path`` for a file inside a known dataset ("" is this one), else its plain name."""
    for name, root in datasets.items():
        if path.absolute().is_relative_to(root.absolute()):
            return f"bids:{name}:{path.absolute().relative_to(root.absolute()).as_posix()}"
    return path.name


def parcels_path(output_dir: Path, atlas: Atlas) -> Path:
    """Return where the table of the parcels of an atlas is."""
    folder = output_dir / "sourcedata" / "atlases" / f"tpl-{atlas.space}"
    return folder / f"tpl-{atlas.space}_{atlas.name}_dseg.tsv"


def copy_atlas(output_dir: Path, atlas: Atlas) -> Path:
    """Copy an atlas with its table into ``sourcedata/atlases``, and return the copy of the image."""
    from fcpower_bids.imaging.atlas import parcel_centroids  # loads nibabel, which the group level never needs

    extension = ".dlabel.nii" if atlas.image.name.endswith(".dlabel.nii") else ".nii.gz"
    if not atlas.image.name.endswith(extension):
        extension = ".nii"
    folder = parcels_path(output_dir, atlas).parent
    target = folder / f"tpl-{atlas.space}_{atlas.name}_dseg{extension}"
    if not target.exists() or not filecmp.cmp(target, atlas.image, shallow=False):
        with lock(output_dir / LOCKS / target.name), atomic(target) as temporary:
            shutil.copyfile(atlas.image, temporary)
    parcels = {"index": atlas.labels, "name": atlas.names, "network": atlas.networks, "hemisphere": atlas.hemispheres}
    places = dict(zip("xyz", parcel_centroids(atlas.image, atlas.labels).round(2).T, strict=True))
    table = table_text(pd.DataFrame({**parcels, **places}))
    write_shared(output_dir, parcels_path(output_dir, atlas), table)
    about = {"Name": atlas.name, "License": atlas.licence, "ReferencesAndLinks": [atlas.citation]}
    about["Source"] = atlas.source
    name = f"{atlas.entities[0][0]}-{atlas.entities[0][1]}_description.json"
    write_shared(output_dir, output_dir / "sourcedata" / "atlases" / name, json_text(about))
    return target


PLACE = re.compile(r"(?<![\w./~-])(?!//)(?:[A-Za-z]:)?[/\\](?:[\w.@+~ -]*[\w.@+~-][/\\])+([\w.@+~-]*)")
"""An absolute path; its last part may stay."""
NAMED = re.compile(r"(?<![\w./~:-])/(?:[\w.@+~-]+/)*([\w.@+~-]*[\w@+~-])")
"""An absolute path in a sentence, where a blank ends it."""


def without_folders(text: str) -> str:
    """Return a text with its absolute paths shortened to their last part."""
    return PLACE.sub(r"\1", text.replace("file:///", "/"))


def describe_without_folders(text: str, folders: Iterable[str]) -> str:
    """Return a sentence whose files are named from their dataset on, or by their last part elsewhere."""
    for folder in folders:
        text = text.replace(f"{folder}/", "").replace(folder, Path(folder).name)
    return NAMED.sub(r"\1", text)


def known_folders(output_dir: Path, *others: Path) -> list[str]:
    """Return the folders of the user that the outputs may name; the longest first, so that none hides another."""
    places = [output_dir, *others, Path.cwd(), *linked_datasets(output_dir).values()]
    with_home = [*places, Path(os.environ["HOME"])] if os.environ.get("HOME") else places
    roots = {str(path) for place in with_home for path in (place.absolute(), place.resolve())}
    return sorted((root for root in roots if len(Path(root).parts) > 2), key=len, reverse=True)
