"""What is in the tables of the group level: ``docs/group_outputs.md``, generated from the sidecars of a run.

``python -m fcpower_bids.cli.group_tables OUTPUT_DIR [OUTPUT_DIR ...]`` prints it for the tables of any output folders.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fcpower_bids.errors import DatasetError, FcPowerError
from fcpower_bids.outputs.tables import read_json

PREDICTED = "predicted/target-TARGET-REPRESENTATION"

TABLES: Mapping[str, Mapping[str, str]] = {
    "The cohort": {
        "scans": "The scans that the analyses see, in their order.",
        "excluded": "Who and what was left out, and why.",
        "check": "What a skeptic found before the first model: each with its consequence and remedy.",
        "check_pairs": "Scans that are too much alike for their names.",
        "left_out": "Analyses that `--analyses all`, or the default, could not do with this cohort.",
    },
    "`prediction`": {
        "prediction": "One row per target, representation, repetition and outer fold.",
        "predictions": "Out-of-fold prediction of every person.",
        "prediction_pooled": "Scores of all out-of-fold predictions of a repetition together.",
        "prediction_summary": "Means and standard deviations over folds and repetitions, and the permutation p-value.",
        "comparisons": "Two representations on the same folds: corrected resampled t, and sign flips over people.",
        "folds": "Who was where, so that any tool can use the same splits.",
        "prediction_sites": "Predictions of each site by itself, and what they come to within sites (`--site-column`).",
        "null": "Scores under permutation of the target (`--permutations`).",
        "reliability": "Agreement of predictions over halves, and the ceiling that follows.",
        "importance_edges": "Haufe-transformed importance of every edge.",
        "importance_networks": "The same, mean over pairs of networks.",
    },
    "`fingerprinting`": {
        "identification": "Accuracy and its companions for each pair of sessions.",
        "identification_scans": "Every search: who was looked for, who was found.",
        "identification_comparisons": "Two representations on the same searches, compared over people.",
        "identification_alpha": "Accuracy against the exponent.",
        "identification_length": "Accuracy against the length of the scan.",
        "identification_icc": "Intraclass correlation of the edges over sessions.",
    },
    "`alpha_selection`": {
        "alpha": "The criterion at every exponent of the grid, in every fold.",
        "alpha_optimum": "The exponent that each fold chooses.",
    },
    "`qc_fc`": {
        "qcfc": "Correlation of every edge with motion.",
        "qcfc_summary": "The same in one row per representation.",
    },
    "`transform_screen`": {
        "transform_screen": "Every transform and kernel against FC, one row each; refused ones with the reason.",
        "transform_screen_folds": "The scores behind it, one row per fold.",
    },
    "`spectral_controls`": {
        "spectral_controls": "The same eigenvectors under other eigenvalues, and other controls, one row each.",
        "spectral_controls_folds": "The scores behind it, one row per fold.",
        "spectral_matched": "Flattened against raw eigenvalues at equal numbers of leading eigenvectors.",
        "spectral_reliability": "Agreement of the predictions of the controls over halves.",
    },
    "`spectrum_geometry`": {
        "spectrum_histogram": "How the eigenvalues of all people are distributed, before and after.",
        "spectrum_ranks": "The mean spectrum over people, by rank.",
        "spectrum_path": "Where each person is on the way from the identity to FC.",
        "spectrum_sphere": "The eigenvectors of the mean connectome, scaled by their eigenvalues, in three dimensions.",
        "spectrum_matrices": "FC^alpha of one person for several exponents, on one scale.",
    },
    "`learning_curves`": {
        "learning_curves": "Scores by number of training people and length of scan, one row per fold.",
        "learning_gains": "Differences of representations in each cell, on the same folds.",
        "identification_curves": "Accuracy by number of people and length of scan, one row per subset.",
        "identification_gains": "Differences of representations in each cell, on the same subsets.",
        "scaling_law": "The law of Ooi et al. (2025) in people and minutes, fitted to the cells.",
    },
    "`parcellation_sweep`": {
        "parcellation_sweep": "Scores of each representation under each parcellation.",
        "parcellation_gains": "FC^alpha against FC under each parcellation.",
        "parcellation_comparisons": "Parcellations against each other on the same people and folds.",
    },
    "`encoder_comparison`": {
        "encoders": "Embeddings and connectomes under one linear probe, one row per representation and target.",
        "encoder_folds": "The scores behind it, one row per fold.",
        "encoder_comparisons": "Two representations on the same folds or searches.",
    },
    "`fcpower_bids predict`": {
        PREDICTED: "A model of `--save-models` applied to the scans of an output folder, one row per scan.",
    },
}
"""By analysis: the tables that it writes, and what one is, in a sentence."""

INTRODUCTION = """\
# Outputs of the group level

<!-- Generated by `python -m fcpower_bids.cli.group_tables` from the tables of the demo; a test compares. -->

Everything is in `OUTPUT_DIR/group`. Tables are long, with one row per fold, scan, edge or pair, so that summaries can be computed
from them by anyone. Beside each TSV is a JSON that repeats the meaning of its columns and states protocol, rules, seed and
caveats. Missing values are `n/a`; numbers are written without loss. A score without a unit is a pure number.

| file | what it is |
|---|---|
| `settings.toml` | every choice of the group run |
| `analyses.json` | which analyses are done, of which cohort and by which choices; without it all run again |
| `models/target-TARGET-REPRESENTATION_model.npz` | with `--save-models`: a fitted model, arrays and text, no code; `fcpower_bids predict MODEL OUTPUT_DIR` applies it |

The page of the cohort, `OUTPUT_DIR/group.html`, is made from these files.
"""  # noqa: E501


def describe_tables(folders: Sequence[Path]) -> str:
    """Describe the tables below some output folders as Markdown.

    Parameters
    ----------
    folders : sequence of Path
        Outputs of the group level; a table that several have is taken from the first.

    Raises
    ------
    DatasetError
        There is no table; or one is not in `TABLES`, or has a column without a description.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted((folder / "group").glob("*.tsv")):
            found.setdefault(path.stem, path)
        for path in sorted((folder / "group" / "predicted").glob("*.tsv")):
            found.setdefault(PREDICTED, path)
    unknown = set(found) - {name for tables in TABLES.values() for name in tables}
    if unknown:
        raise DatasetError(f"{', '.join(sorted(unknown))}: give these tables a sentence in {__name__}.TABLES.")
    if not found:
        raise DatasetError(
            f"There is no group/*.tsv in {', '.join(map(str, folders))}. Run the group level there first."
        )
    parts = [INTRODUCTION]
    for title, tables in TABLES.items():
        there = [name for name in tables if name in found]
        parts += [f"## {title}\n"] if there else []
        parts += [f"### `{name}.tsv`\n\n{tables[name]}\n\n{_columns(found[name])}" for name in there]
    return "\n".join(parts)


def _columns(path: Path) -> str:
    about = read_json(path.with_suffix(".json"))
    with path.open(encoding="utf-8", newline="") as stream:
        header = next(csv.reader(stream, delimiter="\t"))
    rows = ["| column | meaning |", "|---|---|"]
    for name in header:
        meaning = about.get(name, {}).get("Description")
        if not meaning:
            raise DatasetError(f"{path.with_suffix('.json')} does not say what the column {name} means.")
        rows.append(f"| `{name}` | {meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(rows) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the description of the tables of some output folders."""
    parser = argparse.ArgumentParser(prog="python -m fcpower_bids.cli.group_tables", description=__doc__)
    parser.add_argument("output_dir", nargs="+", type=Path, help="folders with a group/ in them")
    try:
        sys.stdout.write(describe_tables(parser.parse_args(argv).output_dir))
    except FcPowerError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
