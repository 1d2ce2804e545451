"""What is known without a scan: one number per claim, on the unit that is left out, and no gain where none is."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fcpower_bids.analyses.baselines import Baselines
from fcpower_bids.analyses.evaluate import make_solver
from fcpower_bids.analyses.study import open_study
from tests.analyses.cohorts import choose, cohort_of
from tests.cases.cohorts import group, read, write_series, write_table

PREDICT = ("--analyses", "prediction", "--representations", "fc")
TESTED = ("--folds", 3, "--inner-folds", 2, "--repeats", 1, "--permutations", 39, "--min-time", 0, "--nprocs", 1)
N = 60
NAMES = tuple(f"sub-{number:03d}" for number in range(1, N + 1))
RANDOM = np.random.default_rng(7)
AGE = RANDOM.standard_normal(N)
SITE = np.array(list("abcd"))[np.arange(N) % 4]
MOTION = 0.15 * np.exp(0.8 * RANDOM.standard_normal(N))
TRAIT = RANDOM.standard_normal(N)
NOISE = np.random.default_rng(11).standard_normal(N)
LEVEL = dict(zip("abcd", (0.0, 4.0, -2.5, 6.0), strict=True))


def people(folder, drives, motion=MOTION):
    """Sixty people whose first connection goes with something."""
    r = 0.75 * np.tanh(np.asarray(drives))
    return write_series(folder, NAMES, volumes=100, signal=lambda number: r[number], mean_fd=np.round(motion, 4))


def run(folder, columns, *options, quick=TESTED):
    table = write_table(folder / "x.tsv", participant_id=NAMES, **columns)
    assert group(folder, *PREDICT, "--phenotypes", table, *options, quick=quick) == 0
    rows = read(folder, "prediction_baselines").set_index("model")
    return rows, (folder / "out" / "group.html").read_text()


@pytest.mark.parametrize(
    ("columns", "known"),
    [
        ({"site": SITE, "age": AGE}, "age, mean_fd"),
        ({"site": SITE, "age": [LEVEL[one] for one in SITE]}, "mean_fd"),
    ],
)
def test_28_held_out_sites_have_no_constant_and_one_unit(tmp_path, columns, known):
    folder = people(tmp_path, TRAIT)
    values = 2 * TRAIT + NOISE + np.array([LEVEL[one] for one in SITE])
    options = ("--targets", "y", "--site-column", "site", "--sites", "hold-out")
    rows, page = run(folder, {**columns, "y": values}, *options)
    assert rows.loc["known", "known"] == known
    assert rows.loc["known", "predictive_cod"] > -1
    both = rows.loc["known and connectome"]
    over = rows.loc[both["over"], "value"]
    assert both["gain"] == pytest.approx(both["value"] - over)
    assert both["value"] > 0.25, "among the people of a site, whose level no model knows"
    assert {gain for *_, gain in shown(page, "y")} <= {None, round(both["value"], 2) - round(over, 2)}


def shown(page, target):
    """The numbers of the claim about a target: alone, together, and the gain or None."""
    text = re.sub(r"<[^>]+>", " ", page).replace("\u2212", "-")
    found = re.findall(r"alone (-?\d\.\d\d), with FC (-?\d\.\d\d); FC adds (?:([+-]\d\.\d\d)|nothing)", text)
    found += [("0.00", *each) for each in re.findall(
        r"without a scan 0.00, with FC (-?\d\.\d\d); FC adds (?:([+-]\d\.\d\d)|nothing)", text)]  # fmt: skip
    return {(float(one), float(other), float(gain) if gain else None) for one, other, gain in found}


def test_29_the_larger_baseline_leads(tmp_path):
    known = AGE + 1.5 * np.array([{"a": 0, "b": 1, "c": 2, "d": 3}[one] for one in SITE])
    folder = people(tmp_path, known - known.mean())
    targets = {"y": known + 0.1 * NOISE, "z": known + 0.3 * NOISE}
    table, page = run(folder, {"site": SITE, "age": known, **targets}, "--targets", *targets)
    assert "more than the site was shown" not in page.lower()
    for target in targets:
        rows = table[table["target"] == target]
        both = rows.loc["known and connectome"]
        assert {"site", "known"} <= set(rows.index)
        assert both["over"] == "known"
        assert rows.loc["known", "value"] > rows.loc["site", "value"]
        assert str(both["adds"]).lower() == "false"
        assert {gain for *_, gain in shown(page, target)} == {None}


@pytest.mark.parametrize("covariates", [(), ("age", "sex")])
def test_30_the_site_alone_is_out_of_fold_and_of_the_target_of_the_row(tmp_path, covariates):
    folder = people(tmp_path, TRAIT)
    sex = np.arange(N) % 3 == 0
    values = 1.3 * (SITE == "a") - 1.1 * (SITE == "d") + 0.6 * AGE + 0.4 * sex + NOISE
    options = ("--covariates", *covariates) if covariates else ()
    table = {"site": SITE, "age": AGE, "sex": sex.astype(int), "y": values}
    rows, _ = run(folder, table, "--targets", "y", *options)
    folds = read(folder, "folds").query("role == 'test'").set_index("participant_id")["fold"].loc[list(NAMES)]
    guess, left = np.empty((2, N))
    known = pd.DataFrame(table)[list(covariates)].to_numpy(dtype=float)
    for fold in folds.unique():
        test = (folds == fold).to_numpy()
        design = np.column_stack([np.ones(N), known])
        own = values - design @ np.linalg.lstsq(design[~test], values[~test], rcond=None)[0] if covariates else values
        means = pd.Series(own[~test]).groupby(SITE[~test]).mean()
        others = pd.Series(own[~test]).groupby(SITE[~test])
        sizes = others.transform("size").to_numpy()
        before = (others.transform("sum").to_numpy() - own[~test]) / (sizes - 1)
        slope = np.clip(np.polyfit(before, own[~test], 1)[0], 0, 1)
        level = own[~test].mean()
        guess[test], left[test] = level + slope * (means[SITE[test]].to_numpy() - level), own[test]
    assert rows.loc["site", "value"] == pytest.approx(np.corrcoef(guess, left)[0, 1], abs=1e-8)


@pytest.mark.parametrize(("name", "target"), [("Sex", "g=iq,{}"), ("age", "old={}>=0")])
def test_what_a_target_is_made_of_is_not_known_without_a_scan(tmp_path, name, target):
    """The table is that of a column under a name that nothing is known of."""
    folder, tables = people(tmp_path, TRAIT), []
    for called in (name, "measure"):
        columns = {called: np.round(AGE, 3), "iq": np.round(0.5 * AGE + NOISE, 3)}
        rows, _ = run(folder, columns, "--targets", target.format(called), "--replace")
        assert set(rows.loc[["known", "known and connectome"], "known"]) == {"mean_fd"}
        tables.append(rows.replace({"target": {called: "target"}}))
    pd.testing.assert_frame_equal(*tables)


def test_31_what_goes_with_motion_in_any_shape_is_known(tmp_path):
    folder = people(tmp_path, stats.zscore(np.log(MOTION)))
    shapes = {"log": np.log, "root": np.sqrt, "rank": lambda fd: stats.rankdata(fd) / N}
    columns = {name: stats.zscore(shape(np.round(MOTION, 4))) + 0.3 * NOISE for name, shape in shapes.items()}
    table, page = run(folder, columns, "--targets", *columns)
    for target in columns:
        rows = table[table["target"] == target]
        assert rows.loc["known", "value"] > 0.85
        assert str(rows.loc["known and connectome", "adds"]).lower() == "false"
        assert {gain for *_, gain in shown(page, target)} <= {None}


def test_32_a_stack_is_no_worse_than_its_parts(tmp_path):
    folder = people(tmp_path, 1.5 * TRAIT)
    columns = {f"x{number}": np.random.default_rng(number).standard_normal(N) for number in range(5)}
    table = {**columns, "y": TRAIT + 0.1 * NOISE}
    alone, _ = run(folder, table, "--targets", "y")
    for useless in (1, 5):
        options = ("--targets", "y", "--covariates", *list(columns)[:useless], "--name", "known")
        run(folder, table, *options, "--replace")
        rows = pd.read_csv(folder / "out" / "group" / "known" / "prediction_baselines.tsv", sep="\t")
        rows = rows.set_index("model")
        both = rows.loc["known and connectome", "value"]
        assert both > max(rows.loc["known", "value"], alone.loc["known and connectome", "value"] - 0.1)


@pytest.mark.parametrize(("drives", "seed"), [(TRAIT, 0), (NOISE, 2)])
def test_34_a_claim_has_one_number(tmp_path, drives, seed):
    folder = people(tmp_path, drives)
    bad = np.random.default_rng(seed).standard_normal(N)
    rows, page = run(folder, {"age": bad, "y": 2 * TRAIT + NOISE}, "--targets", "y")
    both = rows.loc["known and connectome"]
    assert both["gain"] == pytest.approx(both["value"] - rows["value"].drop("known and connectome").max())
    claims = shown(page, "y")
    assert len(claims) <= 1, "headline, section and figure say the same"
    for alone, together, gain in claims:
        assert together == pytest.approx(both["value"], abs=0.005)
        assert alone == pytest.approx(rows.loc[both["over"], "value"], abs=0.005)
        assert gain is None or gain == pytest.approx(together - alone, abs=1e-9)


def drawn(seed, kind, n=100, parcels=8):
    """A cohort whose connectomes know age, site and motion, and no more of the target than these."""
    random, n_edges = np.random.default_rng(seed), parcels * (parcels - 1) // 2
    site, age, trait = random.integers(0, 4, n), random.standard_normal(n), random.standard_normal(n)
    motion, noise = random.standard_normal(n), random.standard_normal(n)
    level, load = random.standard_normal((4, n_edges)), random.standard_normal((3, n_edges))
    drives = 0.6 * np.outer(age, load[0]) + 0.5 * np.outer(motion, load[1]) + 0.6 * np.outer(trait, load[2])
    edges = 0.15 * (random.standard_normal((n, n_edges)) + drives + 0.5 * level[site])
    offset = random.standard_normal(4)[site]
    values = {
        "held-out": 0.7 * age + 1.5 * offset + noise,
        "site-bound": 0.7 * age + offset + noise,
        "motion": motion + 0.7 * noise,
        "planted": 0.7 * age + offset + noise + 0.8 * trait,
        "composite": None,
    }[kind]
    table = {"age": 40 + 10 * age, "site": np.array(list("abcd"))[site]}
    choices = {"targets": ("y",)} if values is not None else {"targets": ("g=m0,m1,m2",)}
    parts = {f"m{i}": 0.7 * age + 0.6 * offset + noise + 0.7 * random.standard_normal(n) for i in range(3)}
    table |= {"y": values} if values is not None else parts
    choices |= {"site_column": "site", "sites": "hold-out"} if kind == "held-out" else {}
    rows = [(f"sub-{i:03d}", "n/a", 300.0, 0.15 * np.exp(0.6 * motion[i]), 1) for i in range(n)]
    index = pd.Index([row[0] for row in rows], name="participant_id")
    return cohort_of(edges, rows, pd.DataFrame(table, index=index)), choices


@pytest.mark.parametrize(
    ("kind", "fewest", "most"),
    [
        ("held-out", 0, 5), ("site-bound", 0, 5), ("motion", 0, 5), ("composite", 0, 5), ("planted", 12, 20)
    ],
)  # fmt: skip
def test_28_to_34_adds_is_said_as_often_as_chance_has_it_where_nothing_is_added(kind, fewest, most):
    """Of 20 cohorts 5 or fewer, which chance exceeds in one of 3,000; of a planted gain most."""
    said = 0
    for seed in range(20):
        cohort, choices = drawn(seed, kind)
        settings = choose(
            preset="recommended", representations=("fc",), folds=5, inner_folds=3, repeats=1, permutations=39, **choices
        )
        study = open_study(cohort, settings)
        baselines = Baselines(study)
        for representation in study.representations():
            baselines.add(representation.name, make_solver(representation, study.preset))
        frame = baselines.table()["prediction_baselines"].frame.set_index("model")
        said += bool(frame.loc["known and connectome", "adds"])
    assert fewest <= said <= most
