"""Edges: the model against least squares, scipy and nilearn; every number of the command against the files."""

from __future__ import annotations

from pathlib import Path

import networkx
import numpy as np
import pandas as pd
import pytest
from scipy import optimize, special, stats

from fcpower_bids.analyses.edge_model import EdgeModel, comparable_t
from fcpower_bids.core.targets import permuted_rows
from fcpower_bids.errors import Unfit
from fcpower_bids.outputs.tables import read_json, read_table
from tests.command import main
from tests.elsewhere.test_doors import write_list

PEOPLE, PARCELS, PERMUTATIONS, THRESHOLD = 40, 14, 199, 2.2
UPPER = np.triu_indices(PARCELS, 1)
NAMES = [f"p{number:02d}" for number in range(PARCELS)]
PLANTED = [(0, 1), (1, 2), (2, 3), (3, 4)]


def run(root: Path, *options: object, code: int = 0) -> Path:
    asked = ["-d", f"list={root / 'list.tsv'}", "--analyses", "edges", "--quiet", "--nprocs", "1"]
    assert main([*map(str, (root / "bids", root / "out", "group", *asked, *options))]) == code
    return root / "out" / "group"


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """Connectomes on a list; a chain of four edges grows with the score, and patients lack one; motion disturbs all.

    Some edges of patients are spread far more than those of others, which is one variance ratio for no two edges.
    """
    root = tmp_path_factory.mktemp("edges")
    (root / "bids").mkdir()
    rng = np.random.default_rng(3)
    score, motion = rng.standard_normal(PEOPLE), rng.uniform(0.1, 0.5, PEOPLE)
    patient, site = rng.permutation(np.arange(PEOPLE) % 2), np.arange(PEOPLE) % 3
    rows = []
    for person in range(PEOPLE):
        series = rng.standard_normal((90, PARCELS)) + 2 * motion[person] * rng.standard_normal((90, 1))
        shared = rng.standard_normal((90, len(PLANTED)))
        for number, (a, b) in enumerate(PLANTED):
            series[:, [a, b]] += np.sqrt(max(0.8 + 0.7 * score[person], 0)) * shared[:, [number]]
        shaken = motion[person] * patient[person] * np.random.default_rng(person).standard_normal(2)
        series[:, 10:12] += 6 * shaken[0] * np.random.default_rng(99).standard_normal((90, 1))
        series[:, 12:14] += 6 * shaken[1] * np.random.default_rng(99).standard_normal((90, 1))
        series[:, [7, 9]] += (1.2 - patient[person]) * rng.standard_normal((90, 1))
        matrix = np.corrcoef(series.T)
        pd.DataFrame(matrix, columns=NAMES).to_csv(root / f"{person}.tsv", sep="\t", index=False)
        about = {"atlas": "Toy", "minutes": 5, "mean_fd": motion[person]}
        rows.append({"participant_id": f"sub-{person:02d}", "path": f"{person}.tsv", **about})
    write_list(root, rows)
    columns = {"score": score, "patient": np.where(patient == 1, "yes", "no"), "site": site, "all_same": 1.0}
    columns |= {"family": [f"f{number // 2}" for number in range(PEOPLE)], "twice_site": 2.0 * site}
    columns |= {"few": np.where(np.arange(PEOPLE) < 4, score, np.nan)}
    table = pd.DataFrame({"participant_id": [row["participant_id"] for row in rows], **columns})
    table.to_csv(root / "bids" / "participants.tsv", sep="\t", index=False, na_rep="n/a")
    return root


@pytest.fixture(scope="module")
def results(cohort):
    options = ["--covariates", "mean_fd", "--permutations", PERMUTATIONS, "--nbs-threshold", THRESHOLD]
    options += ["--representations", "fc", "fc_power", "fisher_z"]
    return run(cohort, "--targets", "score", "patient", *options)


@pytest.fixture(scope="module")
def inputs(cohort):
    """Edges of FC and of its Fisher z, targets and motion, from the files."""
    matrices = np.stack([pd.read_csv(cohort / f"{person}.tsv", sep="\t").to_numpy() for person in range(PEOPLE)])
    edges = {"fc": matrices[:, UPPER[0], UPPER[1]], "fisher_z": np.arctanh(matrices[:, UPPER[0], UPPER[1]])}
    table = pd.read_csv(cohort / "bids" / "participants.tsv", sep="\t")
    motion = pd.read_csv(cohort / "list.tsv", sep="\t")["mean_fd"].to_numpy()
    targets = {"score": table["score"].to_numpy(), "patient": (table["patient"] == "yes").to_numpy(dtype=float)}
    return edges, targets, motion


def welch(edges, target, motion, order=slice(None)):
    """Slope, Welch's t, degrees of freedom and plain residual standard deviation, for all edges at once.

    The variance groups are the classes of a target of two; their ratio goes by all edges, and what changes places is
    over the common spread of the person's class; then the permuted residuals are not fitted to motion again.
    """
    design = np.column_stack([np.ones(PEOPLE), motion])
    tested, edges = [each - design @ np.linalg.lstsq(design, each, rcond=None)[0] for each in (target, edges)]
    length, classes = np.linalg.norm(tested), np.unique(target)
    size = np.linalg.norm(edges, axis=0)
    tested, edges = tested / length, edges / size
    hat = np.einsum("ij,ji->i", design, np.linalg.pinv(design)) + tested**2
    if len(classes) > 2:
        slope, t, df, deviation = least_squares(np.column_stack([design, tested])[order], edges)
        return slope * size / length, t, df, deviation * size
    df = np.array([(1 - hat)[target == one].sum() for one in classes])
    slope, squares = squares_left(edges, tested, target)
    own, ratio = shrunk(squares, df)
    if not isinstance(order, slice):
        edges = edges / np.sqrt(ratio[(target == classes[1]).astype(int)])[:, None]
        edges -= design @ np.linalg.lstsq(design, edges, rcond=None)[0]
        edges /= np.linalg.norm(edges, axis=0)
        df = np.array([(1 - 1 / PEOPLE - tested**2)[target == one].sum() for one in classes])
        tested, target = tested[order], target[order]
        slope, squares = squares_left(edges, tested, target)
        own, ratio = shrunk(squares, df)
    variances = squares / df[:, None]
    common = sum(each / one for each, one in zip(squares, ratio, strict=True)) / df.sum()
    shares = own[:, None] * variances + ((1 - own) * ratio)[:, None] * common
    weights = np.array([(tested[target == one] ** 2).sum() for one in classes])
    variance = weights @ shares
    of_squares = weights * own / df + weights @ ((1 - own) * ratio) / ratio / df.sum()
    uncertain = of_squares**2 * df + weights**2 * own * (1 - own) / df
    freedom = np.clip(variance**2 / (uncertain @ shares**2), df.min(), df.sum())
    return slope * size / length, slope / np.sqrt(variance), freedom, np.sqrt((1 - slope**2) / (PEOPLE - 3)) * size


def least_squares(design, edges):
    """Slope, t, degrees of freedom and residual standard deviation of the last column of a design, edge by edge."""
    weights = np.linalg.lstsq(design, edges, rcond=None)[0]
    df = float(len(design) - np.linalg.matrix_rank(design))
    deviation = np.sqrt(((edges - design @ weights) ** 2).sum(axis=0) / df)
    t = weights[-1] / deviation / np.sqrt(np.linalg.inv(design.T @ design)[-1, -1])
    return weights[-1], t, np.full(t.shape, df), deviation


def squares_left(edges, tested, target):
    """Product with the tested column, and sums of squares of each class without it."""
    slope = tested @ edges
    left = (edges - np.outer(tested, slope)) ** 2
    return slope, np.array([left[target == one].sum(axis=0) for one in np.unique(target)])


def shrunk(squares, df):
    """Share of an edge's own variance in each of two classes, and their ratios over that of everyone (Smyth 2004)."""
    log = np.log(squares / df[:, None]) - (special.digamma(df / 2) - np.log(df / 2))[:, None]
    log = (log - log[::-1]) / 2
    excess = 2 * log[0].var(ddof=1) - special.polygamma(1, df / 2).sum() / 2
    ratio = np.exp(log.mean(axis=1))
    ratio /= (df * ratio).sum() / df.sum()
    if excess <= 1e-6:
        return np.zeros(2), ratio
    prior = 2 * optimize.brentq(lambda x: special.polygamma(1, x) - excess, 1e-8, 1e8)
    return df / (df + prior), ratio


def at_common(t, df):
    """|t| with the same normal equivalent (Wallace) at the degrees of freedom of the model."""
    z = (8 * df + 1) / (8 * df + 3) * np.sqrt(df * np.log1p(t**2 / df))
    all_df = PEOPLE - 3
    return np.sqrt(all_df * np.expm1((z * (8 * all_df + 3) / (8 * all_df + 1)) ** 2 / all_df))


QUESTIONS = [(target, name) for target in ("score", "patient") for name in ("fc", "fisher_z")]


def part(folder: Path, table: str, target: str, name: str) -> pd.DataFrame:
    rows = read_table(folder / f"{table}.tsv")
    return rows[(rows["target"] == target) & (rows["representation"] == name)].reset_index(drop=True)


@pytest.mark.parametrize(("target", "name"), QUESTIONS)
def test_every_edge_is_what_least_squares_finds_in_the_files(results, inputs, target, name):
    edges, targets, motion = inputs
    slope, t, df, deviation = welch(edges[name], targets[target], motion)
    p, n = 2 * stats.t.sf(np.abs(t), df), UPPER[0].size
    assert (np.ptp(df) < 1e-9) == (target == "score")
    rows = part(results, "edges", target, name)
    assert len(rows) == n
    place = {(NAMES[a], NAMES[b]): number for number, (a, b) in enumerate(zip(*UPPER, strict=True))}
    order = [place[pair] for pair in zip(rows["parcel_a"], rows["parcel_b"], strict=True)]
    assert order == np.argsort(-at_common(t, df)).tolist()
    tolerance = {"rtol": 1e-6, "atol": 1e-8}
    np.testing.assert_allclose(rows["slope"], slope[order], **tolerance)
    np.testing.assert_allclose(rows["t"], t[order], **tolerance)
    np.testing.assert_allclose(rows["p"], p[order], **tolerance)
    np.testing.assert_allclose(rows["df"], df[order], **tolerance)
    effect = slope / deviation if target == "patient" else t / np.sqrt(t**2 + PEOPLE - 3)
    np.testing.assert_allclose(rows["effect"], effect[order], **tolerance)
    assert set(rows["measure"]) == {"d" if target == "patient" else "r"}


@pytest.mark.parametrize(("target", "name"), QUESTIONS)
def test_corrected_p_are_those_of_permuted_residuals(results, inputs, target, name):
    """The model by hand on the permutations of the seed; the same for both representations."""
    edges, targets, motion = inputs
    orders = permuted_rows(PEOPLE, PERMUTATIONS, 0)
    null = np.stack([at_common(*welch(edges[name], targets[target], motion, order)[1:3]) for order in orders])
    table, rows = part(results, "edges_null", target, name), part(results, "edges", target, name)
    np.testing.assert_allclose(table["largest_t"], null.max(axis=1), rtol=1e-6)
    own = at_common(*welch(edges[name], targets[target], motion)[1:3])
    order, t = np.argsort(-own), np.sort(own)[::-1]
    corrected = [(1 + (null.max(axis=1) >= each).sum()) / (1 + PERMUTATIONS) for each in t]
    np.testing.assert_allclose(rows["p_family_wise"], corrected)
    alone = (1 + (null[:, order] >= t).sum(axis=0)) / (1 + PERMUTATIONS)
    np.testing.assert_allclose(rows["p_permutation"], alone)
    pooled = (1 + (null.ravel() >= t[:, None] - 0.001).sum(axis=1)) / (1 + null.size)
    np.testing.assert_allclose(rows["q"], stats.false_discovery_control(pooled), rtol=0.03, atol=1e-4)


def networks_of(t: np.ndarray, fewest: int = 2) -> np.ndarray:
    """Edges, parcels and sign of every network of so many edges above the threshold, by networkx."""
    found = []
    for sign in (1, -1):
        graph = networkx.Graph()
        for i, j, value in zip(*UPPER, sign * t, strict=True):
            if value > THRESHOLD:
                graph.add_edge(i, j)
        parts = [graph.subgraph(each) for each in networkx.connected_components(graph)]
        found += [(p.number_of_edges(), len(p), sign) for p in parts if p.number_of_edges() >= fewest]
    return np.array(found, dtype=float).reshape(-1, 3)


@pytest.mark.parametrize(("target", "name"), QUESTIONS)
def test_networks_of_edges_are_those_of_networkx(results, inputs, target, name):
    edges, targets, motion = inputs
    t, df = welch(edges[name], targets[target], motion)[1:3]
    expected = networks_of(np.sign(t) * at_common(t, df))
    rows, null = part(results, "edges_components", target, name), part(results, "edges_null", target, name)
    ours = rows.assign(sign=rows["sign"].map({"stronger": 1, "weaker": -1}))
    ours = ours[["n_edges", "n_parcels", "sign"]].to_numpy(dtype=float)
    np.testing.assert_array_equal(-ours[:, 0], np.sort(-ours[:, 0]))
    assert sorted(map(tuple, ours)) == sorted(map(tuple, expected))
    p = [(1 + (null["extent"] >= each).sum()) / (1 + PERMUTATIONS) for each in rows["n_edges"]]
    np.testing.assert_allclose(rows["p_extent"], p)
    for order, row in zip(permuted_rows(PEOPLE, PERMUTATIONS, 0)[:40], null.itertuples(), strict=False):
        t, df = welch(edges[name], targets[target], motion, order)[1:3]
        drawn = networks_of(np.sign(t) * at_common(t, df), fewest=1)
        assert row.extent == drawn[:, 0].max(initial=0)
    members = part(results, "edges", target, name)["component"].value_counts()
    assert members.rename(int).to_dict() == rows.set_index("component")["n_edges"].to_dict()


@pytest.mark.parametrize(("target", "name"), QUESTIONS)
def test_the_summary_follows_from_the_tables(results, target, name):
    row = part(results, "edges_summary", target, name).iloc[0]
    rows, null = part(results, "edges", target, name), part(results, "edges_null", target, name)
    components = part(results, "edges_components", target, name)
    hits = rows[rows["p_family_wise"] < 0.05]
    counts = {"n_people": PEOPLE, "n_covariates": 1, "n_sites": 1, "df": PEOPLE - 3, "n_edges": UPPER[0].size}
    counts |= {"n_permutations": PERMUTATIONS, "n_family_wise": len(hits), "n_stronger": (hits["t"] > 0).sum()}
    counts |= {"n_fdr": (rows["q"] < 0.05).sum(), "n_components": len(components), "threshold": THRESHOLD}
    assert {key: row[key] for key in counts} == pytest.approx(counts)
    assert row["smallest_p"] == 1 / (1 + PERMUTATIONS)
    assert row["p_family_wise"] == rows["p_family_wise"].min()
    assert row["p_component"] == components["p_extent"].min()
    assert row["effect_largest"] == rows["effect"].iloc[0]
    both = np.maximum(*(part(results, "edges_null", target, each)["largest_t"] for each in ("fc", "fisher_z")))
    largest = at_common(*rows[["t", "df"]].iloc[0])
    assert row["p_max"] == pytest.approx((1 + (both >= largest).sum()) / (1 + PERMUTATIONS))
    needed = row["t_needed"]
    assert (1 + (null["largest_t"] > needed).sum()) / (1 + PERMUTATIONS) < 0.05
    assert (1 + (null["largest_t"] >= needed).sum()) / (1 + PERMUTATIONS) >= 0.05


def test_a_target_that_is_a_site_is_found_by_free_permutation_and_refused_within_sites(cohort, capsys):
    """Within sites nothing is left of it; families are exchanged whole, so their members stay together."""
    options = ["--permutations", 49, "--representations", "fc"]
    run(cohort, *options, "--name", "site", "--targets", "twice_site", "--site-column", "site", code=3)
    refused = "Target 'twice_site': Covariates and sites explain the target completely"
    assert refused in capsys.readouterr().err
    both = ["--site-column", "site", "--family-column", "family"]
    folder = run(cohort, *options, "--name", "blocks", "--targets", "twice_site", "score", *both) / "blocks"
    assert refused in read_json(folder / "edges_summary.json")["LeftOut"], "the other target is not lost with it"
    row = part(folder, "edges_summary", "score", "fc").iloc[0]
    assert row[["n_sites", "df"]].tolist() == [3, PEOPLE - 4]
    rows = part(folder, "edges", "score", "fc")
    assert row["n_variances"] == 3
    assert rows["p"].isna().all(), "relatives are not independent"
    assert rows["q"].min() < rows["p_permutation"].min() * len(rows), "q is not bounded by the permutations"


N, EDGES = 40, 12


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    covariates = rng.standard_normal((N, 2))
    sites = np.repeat(["one", "two", "three"], [15, 15, 10])
    target = rng.standard_normal(N) + covariates[:, 0] + (sites == "two")
    edges = rng.standard_normal((N, EDGES)) + 0.4 * target[:, None] - covariates[:, 1:]
    return target, covariates, sites, edges


def designs(target, covariates, sites):
    own = np.column_stack([sites == name for name in dict.fromkeys(sites)]).astype(float)
    reduced = np.column_stack([own, covariates])
    return reduced, np.column_stack([reduced, target])


def welch_by_hand(residuals, tested, groups, freedom):
    """Slope over its standard error from the variance of each group, with Satterthwaite's degrees of freedom."""
    slope = tested @ residuals
    left = (residuals - np.outer(tested, slope)) ** 2
    parts = np.array([(tested[groups == g] ** 2).sum() * left[groups == g].sum(axis=0) for g in np.unique(groups)])
    parts /= freedom[:, None]
    return slope / np.sqrt(parts.sum(axis=0)), parts.sum(axis=0) ** 2 / (parts**2 / freedom[:, None]).sum(axis=0)


def test_welchs_t_with_covariates_and_sites_is_that_of_the_residuals_in_any_order(data):
    """Two variance groups in each site; permuted residuals are not fitted to the covariates again."""
    target, covariates, sites, edges = data
    groups = np.array([f"{site}{number % 2}" for number, site in enumerate(sites)])
    model = EdgeModel(target, covariates, sites, groups)
    full = designs(target, covariates, sites)[1]
    leverage = np.einsum("ij,ji->i", full, np.linalg.pinv(full))
    np.testing.assert_allclose(model.freedom, np.bincount(model.groups, 1 - leverage))
    residuals = model.residuals(edges)
    found, freedom, _ = model.statistic(residuals)
    t, df = welch_by_hand(residuals, model.tested, model.groups, model.freedom)
    np.testing.assert_allclose(found, t, rtol=1e-9)
    np.testing.assert_allclose(freedom, df, rtol=1e-9)
    given_back = model.freedom + np.bincount(model.groups, (model.covariates**2).sum(axis=1))
    orders = permuted_rows(N, 5, 0, None, sites)
    for order, row in zip(orders, model.permuted_t(residuals, orders), strict=True):
        t, df = welch_by_hand(residuals, model.tested[order], model.groups[order], given_back)
        np.testing.assert_allclose(row, comparable_t(t, df, model.df), rtol=1e-8)


@pytest.mark.parametrize("with_sites", [False, True])
def test_permuted_t_is_that_of_freedman_and_lane(data, with_sites):
    target, covariates, sites, edges = data
    labels = sites if with_sites else np.repeat("all", N)
    reduced, full = designs(target, covariates, labels)
    model = EdgeModel(target, covariates, sites if with_sites else None)
    orders = permuted_rows(N, 5, 0, None, sites if with_sites else None)
    found = model.permuted_t(model.residuals(edges), orders)
    fitted = reduced @ np.linalg.lstsq(reduced, edges, rcond=None)[0]
    for order, t in zip(orders, found, strict=True):
        back = np.argsort(order)
        permuted = fitted + (edges - fitted)[back]
        np.testing.assert_allclose(t, least_squares(full, permuted)[1], rtol=1e-9)


def test_an_edge_without_variation_has_no_t_and_disturbs_no_other(data):
    target, covariates, sites, edges = data
    flat = edges.copy()
    flat[:, 3], flat[:, 5] = 0.3, 0.2 + 0.1 * covariates[:, 0]
    model = EdgeModel(target, covariates, sites)
    t, _, _ = model.statistic(model.residuals(flat))
    assert np.isnan(t).tolist() == [i in (3, 5) for i in range(EDGES)]
    expected, _, _ = model.statistic(model.residuals(edges))
    np.testing.assert_array_equal(np.delete(t, [3, 5]), np.delete(expected, [3, 5]))


def test_too_few_people_are_refused():
    with pytest.raises(Unfit, match="6 people are too few: with 4 columns of covariates and 1 mean"):
        EdgeModel(np.arange(6.0), np.eye(6)[:, :4])
