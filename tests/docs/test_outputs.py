"""Every file that the demo writes is documented with every column, and nothing is documented that is not written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from fcpower_bids.outputs.tables import read_table
from fcpower_bids.settings import Settings
from fcpower_bids.transforms.connectomes import make_transform
from scripts.reference.group_tables import describe_tables
from scripts.reference.recording_tables import TRAINING, declared_tables, fill_columns
from tests.docs.pages import DOCS, read

OTHER_CHOICES = {  # documented, but not written by these choices
    "exclude.tsv": "when somebody has decided",
    "logs/claims/": "while somebody is at work",
    "logs/combined.tsv": "by combine",
    "logs/crashes/": "with --debug, of failed steps",
    "corpus/parts/": "while the corpus is packed",
    "encoder/interim/": "of a run that has not ended",
    "encoder/teacher_kernel.safetensors": "with a public corpus",
    "group/prediction_means.tsv": "with --predictions-per person, or where predictions would be too long",
    "sub-LABEL_ses-LABEL.html": "with more than four sessions",
}
READ = (
    *("scans", "folds", "alpha", "transform_screen", "spectral_controls", "spectrum_path", "learning_curves"),
    *("identification_curves", "parcellation_sweep", "harmonisation"),
)
"""Tables that the methods text of the further analyses follows."""
PLACES = {"": "outputs.md", "group": "group_outputs.md", "corpus": "encoder.md", "encoder": "encoder.md"}
UNITS = {"-", "s", "mm", "MB", "SD", "1/s", "share", "volumes", "modes", "0 or 1", "as in the input"}


def page_of(name: str) -> str:
    """A page as the site has it: with the columns of all tables."""
    text = fill_columns(read(DOCS / name))
    return text + describe_tables() if name == "group_outputs.md" else text


@cache
def documented() -> dict[str, str]:
    """File patterns of the pages, and the page of each."""
    found = {}
    for page in sorted(set(PLACES.values())):
        text = page_of(page)
        prefix = "group/" if page == "group_outputs.md" else ""
        found |= {prefix + name: page for name in re.findall(r"^#{2,4} `([^`]+\.tsv)`$", text, re.M)}
        for table in re.findall(r"^\| file \| what it is \|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.M):
            cells = [row.split("|")[1] for row in table.splitlines()]
            found |= {prefix + name: page for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    return found


def as_expression(pattern: str) -> str:
    """A file pattern as a regular expression; capitals stand for what differs, a folder for all that is in it."""
    if pattern.startswith("SOURCE"):
        pattern = f"sub-LABEL/ses-LABEL/func/{pattern}"
    text = re.escape(pattern).replace(r"\-", "-")
    text = text.replace("SOURCE", r"sub-\w+(?:_[a-z]+-\w+)+?").replace("TRANSFORM", r"stat-\w+?(?:_desc-\w+)?")
    text = text.replace("ATLAS", r"atlas-\w+?(?:_[a-z]+-\w+)*?")
    text = re.sub(
        r"(?<![A-Za-z])(LABEL|SPACE|ENCODER|NUMBER|TARGET|REPRESENTATION)(?![A-Za-z])", r"[A-Za-z0-9-]+?", text
    )
    return text + (".*" if pattern.endswith("/") else "")


def table_of(pattern: str) -> str:
    """The documented columns of a file: rows of its table."""
    page = documented()[pattern]
    name = re.escape(pattern.removeprefix("group/"))
    section = re.search(rf"^#{{2,4}} `{name}`$(.*?)(?=^#|\Z)", page_of(page), re.M | re.S)
    assert section, f"{page} has no section for {pattern}"
    rows = re.search(r"^\| column \|.*\n\|[-|]+\n((?:\|.*\n?)+)", section[1], re.M)
    assert rows, f"{page} has no columns for {pattern}"
    return rows[1]


@pytest.fixture(scope="module")
def written(study) -> dict[str, Path]:
    """Every file of the outputs but the intermediate results, by its place in the output folder."""
    folders = (study / "one_session", study / "out")
    files = {str(path.relative_to(folder)): path for folder in folders for path in folder.rglob("*") if path.is_file()}
    return {name: path for name, path in files.items() if not name.startswith("work/")}


def patterns_of(name: str) -> list[str]:
    """The most exact patterns that a file fits: one for itself, or else the folder that it is in."""
    fitting = [pattern for pattern in documented() if re.fullmatch(as_expression(pattern), name)]
    exact = [pattern for pattern in fitting if not pattern.endswith("/")]
    return exact or fitting


def tables(written: dict[str, Path]) -> Iterator[tuple[str, Path, str]]:
    """Name, file and pattern of every table; one of each pattern is enough."""
    seen = set()
    for name, path in sorted(written.items()):
        pattern = "".join(patterns_of(name)[:1])
        if name.endswith(".tsv") and pattern not in seen:
            seen.add(pattern)
            yield name, path, pattern


OTHER_COLUMNS = {
    "group/comparisons.tsv": ("offset_difference", "p_offset"),
    "group/prediction_summary.tsv": ("r_within_mean", "auc_within_mean", "score_unharmonised"),
    "group/folds.tsv.gz": ("repeat_label", "fold_label"),
    "group/folds.tsv": ("repeat_label", "fold_label"),
    "encoder/log.tsv": ("probe", "probe_identification"),
}
"""Columns that other choices write: sites that are held out or harmonised, folds of a file, a probe."""


def test_every_file_is_documented(written):
    assert len(written) > 300
    beside = {name.removesuffix(".tsv") + ".json" for name in written if name.endswith(".tsv")}
    folders = ("group/", "corpus/", "encoder/")
    unknown = [name for name in written if name not in beside and not set(patterns_of(name)) - set(folders)]
    assert unknown == []


def test_everything_that_is_documented_is_written(written):
    expected = [name for name in documented() if name not in OTHER_CHOICES and name != "work/"]
    missing = [name for name in expected if not any(re.fullmatch(as_expression(name), file) for file in written)]
    assert missing == []
    assert set(OTHER_CHOICES) <= set(documented())


def test_every_column_is_documented_and_no_other(written):
    names = []
    for name, path, pattern in tables(written):
        header = path.read_text(encoding="utf-8").splitlines()[0].split("\t")
        rows = table_of(pattern) if pattern != "descriptions.tsv" else "| `desc_id` | |\n| `description` | |\n"
        told = re.findall(r"^\| `([^`]+)` \|", rows, re.M)
        if re.search(r"^\| one per ", rows, re.M):
            assert set(told) <= set(header), name
        else:
            told = [one for one in told if one in header or one not in OTHER_COLUMNS.get(name, ())]
            assert sorted(told) == sorted(header) if "group/" in pattern else told == header, name
        names.append(pattern)
    assert len(names) > 50


def test_the_meaning_of_a_column_is_that_of_its_sidecar(written):
    compared = 0
    for name, path, pattern in tables(written):
        sidecar = path.with_suffix(".json")
        if documented()[pattern] != "outputs.md" or not sidecar.is_file() or "figures" in name:
            continue
        about = json.loads(sidecar.read_text(encoding="utf-8"))
        for column, unit, meaning in re.findall(r"^\| `([^`]+)` \| (.+?) \| (.+?) \|$", table_of(pattern), re.M):
            described = about.get(column)
            if isinstance(described, dict):
                assert meaning == described["Description"], f"{name}: {column}"
                assert described.get("Units", unit) == unit
                compared += 1
    assert compared > 25


def test_every_column_of_a_recording_has_a_unit():
    for page in ("outputs.md", "encoder.md"):
        for table in re.findall(r"^\| column \|.*\n\|[-|]+\n((?:\|.*\n)+)", page_of(page), re.M):
            units = [row.split("|")[2].strip() for row in table.splitlines()]
            assert set(units) <= UNITS


def test_every_declared_table_has_a_heading_that_its_columns_are_filled_in_below():
    pages = fill_columns(read(DOCS / "outputs.md")) + fill_columns(read(DOCS / "encoder.md"))
    names = {*(table.name for table in declared_tables()), *TRAINING}
    for name in names:
        (section,) = re.findall(rf"^#+ `{re.escape(name)}\.tsv`$(.*?)(?=^#|\Z)", pages, re.M | re.S)
        assert section.count("| column | unit | meaning |") == 1


def test_the_names_of_transforms_are_theirs():
    rows = re.findall(r"^\| `(\w+)` \| `(stat-\S+)` \|", read(DOCS / "outputs.md"), re.M)
    settings = Settings(Path("in"), Path("out"), "participant")
    names = {name: make_transform(name, settings).entities for name, _ in rows}
    assert dict(rows) == {name: "_".join(f"{key}-{value}" for key, value in found) for name, found in names.items()}
    assert len(rows) >= 6


def test_the_methods_text_tells_of_every_further_analysis_what_its_tables_say(study):
    folder = study / "out" / "group"
    text = read(folder / "CITATION.md")
    tables = {name: read_table(folder / f"{name}.tsv") for name in READ}
    values = {name: {column: sorted(set(table[column].dropna())) for column in table} for name, table in tables.items()}
    people = len(set(tables["scans"]["participant_id"]))
    transforms = tables["transform_screen"].drop_duplicates("representation").set_index("representation")["transform"]
    grid = ", ".join(f"{one:g}" for one in values["alpha"]["alpha"])
    minutes = " and ".join(f"{one:g}" for one in values["learning_curves"]["minutes"])
    for said in (
        f"The exponent was varied over {grid} in {people} people by nested cross-validation as for the prediction",
        f"{len(transforms)} representations of the connectome were compared in {people} people",
        "Fisher z of the edges; ",
        f"{len(values['spectral_controls']['representation'])} versions of the connectome were compared",
        f"The spectrum of {len(values['spectrum_path']['participant_id'])} connectomes, one per person, was described "
        f"at exponents from {min(values['spectrum_path']['alpha']):g} to {max(values['spectrum_path']['alpha']):g},",
        f"Prediction was repeated with {values['learning_curves']['n_people'][0]:g} training people",
        f"with the first {minutes} min of every scan, in {people} people",
        f"was repeated among {values['identification_curves']['n_people'][-1]:g} people",
        f"repeated with {' and '.join(tables['parcellation_sweep']['atlas'].unique())} on the people that all have",
        "FC, FC^0.35^ and embedding randominit were compared by ridge regression",
        f"(none, covariate, combat, both and held out) were compared on the same people, against "
        f"{values['harmonisation']['n_permutations'][0]:g} permutations",
    ):
        assert said in text, said
    assert set(transforms.drop("fc_power")) <= {
        one for one in transforms if re.sub(r"\^([\d.]+)", r"^\1^", one) in text
    }
    folds = tables["folds"][tables["folds"]["role"] == "test"]
    assert (
        f"There were {folds['fold'].nunique()} outer folds and {tables['folds']['inner_fold'].max() + 1:g} inner"
        in text
    )
