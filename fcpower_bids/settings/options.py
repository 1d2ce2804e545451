"""Declaration of an option, a field with a section of ``--help`` and a text; and which level reads it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fcpower_bids.settings import Settings

PERMUTE, HOLD_OUT = "permute", "hold-out"


def option(
    default: Any,
    section: str,
    text: str,
    *flags: str,
    choices: tuple[str, ...] | None = None,
    reader: str | None = None,
    question: bool | None = None,
    in_file: bool = False,
) -> Any:
    """Declare one choice; with `in_file` it is set in the file of ``--config-file`` alone."""
    about: dict[str, Any] = {"section": section, "text": text, "flags": flags, "choices": choices}
    about |= {"reader": reader, "question": question, "in_file": in_file}
    return dataclasses.field(default=default, metadata=about)


def asks(default: Any, text: str, **about: Any) -> Any:
    """Declare an option of the group level that changes the question: people, target or score."""
    return option(default, "group", text, question=True, **about)


def refines(default: Any, text: str, **about: Any) -> Any:
    """Declare an option of the group level that changes the answer, not the question."""
    return option(default, "group", text, question=False, **about)


@dataclass(frozen=True)
class Choices:
    """A part of the choices of a run; immutable, equal by value."""

    def as_dict(self) -> dict[str, Any]:
        """Return the choices as plain JSON and TOML values; unset ones are left out."""
        plain = {field.name: plain_value(getattr(self, field.name)) for field in dataclasses.fields(self)}
        return {name: value for name, value in plain.items() if value is not None}

    def of_sections(self, *sections: str) -> dict[str, Any]:
        """Return the values of some sections by name, as plain values."""
        return {
            field.name: plain_value(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.metadata.get("section") in sections
        }

    def question(self) -> dict[str, Any]:
        """Return the options that make the question, as plain values."""
        fields = dataclasses.fields(self)
        return {
            field.name: plain_value(getattr(self, field.name)) for field in fields if field.metadata.get("question")
        }


def plain_value(value: Any) -> Any:
    """Return a value as JSON and TOML have it: paths as text, tuples as lists."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [plain_value(item) for item in value]
    return value


@dataclass(frozen=True)
class GroupLevel(Choices):
    """Phenotypes, folds, analyses, and who takes part."""

    targets: tuple[str, ...] = asks(
        (),
        "columns to predict; hcp58: those of Ooi et al. 2022; NAME=COLUMN,COLUMN,...: first component; "
        "'NAME=COLUMN>=NUMBER': two classes [all numeric columns of --phenotypes]",
    )
    covariates: tuple[str, ...] = asks((), "columns regressed from the targets, and in the model of edges")
    phenotypes: tuple[Path, ...] = refines((), "phenotype tables [participants.tsv and phenotype/*.tsv]")
    missing_values: tuple[str, ...] = refines((), "values that mean missing: -1 or age=0", in_file=True)
    family_column: str | None = asks(None, "column whose equal values never span a split")
    site_column: str | None = asks(None, "column of sites; see --sites")
    sites: str = asks(
        PERMUTE,
        "permute targets within sites, hold sites out in turn, or take them from the features (ComBat)",
        choices=(PERMUTE, HOLD_OUT, "combat"),
    )
    stratify: bool = refines(False, "spread sites and classes evenly over folds; families stay whole", in_file=True)
    representations: tuple[str, ...] = refines(("fc", "fc_power"), "features of people: fc fc_power embedding")
    analyses: tuple[str, ...] = refines(
        (), "analyses, or 'all' [prediction fingerprinting qc_fc, as the cohort allows]"
    )
    alpha_selection: str | None = refines(
        None,
        "choose the exponent as '--alpha grid' does; --alpha is then for all else",
        choices=("grid", "nested", "align"),
        in_file=True,
    )
    kernel: str = refines("correlation", "kernel of the regression", choices=("correlation", "linear"))
    preset: str = asks(
        "recommended",
        "cross-validation; 'paper' without --analyses asks for all of them",
        choices=("recommended", "paper", "cbig"),
    )
    repeats: int | None = refines(None, "repetitions of the outer folds [preset]")
    folds: int | None = refines(None, "outer folds [preset]")
    inner_folds: int | None = refines(None, "inner folds [preset]", in_file=True)
    folds_file: Path | None = asks(None, "a folds.tsv, or a table of people with a column of folds per repeat")
    penalties: tuple[float, ...] = refines((), "ridge penalties, as they are [preset]", in_file=True)
    selection: str | None = refines(
        None,
        "score of the inner folds that selects the penalty [preset]",
        choices=(
            "pooled_pearson",
            "mean_pearson",
            "pooled_mse",
            "mean_mse",
            "pooled_predictive_cod",
            "mean_predictive_cod",
        ),
        in_file=True,
    )
    fit_transforms_on: str | None = refines(
        None,
        "people that z-scores, PCA and tangent references are fitted to [preset]",
        choices=("cohort", "fold"),
        in_file=True,
    )
    permutations: int | None = refines(
        None, "of each prediction [up to 1000, at a third of its cost; none with other presets] and of edges [1000]"
    )
    exclude_file: Path | None = asks(None, "TSV of what to leave out [OUTPUT_DIR/exclude.tsv]")
    max_mean_fd: float | None = asks(None, "leave out recordings with a higher mean FD (mm)")
    equal_minutes: bool = asks(False, "cut every scan to the length of the shortest")
    drop_parcels_missing_in: float = refines(0.1, "drop parcels that a larger share of people lacks", in_file=True)
    drop_people_missing: float = asks(0.1, "leave out people who lack a larger share of parcels", in_file=True)
    check: bool = refines(False, "only look for what would mislead (group/check.tsv)", in_file=True)
    save_models: bool = refines(False, "also write models for 'fcpower_bids predict'")
    accept_no_skill: bool = refines(False, "write also models that do no better than a guess", in_file=True)
    scan_minutes: tuple[float, ...] = refines(
        (), "learning_curves: lengths of scan [doubling from 1.2]", reader="learning_curves", in_file=True
    )
    sample_sizes: tuple[int, ...] = refines(
        (), "learning_curves: numbers of people [25 50 100 150 ...]", reader="learning_curves", in_file=True
    )
    subsamples: bool = refines(
        False,
        "learning_curves: cross-validate within random subsamples of people, not with fewer who train",
        reader="learning_curves",
        in_file=True,
    )
    tangent_reference: Path | None = refines(
        None,
        "transform_screen: outputs of other people, whose mean FC is the reference of one more tangent row",
        reader="transform_screen",
        in_file=True,
    )
    nbs_threshold: float | None = refines(
        None, "edges: |t| above which edges form networks [that of p = 0.001]", reader="edges", in_file=True
    )
    slow_controls: bool = refines(
        False, "spectral_controls: also filters learned in the folds", reader="spectral_controls", in_file=True
    )

    @property
    def target_columns(self) -> tuple[str, ...]:
        """Targets that are columns, those of `classes` among them."""
        cut = {item: name for item, name, _, _ in self._cut()}
        return tuple(cut.get(item, item) for item in self.targets if not is_composite(item))

    @property
    def classes(self) -> dict[str, tuple[str, float]]:
        """Column and number of each target of two classes by its name: ``NAME=COLUMN>=NUMBER``."""
        return {name: (column, number) for _, name, column, number in self._cut()}

    def _cut(self) -> Iterator[tuple[str, str, str, float]]:
        for item in self.targets:
            if match := re.fullmatch(r"([^=]+)=([^=,]+)>=\s*([-+]?[\d.]+)\s*", item):
                yield item, match[1].strip(), match[2].strip(), float(match[3])

    @property
    def composites(self) -> dict[str, tuple[str, ...]]:
        """Columns of each composite by its name: targets of the form ``NAME=COLUMN,COLUMN,...``."""
        pairs = (item.partition("=") for item in self.targets if is_composite(item))
        return {name.strip(): tuple(part.strip() for part in parts.split(",")) for name, _, parts in pairs}


def is_composite(target: str) -> bool:
    """Whether a target is of the form ``NAME=COLUMN,COLUMN,...``; a column may have one of the signs in its name."""
    return "," in target.partition("=")[2]


# Levels


@dataclass(frozen=True)
class Level:
    """A level of the command line: ``fcpower_bids bids_dir output_dir LEVEL``."""

    summary: str  # its line of the help
    sections: tuple[str, ...] = ()  # sections of options that it reads whole
    # also, without: options of other sections that it reads, and options of these sections that it does not
    also: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


LEVELS: Mapping[str, Level] = {
    "participant": Level(
        "recordings to cleaned series, FC, FC^alpha, quality, one page per person",
        sections=("selection", "method", "encoder", "resources", "other"),
        without=("executor",),
    ),
    "group": Level(
        "prediction, identification and the other analyses of a cohort, one page",
        sections=("selection", "encoder", "group", "resources", "other"),
        also=("atlas", "alpha", "min_time", "eigenvalue_floor", "shrink_to_identity"),
        without=("input_type", "bids_database_dir", "use_plugin"),
    ),
    "pretrain": Level(
        "an encoder from a corpus, or from the recordings that were processed",
        sections=("pretrain",),
        also=(
            *("participant_label", "atlas", "alpha", "family_column", "nprocs", "random_seed", "quiet"),
            *("dry_run", "dataset_name", "site_column", "targets", "phenotypes"),
        ),
    ),
}

ALL_LEVELS = ("config_file", "work_dir", "verbose", "debug")

TOLERATED = ("nprocs", "omp_nthreads", "mem_mb", "random_seed", "quiet")
"""Options that a script gives to every level alike: where one is not read, nothing that is written hangs on it."""


def is_read(level: str, name: str, section: str) -> bool:
    """Whether a level reads an option, given the section of the latter."""
    traits = LEVELS[level]
    return name not in traits.without and (section in traits.sections or name in (*traits.also, *ALL_LEVELS))


def describe_unread(settings: Settings, analyses: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each choice at group level without a reader: its analysis, or folds of its own."""
    for field in dataclasses.fields(settings):
        reader = field.metadata.get("reader")
        if reader and getattr(settings, field.name) != field.default and reader not in analyses:
            yield f"--{field.name.replace('_', '-')} is for --analyses {reader}, which was not asked for."
        given = field.name in OF_PREDICTION and getattr(settings, field.name) != field.default
        if given and analyses and UNPREDICTED.issuperset(analyses):
            yield f"--{field.name.replace('_', '-')} is for predictions, and {' and '.join(analyses)} has none."
    for name, instead in overridden(vars(settings)).items():
        yield f"--{name} is not used: {instead}."


OF_PREDICTION = ("kernel", "folds", "repeats", "inner_folds", "folds_file", "stratify", "penalties", "selection")
UNPREDICTED = frozenset({"fingerprinting", "qc_fc", "spectrum_geometry", "edges"})
"""Analyses without a prediction."""


def overridden(chosen: Mapping[str, Any]) -> dict[str, str]:
    """Choices that are given and not used, with what takes their place."""
    instead = {}
    if brought := chosen.get("folds_file"):
        instead = dict.fromkeys(("folds", "repeats"), f"{Path(str(brought)).name} has the folds")
    elif chosen.get("sites") == HOLD_OUT:
        instead = {"folds": "every site is held out in turn"}
    return {name: words for name, words in instead.items() if chosen.get(name) is not None}
