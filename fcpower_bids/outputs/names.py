"""File names of the outputs, and the one place that knows which of them are drafts of BIDS.

Order and keys are those of BIDS 1.11.1. ``relmat`` is BEP017's draft (2024-11), ``stat-`` and the region ``timeseries``
are BEP012's draft (2024-09): when they are released with other names, this module is what changes.
"""

from __future__ import annotations

import re
from pathlib import Path

from fcpower_bids.errors import DatasetError
from fcpower_bids.records import Atlas, Entities, Output, Recording

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
BEFORE, SLICES = "_stat-mean_desc-before_timeseries.npz", "_desc-slices_bold.npz"
"""Ends of the names of previews, which only a page reads: a recording is finished without them."""

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


def file_name(entities: Entities, suffix: str, extension: str) -> str:
    """Return ``key-value_..._suffix.ext`` from ordered entities."""
    return "_".join([*(f"{key}-{value}" for key, value in entities), suffix]) + extension


def output_folder(output_dir: Path, entities: Entities) -> Path:
    """Return ``output_dir/sub-X[/ses-Y]/func``."""
    labels = dict(entities)
    parts = [f"sub-{labels['sub']}"] + ([f"ses-{labels['ses']}"] if "ses" in labels else [])
    return output_dir.joinpath(*parts, "func")


def output_path(output_dir: Path, recording: Recording, output: Output, atlas: Atlas | None = None) -> Path:
    """Return where one output of a recording is written."""
    return path_of(output_dir, recording.entities, atlas.entities if atlas else (), output)


def path_of(output_dir: Path, recording: Entities, atlas: Entities, output: Output) -> Path:
    """Return where one output is, by the entities of its recording and of its atlas."""
    entities = order_entities(recording, atlas, output.entities)
    return output_folder(output_dir, recording) / file_name(entities, output.suffix, output.extension)


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


def preview_path(coverage: Path, end: str = BEFORE) -> Path:
    """Return where the preview belongs that goes with a coverage table: ``sub-X/figures``."""
    name = coverage.name.removesuffix(COVERAGE_END) + end
    subject = next(folder for folder in coverage.parents if folder.name.startswith("sub-"))
    return subject / "figures" / name


def short_name(atlas: str) -> str:
    """Return ``Schaefer2018 7n 400`` for the name of an atlas in file names; several may be joined by &."""
    if " & " in atlas:
        return " & ".join(map(short_name, atlas.split(" & ")))
    return " ".join(part.partition("-")[2] or part for part in atlas.split("_"))
