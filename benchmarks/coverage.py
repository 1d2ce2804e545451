"""How often the intervals of saved models hold for people that nothing was fitted on.

    python -m benchmarks.coverage --shared ../shared

prints the table of ``docs/clinic.md``: STAGES by folds of people, and a synthetic cohort of shifted sites, each site
held out in turn.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from fcpower_bids.core.connectome.edges import rebuild_matrix
from fcpower_bids.errors import Unfit
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Settings
from fcpower_bids.slices.clinic.applying import apply_model
from fcpower_bids.slices.clinic.fitting import fit_final_model
from tests.analyses.cohorts import demo_cohort
from tests.analyses.stages import stages_cohort


def choose(**choices: object) -> Settings:
    """Settings of the group level as they are by default."""
    return Settings(Path(), Path(), "group", quiet=True, permutations=0, **choices)  # type: ignore[arg-type]


def take(cohort: Cohort, people: set[str]) -> Cohort:
    """The scans of some people."""
    kept = np.flatnonzero(cohort.scans["participant_id"].isin(people))
    return dataclasses.replace(
        cohort,
        scans=cohort.scans.iloc[kept].reset_index(drop=True),
        edges=np.asarray(cohort.edges)[kept],
        series=tuple(cohort.series[row] for row in kept),
        repetition_times=tuple(cohort.repetition_times[row] for row in kept),
        phenotypes=cohort.phenotypes[cohort.phenotypes.index.isin(people)],
    )


def held_out(cohort: Cohort, target: str, groups: list[set[str]], settings: Settings) -> Iterator[dict[str, object]]:
    """Predict every scan of every group by a model of the others."""
    known = set(cohort.phenotypes.index[cohort.phenotypes[target].notna()])
    for number, group in enumerate(groups):
        try:
            model = fit_final_model(take(cohort, known - group), settings, target, "fc_power")
        except Unfit as error:
            print(f"{target}, group {number}: {error}")
            continue
        for row in np.flatnonzero(cohort.scans["participant_id"].isin(known & group)):
            person = str(cohort.scans["participant_id"].iloc[row])
            fc = rebuild_matrix(np.asarray(cohort.edges[row], dtype=float), 1.0, weighted=False)
            found = apply_model(model, fc, cohort.parcels)
            truth = float(cohort.phenotypes.loc[person, target])
            yield {
                "group": number,
                "person": person,
                "holds": found.low <= truth <= found.high,
                "new_site": found.low_new_site <= truth <= found.high_new_site,
                "claimed": model.facts["Interval"]["NominalCoverage"],
                "measured": model.facts["Interval"]["MeasuredCoverage"],
                "known_new_site": np.isfinite(found.low_new_site),
            }


def show(name: str, rows: pd.DataFrame) -> None:
    """Print one row of the table; a person with several scans counts once."""
    people = rows.groupby(["repeat", "person"])["holds"].mean().groupby("person").mean()
    low, high = (people.mean() + sign * 1.96 * people.std() / np.sqrt(len(people)) for sign in (-1, 1))
    each = rows.groupby(["repeat", "group"])["holds"].mean()
    line = f"{name}: n {len(people)} people, {len(rows)} predictions, claimed {rows['claimed'].mean():.3f}, measured "
    line += f"in training {rows['measured'].mean():.3f}, held {people.mean():.3f} ({low:.3f} to {high:.3f}), "
    line += f"least of {len(each)} groups {each.min():.2f}"
    if rows["known_new_site"].any():
        line += f", cautious {rows['new_site'].mean():.3f} (least {rows.groupby('group')['new_site'].mean().min():.2f})"
    print(line, flush=True)


def stages(shared: Path, repeats: int) -> None:
    """Every column of STAGES that is a number, by five folds of people."""
    cohort = stages_cohort(shared)
    table = pd.read_csv(shared / "data" / "stages" / "participants.tsv", sep="\t", na_values="n/a")
    table = table.drop_duplicates("participant_id").set_index("participant_id")
    names = [name for name in table if name.startswith(("bprs", "sofas"))]
    cohort = dataclasses.replace(cohort, phenotypes=table[names])
    for target in names:
        people, parts = table.index[table[target].notna()].to_numpy(), []
        for repeat in range(repeats):
            order = np.random.default_rng(repeat).permutation(people)
            groups = [set(part) for part in np.array_split(order, 5)]
            rows = held_out(cohort, target, groups, choose(targets=(target,), folds=5))
            parts.append(pd.DataFrame(rows).assign(repeat=repeat))
        show(f"STAGES, {target}", pd.concat(parts))


def shifted_sites(sites: int, people: int, shift: float) -> None:
    """Sites whose target is off by so many standard deviations, in years and in scans; each is unseen in turn."""
    cohort = demo_cohort(sites * people)
    names = list(cohort.phenotypes.index)
    rng = np.random.default_rng(0)
    where = {name: number % sites for number, name in enumerate(names)}
    offset = shift * rng.standard_normal(sites)
    target = cohort.phenotypes["planted_score"]
    moved = target + target.std() * offset[[where[name] for name in names]]
    table = pd.DataFrame({"score": moved, "site": [f"s{where[name]}" for name in names]}, index=cohort.phenotypes.index)
    cohort = dataclasses.replace(cohort, phenotypes=table)
    groups = [{name for name in names if where[name] == site} for site in range(sites)]
    settings = choose(targets=("score",), site_column="site")
    rows = pd.DataFrame(held_out(cohort, "score", groups, settings)).assign(repeat=0)
    show(f"{sites} synthetic sites of {people}, shifted by {shift:g} SD", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True, help="folder with data/stages")
    parser.add_argument("--repeats", type=int, default=2, help="times that STAGES is dealt into folds")
    options = parser.parse_args()
    with threadpool_limits(1):
        stages(options.shared, options.repeats)
        for shift in (0.0, 0.5, 1.0):
            shifted_sites(12, 15, shift)


if __name__ == "__main__":
    main()
