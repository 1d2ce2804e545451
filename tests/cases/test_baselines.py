"""What is known without a scan: one number per claim, on the unit that is left out, and no gain where none is."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

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
    group(folder, *PREDICT, "--phenotypes", table, *options, quick=quick)
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
