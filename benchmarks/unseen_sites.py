"""How often intervals hold at unseen sites, by the commands that users run, and what is said at an older site.

    python -m benchmarks.unseen_sites FOLDER [--sites 12] [--people 10]

makes a demo dataset in FOLDER, whose ages are told by the connectomes and shifted by site, and predicts each site by a
model of the others (``group --save-models``, ``predict``). Then 25 people of a site who are 12 years older than their
connectomes tell.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.cli.run import main as run
from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.outputs.tables import read_table, write_table
from fcpower_bids.slices.clinic.options import ACCEPT

OLDER = 25
YEARS = 10.0
"""Standard deviation of age; that of the shifts of sites is so many times ``--shift``."""


def make_people(folder: Path, sites: int, people: int, shift: float) -> pd.DataFrame:
    """Scan everybody; return age and site of each, the people of the older site last."""
    n = sites * people + OLDER
    make_dataset(folder / "bids", DemoDesign(subjects=n, sessions=1, volumes=140, troubles=False))
    arguments = [folder / "bids", folder / "out", "participant", "--atlas", "builtin", "--quiet"]
    if run([str(each) for each in (*arguments, "-w", folder / "w")]):
        raise SystemExit("The participant level failed.")
    score = read_table(folder / "bids" / "participants.tsv")[["participant_id", "planted_score"]]
    told = (score["planted_score"] - 100) / 15
    site = np.append(np.arange(sites * people) % sites, np.full(OLDER, sites))
    offset = np.append(shift * np.random.default_rng(0).standard_normal(sites), 0.0)
    years = 45 + YEARS * (told + offset[site])
    years[site == sites] += 12
    table = score[["participant_id"]].assign(age=years.round(1), site=[f"s{one:02d}" for one in site])
    write_table(folder / "bids" / "participants.tsv", table)
    return table


def predict_site(folder: Path, table: pd.DataFrame, site: str, more: Sequence[str] = ()) -> pd.DataFrame:
    """Rows of the people of a site, by a model of all others but the older site."""
    last = table["site"].max()
    own = table[table["site"] == site]
    others = table[(table["site"] != site) & (table["site"] != last)]
    model = folder / "out" / "group" / f"without{site}" / "models" / "target-age-fc-power_model"
    labels = [name.removeprefix("sub-") for name in others["participant_id"]]
    if not model.is_dir():
        choices = ["--targets", "age", "--site-column", "site", "--save-models", ACCEPT, "--analyses", "qc_fc",
                   "--name", f"without{site}", "--quiet", "-w", folder / "w"]  # fmt: skip
        arguments = [folder / "bids", folder / "out", "group", *choices, "--participant-label", *labels]
        if run([str(each) for each in arguments]):
            raise SystemExit("The group level failed.")
    target = folder / f"{site}.tsv"
    labels = [name.removeprefix("sub-") for name in own["participant_id"]]
    arguments = ["predict", model, folder / "out", ACCEPT, "--no-pages", "--table", target, *more]
    if run([str(each) for each in (*arguments, "--participant-label", *labels)]):
        raise SystemExit("Not everybody was predicted.")
    rows = read_table(target).merge(own, on="participant_id", suffixes=("", "_known"))
    return rows.assign(holds=rows["age"].between(rows["low"], rows["high"]), error=rows["prediction"] - rows["age"])


def show_older(rows: pd.DataFrame, name: str) -> None:
    """Print what came of the older site."""
    warnings = rows["warning"].fillna("")
    first = warnings.str.startswith("The intervals do not hold here.").sum()
    aged = warnings.str.contains("Treat with caution: the person is ").sum()
    errors, radius = rows["error"], (rows["high"] - rows["prediction"]).mean()
    print(
        f"{name}: {len(rows)} people, mean error {errors.mean():+.1f}, absolute {errors.abs().mean():.1f}, interval "
        f"+/-{radius:.1f} holds in {rows['holds'].mean():.2f}, said first of {first}, age of {aged}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="new folder")
    parser.add_argument("--sites", type=int, default=12)
    parser.add_argument("--people", type=int, default=10, help="of each site")
    parser.add_argument("--shift", type=float, default=0.5, help="standard deviations of age between sites")
    options = parser.parse_args()
    table = make_people(options.folder, options.sites, options.people, options.shift)
    *sites, last = sorted(table["site"].unique())
    rows = pd.concat([predict_site(options.folder, table, site) for site in sites])
    each = rows.groupby("site")["holds"].mean()
    wide = rows["age"].between(rows["low_new_site"], rows["high_new_site"])
    print(f"{len(rows)} people of {len(sites)} unseen sites: held {rows['holds'].mean():.3f}, least {each.min():.2f}, "
          f"cautious {wide.mean():.3f}")  # fmt: skip
    show_older(predict_site(options.folder, table, last), "older site")
    own = table[table["site"] == last]
    write_table(options.folder / "local.tsv", own.head(5)[["participant_id", "age"]])
    moved = predict_site(options.folder, table, last, ("--recalibrate", str(options.folder / "local.tsv")))
    show_older(moved[~moved["participant_id"].isin(own.head(5)["participant_id"])], "after five local people")


if __name__ == "__main__":
    main()
