"""What FC^alpha does on a public cohort of many sites: ABIDE I, from the series that C-PAC made of it.

    python -m benchmarks.evidence ABIDE OUT [--tables docs/evidence]

ABIDE is a folder with ``Phenotypic_V1_0b_preprocessed1.csv`` and, anywhere below, the files ``*_rois_cc200.1D`` and
``*_rois_ho.1D`` of the Preprocessed Connectomes Project. The lists are written into OUT, our command is run on them and
the rows of ``docs/evidence.md`` are printed; ``--tables`` keeps the scores of every fold, no series.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

SECONDS = {"CALTECH": 2.0, "CMU": 2.0, "KKI": 2.5, "LEUVEN": 1.656, "MAX": 3.0, "NYU": 2.0, "OHSU": 2.5, "OLIN": 1.5}
SECONDS |= {"PITT": 1.5, "SBL": 2.2, "SDSU": 2.0, "STANFORD": 2.0, "TRINITY": 2.0, "UCLA": 3.0, "UM": 2.0}
SECONDS |= {"USM": 2.0, "YALE": 2.0}
"""Repetition time by site."""
TARGETS = ("age", "fiq", "sex", "autism")
ATLASES = ("cc200", "ho")


def read_people(folder: Path) -> pd.DataFrame:
    """The people who have series, by id, with the columns that are used here."""
    table = pd.read_csv(next(folder.rglob("Phenotypic_V1_0b_preprocessed1.csv")))
    table = table[table["FILE_ID"] != "no_filename"]
    people = pd.DataFrame({"participant_id": [f"sub-{number:07d}" for number in table["SUB_ID"]]})
    people["file"] = table["FILE_ID"].to_numpy()
    people["site"] = table["SITE_ID"].to_numpy()
    people["seconds"] = [SECONDS[site.split("_")[0]] for site in people["site"]]
    people["mean_fd"] = table["func_mean_fd"].to_numpy()
    people["age"] = table["AGE_AT_SCAN"].to_numpy()
    people["fiq"] = table["FIQ"].where(table["FIQ"] > 0).to_numpy()
    people["sex"] = table["SEX"].map({1: "M", 2: "F"}).to_numpy()
    people["autism"] = (table["DX_GROUP"] == 1).astype(int).to_numpy()
    return people


def write_lists(folder: Path, out: Path) -> None:
    """Write the list of all scans, of the halves of each, and the table of people."""
    people, whole, halves = read_people(folder), [], []
    (out / "bids").mkdir(parents=True, exist_ok=True)
    (out / "halves").mkdir(exist_ok=True)
    columns = ["participant_id", "site", "age", "fiq", "sex", "autism"]
    people[columns].to_csv(out / "bids" / "participants.tsv", sep="\t", index=False, na_rep="n/a")
    (out / "bids" / "dataset_description.json").write_text('{"Name": "ABIDE I", "BIDSVersion": "1.9.0"}\n')
    files = {path.name: path for path in folder.rglob("*_rois_*.1D")}
    for person in people.itertuples():
        for atlas in ATLASES:
            path = files.get(f"{person.file}_rois_{atlas}.1D")
            if path is None or path.stat().st_size == 0:
                continue
            row = {"participant_id": person.participant_id, "kind": "series", "repetition_time": person.seconds}
            row |= {"mean_fd": person.mean_fd, "strategy": "C-PAC, no band-pass, no global signal"}
            whole.append({**row, "path": path.absolute(), "atlas": atlas})
            if atlas == "cc200":
                for session, part in zip("ab", np.array_split(np.loadtxt(path), 2), strict=True):
                    place = Path("halves") / f"{person.file}_{session}.npy"
                    np.save(out / place, part)
                    halves.append({**row, "path": place, "session_id": session})
    pd.DataFrame(whole).to_csv(out / "whole.tsv", sep="\t", index=False, na_rep="n/a")
    pd.DataFrame(halves).to_csv(out / "halves.tsv", sep="\t", index=False, na_rep="n/a")
    nyu = people.loc[people["site"] == "NYU", "participant_id"]
    pd.DataFrame(whole)[lambda rows: rows["participant_id"].isin(nyu)].to_csv(
        out / "nyu.tsv", sep="\t", index=False, na_rep="n/a"
    )


def group(out: Path, scans: str, name: str, *words: object) -> Path:
    """Run the group level on a list; return the folder of its tables."""
    given = ["-d", f"list={out / scans}.tsv", "--name", name, "--min-time", 60, *words]
    command = [sys.executable, "-m", "fcpower_bids", out / "bids", out / scans, "group", *given]
    subprocess.run([str(word) for word in command], check=True)
    return out / scans / "group" / name


def read(folder: Path, name: str) -> pd.DataFrame:
    """Read a table of the group level."""
    return pd.read_csv(next(folder.glob(f"{name}.tsv*")), sep="\t")


def main(argv: list[str] | None = None) -> None:
    """Write the lists, run all commands, print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("abide", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tables", type=Path)
    given = parser.parse_args(argv)
    out = given.out.absolute()
    if not (out / "nyu.tsv").is_file():
        write_lists(given.abide.absolute(), out)
    predict = ("--analyses", "prediction", "--targets", *TARGETS, "--site-column", "site", "--permutations", 0)
    folders = {
        "pooled": group(out, "whole", "pooled", "--atlas", "cc200", *predict),
        "sites held out": group(out, "whole", "held", "--atlas", "cc200", *predict, "--sites", "hold-out"),
        "pooled, Harvard-Oxford": group(out, "whole", "ho", "--atlas", "ho", *predict),
    }
    alignment = ("--analyses", "alpha_selection", "--alpha", "align", "--targets", *TARGETS)
    aligned = group(out, "whole", "alpha", "--atlas", "cc200", *alignment, "--repeats", 1)
    halves = group(out, "halves", "halves", "--analyses", "fingerprinting")
    motion = group(out, "nyu", "motion", "--atlas", "cc200", "--analyses", "qc_fc")
    folds = []
    for design, folder in folders.items():
        summary, tests = read(folder, "prediction_summary"), read(folder, "comparisons")
        print(f"\n{design}\n", summary.to_string(), "\n", tests.to_string())
        scores = ["target", "representation", "repeat", "fold", "r", "auc"]
        rows = read(folder, "prediction")
        folds.append(rows[[name for name in scores if name in rows]].assign(design=design))
    for folder, name in ((aligned, "alpha_optimum"), (halves, "identification"), (motion, "qcfc_summary")):
        print(f"\n{name}\n", read(folder, name).to_string())
    if given.tables is not None:
        given.tables.mkdir(parents=True, exist_ok=True)
        pd.concat(folds).to_csv(given.tables / "folds.tsv", sep="\t", index=False, float_format="%.4f", na_rep="n/a")


if __name__ == "__main__":
    main()
