"""The sentences of the pages of all other analyses, each held against the tables that it speaks of."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from fcpower_bids.outputs.tables import read_table
from tests.page_sentences import CATALOGUE, COUNT, NAME, NUMBER, PERMUTED, P, Page, answer, close, same_p
from tests.slices import sentences_of_slices

ALPHA = 0.35
ROUNDING = 1e-9
DIFFERENCE = (
    rf"difference in (r|AUC|accuracy) {NUMBER}(?:, 95 % CI {NUMBER} to {NUMBER})?"
    rf"(?:, {P} after Holm's correction)?"
)
FOLDS = ["repeat", "fold"]
FOUND_IN = {"transform": "transform_screen", "control": "spectral_controls"}


def score_of(label: str) -> str:
    return {"AUC": "auc", "r": "r", "accuracy": "accuracy", "share found": "accuracy"}[label]


def holm(p: pd.Series) -> pd.Series:
    """Holm (1979): the k-th smallest of m times m - k + 1, never falling, at most 1."""
    known = p.dropna().sort_values()
    steps = known * np.arange(len(known), 0, -1)
    return steps.cummax().clip(upper=1).reindex(p.index)


def fold_differences(folds: pd.DataFrame, score: str, entry: str, reference: str, key: str = "representation"):
    wide = folds.pivot_table(index=FOLDS, columns=key, values=score)
    if not {entry, reference} <= set(wide):
        return pd.Series(dtype=float)
    return (wide[entry] - wide[reference]).dropna()


def judged(rows: pd.DataFrame) -> list[str]:
    """The word for each row, by its corrected p and its sign."""
    clear = (rows["p_holm"] < 0.05) & (rows["mean_difference"].abs() > ROUNDING)
    words = np.where(rows["mean_difference"] > 0, "better", "worse")
    return np.where(clear, words, "not distinguishable").tolist()


def tallied(words: list[str], better: str, worse: str, same: str) -> None:
    said = [0 if one == "none" else int(one) for one in (better, worse, same)]
    assert said == [words.count(one) for one in ("better", "worse", "not distinguishable")]


def says_difference(row: pd.Series, label: str, mean: str, low: str | None, high: str | None, p: str | None) -> None:
    assert score_of(label) == row["score"]
    close(mean, row["mean_difference"])
    assert (low is None) == np.isnan(row["ci_low"])
    if low is not None:
        close(low, row["ci_low"])
        close(high, row["ci_high"])
    assert (p is None) == np.isnan(row["p_holm"])
    if p is not None:
        same_p(p, row["p_holm"])


def title_of(page: Page, name: str, said: str) -> None:
    """A short name says the words of the name in the table."""
    words = set(re.findall(r"[a-z]{3,}|\d+(?:\.\d+)?", name.lower()))
    assert page.key(said) == name or words & set(re.findall(r"[a-z]{3,}|\d+(?:\.\d+)?", said.lower())), (name, said)


def compared(page: Page, target: str, n: str, noun: str, reference: str, *tally: str) -> None:
    page.about = FOUND_IN[noun], target
    rows = page.rows(FOUND_IN[noun], target)
    rows = rows[(rows["representation"] != page.key(reference)) & rows["mean_difference"].notna()]
    rows = rows[rows["control"] != "random_filter"] if "control" in rows else rows
    assert int(n) == len(rows)
    tallied(judged(rows), *tally)
    kinds = rows.groupby("control") if "control" in rows else [("", rows)]
    for kind, part in kinds:
        if kind != "top_modes":  # also corrected against raw eigenvalues
            np.testing.assert_allclose(holm(part["p_two_sided"]), part["p_holm"], rtol=1e-9)


def furthest(page: Page, target: str, reference: str, *said: str) -> None:
    name, about = page.about
    assert about == target
    rows = page.rows(name, target)
    rows = rows[(rows["representation"] != page.key(reference)) & rows["mean_difference"].notna()]
    rows = rows[rows["control"] != "random_filter"] if "control" in rows else rows
    folds = page.rows(f"{name}_folds", target)
    gains = rows["mean_difference"]
    for (title, *numbers), place in ((said[:6], gains.idxmax()), (said[6:], gains.idxmin())):
        row = rows.loc[place]
        says_difference(row, *numbers)
        if name == "transform_screen":
            title_of(page, row["representation"], title)
        own = fold_differences(folds, row["score"], row["representation"], page.key(reference))
        close(numbers[1], own.mean())


def random_filters(page: Page, target: str, label: str, n: str, low: str, high: str, median: str, *said: str) -> None:
    folds = page.rows("spectral_controls_folds", target)
    means = folds.groupby("representation")[score_of(label)].mean()
    random = means[means.index.str.fullmatch(r"random_\d+")].dropna()
    assert int(n) == len(random)
    for one, value in ((low, random.min()), (high, random.max()), (median, random.median())):
        close(one, value)
    above, power, above_fc, plain = said
    close(power, means["fc_power"])
    close(plain, means["fc"])
    assert int(above) == (random > means["fc_power"] + ROUNDING).sum()
    assert int(above_fc) == (random > means["fc"] + ROUNDING).sum()


def leading(page: Page, target: str, *said: str) -> None:
    rows = page.rows("spectral_controls", target)
    rows = rows[rows["control"].isin(("top_modes", "whole"))]
    for kind, (first, least, last, most) in zip(("raw", "power"), (said[:4], said[4:]), strict=True):
        own = rows[rows["weighting"] == kind].dropna(subset=["fold_mean"]).sort_values("number")
        assert (int(least), int(most)) == (own["number"].min(), own["number"].max())
        close(first, own["fold_mean"].iloc[0])
        close(last, own["fold_mean"].iloc[-1])


def matched(page: Page, target: str, number: str, *numbers: str) -> None:
    rows = page.rows("spectral_matched", target)
    (row,) = (each for _, each in rows[rows["number"] == int(number)].iterrows())
    says_difference(row, *numbers)
    controls = page.rows("spectral_controls", target)
    at = controls[(controls["number"] == int(number)) & controls["control"].isin(("top_modes", "whole"))]
    means = at.set_index("weighting")["fold_mean"]
    if row["n_skipped"] == 0 and row["n_distinct"] == row["n_folds"]:
        close(numbers[1], means["power"] - means["raw"])


def not_available(page: Page, n: str) -> None:
    screen = page.table("transform_screen")
    assert int(n) == screen.loc[screen["status"] != "scored", "representation"].nunique()


def curves(page: Page, name: str, label: str, said: str) -> None:
    table = page.table("identification_curves") if name == "Identification" else page.rows("learning_curves", name)
    for part in said.split("; "):
        title, first, people, minutes, *rest = re.fullmatch(
            rf"{NAME} {NUMBER} with (\d+) people and (\S+) min(?:, {NUMBER} with (\d+) and (\S+) min)?", part
        ).groups()
        own = table[table["representation"] == page.key(title)]
        means = own.groupby(["minutes", "n_people"])[score_of(label)].mean()
        cells = [(first, people, minutes, means.index[0])]
        cells += [(*rest, means.index[-1])] if len(means) > 1 else []
        for score, number, length, place in cells:
            close(score, means[place])
            assert int(number) == place[1]
            close(length, place[0])
        assert (rest[0] is None) == (len(means) == 1)


def gain_heading(page: Page, name: str, label: str) -> None:
    page.about = name, label


def gain(page: Page, later: str, earlier: str, low: str, high: str, positive: str, n: str, clear: str) -> None:
    name, label = page.about
    table = page.table("identification_gains") if name == "Identification" else page.rows("learning_gains", name)
    rows = table[(table["representation"] == page.key(later)) & (table["reference"] == page.key(earlier))]
    rows = rows.dropna(subset=["mean_difference"])
    assert int(n) == len(rows)
    assert int(positive) == (rows["mean_difference"] > ROUNDING).sum()
    close(low, rows["mean_difference"].min())
    close(high, rows["mean_difference"].max())
    if name == "Identification":
        assert int(clear) == ((rows["ci_low"] > 0) | (rows["ci_high"] < 0)).sum()
        return
    assert int(clear) == (rows["p_two_sided"] < 0.05).sum()
    folds = page.rows("learning_curves", name)
    for _, row in rows.iterrows():
        cell = folds[(folds["n_people"] == row["n_people"]) & (folds["minutes"] == row["minutes"])]
        own = fold_differences(cell, score_of(label), row["representation"], row["reference"])
        assert row["n_distinct"] < row["n_folds"] or abs(own.mean() - row["mean_difference"]) < ROUNDING


def swept(
    page: Page, target: str, better: str, n: str, power: str, worse: str, same: str, label: str, *ends: str
) -> None:
    rows = page.rows("parcellation_gains", target, people="shared", representation="fc_power", reference="fc")
    assert int(n) == len(rows)
    tallied(judged(rows), better, worse, same)
    folds = page.rows("parcellation_sweep", target, people="shared")
    means = [fold_differences(own, score_of(label), "fc_power", "fc").mean() for _, own in folds.groupby("atlas")]
    close(ends[0], min(means))
    close(ends[1], max(means))


def no_parcellation(page: Page, n: str) -> None:
    pairs = page.table("parcellation_comparisons").dropna(subset=["p_holm"])
    assert int(n) == len(pairs)
    assert set(judged(pairs)) <= {"not distinguishable"}


def means_over_parcellations(page: Page, said: str) -> None:
    for part in said.split("; "):
        target, _, scores = part.partition(": ")
        folds = page.rows("parcellation_sweep", target, people="shared")
        score = "auc" if folds["auc"].notna().any() else "r"
        means = folds.groupby(["representation", "atlas"])[score].mean().groupby("representation").mean()
        for title, value in re.findall(rf"{NAME} {NUMBER}", scores):
            close(value, means[page.key(title)])


def best_encoder(page: Page, target: str, label: str, title: str, value: str, rest: str) -> None:
    own = page.rows("encoders", target).set_index("representation")["pooled"]
    assert own.idxmax() == page.key(title)
    close(value, own.max())
    pairs = page.rows("encoder_comparisons", target).dropna(subset=["p_holm"])
    np.testing.assert_allclose(holm(pairs["p_two_sided"]), pairs["p_holm"], rtol=1e-9)
    mine = pairs[(pairs["representation"] == page.key(title)) | (pairs["reference"] == page.key(title))]
    same = mine[[word == "not distinguishable" for word in judged(mine)]]
    others = {*same["representation"], *same["reference"]} - {page.key(title)}
    if rest.startswith("not distinguishable from"):
        assert {page.key(each) for each in re.findall(NAME, rest)} == others
    elif rest.startswith("it differs"):
        assert not others
        assert (re.findall(r"\d+", rest) or ["1"]) == [str(len(mine))]
    else:
        assert mine.empty


def embedding_pairs(page: Page) -> pd.Series:
    """Sign of every clear difference between an embedding and connectivity, 0 for the others."""
    found = []
    for name, column in (("comparisons", "mean_difference"), ("identification_comparisons", "difference")):
        table = page.table(name)
        first, second = (table[key].str.startswith("embedding") for key in ("representation", "reference"))
        sign = np.sign(table[column]) * np.where(first, 1, -1) * (table["p_holm"] < 0.05)
        found.append(sign[first != second])
    return pd.concat(found)


def embedding_tally(page: Page, better: str, n: str, worse: str, same: str) -> None:
    signs = embedding_pairs(page)
    assert [int(each) for each in (better, worse, same)] == [(signs == each).sum() for each in (1, -1, 0)]
    assert int(n) == len(signs)


def no_reason(page: Page) -> None:
    assert embedding_pairs(page).sum() == 0


def adds_something(page: Page) -> None:
    assert embedding_pairs(page).sum() > 0


def does_better(page: Page) -> None:
    assert embedding_pairs(page).sum() < 0


def at_exponent(page: Page, alpha: float, column: str) -> pd.Series:
    path = page.table("spectrum_path")
    return path[np.isclose(path["alpha"], alpha)].set_index("participant_id")[column]


def effective_number(page: Page, n: str, plain: str, power: str) -> None:
    values = at_exponent(page, 1, "participation_ratio")
    assert int(n) == len(values)
    close(plain, values.mean())
    close(power, at_exponent(page, ALPHA, "participation_ratio").mean())


def first_to_twentieth(page: Page, plain: str, power: str) -> None:
    close(plain, at_exponent(page, 1, "first_to_twentieth").mean())
    close(power, at_exponent(page, ALPHA, "first_to_twentieth").mean())


def incomplete_rank(page: Page, n: str) -> None:
    assert int(n) == at_exponent(page, 1, "from_identity").isna().sum()


def along(page: Page, first: str, most: str, last: str, least: str) -> None:
    close(first, at_exponent(page, float(most), "participation_ratio").mean())
    close(last, at_exponent(page, float(least), "participation_ratio").mean())


def histograms(page: Page, said: str) -> None:
    drawn = {float(each) for each in said.split(", ")}
    assert drawn <= set(page.table("spectrum_histogram")["alpha"])
    assert {ALPHA, 1.0} <= drawn


def median_person(page: Page, person: str) -> None:
    ratio = at_exponent(page, 1, "participation_ratio").sort_values()
    middle = ratio.iloc[[(len(ratio) - 1) // 2, len(ratio) // 2]]
    assert person in set(middle.index)


def leaves_the_disc(page: Page, said: str) -> None:
    sphere = page.table("spectrum_sphere")
    for title, n in re.findall(rf"{NAME}: (\d+)", said):
        own = sphere[np.isclose(sphere["alpha"], 1 if title == "FC" else ALPHA)]
        assert int(n) == (np.hypot(own["x"], own["y"]) > own["radius"]).sum()


def chosen_exponent(
    page: Page, target: str, criterion: str, median: str, low: str, high: str, share: str | None, gained: str
) -> None:
    own = page.rows("alpha_optimum", target, criterion=criterion)
    for said, quantile in ((low, 0.25), (median, 0.5), (high, 0.75)):
        close(said, own["alpha"].quantile(quantile))
    bound = (own["at_bound"].astype(str).str.lower() == "true").mean()
    assert (share is None) == (bound == 0)
    if share:
        close(share, 100 * bound)
    close(gained, (own["score"] - own["score_at_star"]).mean())
    if criterion == "prediction":  # the best inner score of every fold, among the exponents that were tried
        grid = page.rows("alpha", target, criterion=criterion)
        for _, row in own.iterrows():
            fold = grid[(grid["repeat"] == row["repeat"]) & (grid["fold"] == row["fold"])].set_index("alpha")
            assert fold.loc[row["alpha"], "inner_score"] == fold["inner_score"].max()


def exponent_heading(page: Page, target: str) -> None:
    page.about = "exponent", target


def best_exponents(page: Page, said: str) -> None:
    for criterion, alpha in re.findall(r"(prediction|alignment)[^;]*?: highest mean at α = ([\d.]+\d|\d)", said):
        means = page.rows("alpha", page.about[1], criterion=criterion).groupby("alpha")["score"].mean()
        assert means[float(alpha)] >= means.max() - ROUNDING


def handled(page: Page, target: str, title: str, label: str, said: str) -> None:
    words = {
        "none": "as they are",
        "covariate": "regressed from the target",
        "combat": "taken from the features by ComBat",
        "both": "taken from features and target",
        "held out": "held out in turn",
    }
    rows = page.rows("harmonisation", target, representation=page.key(title)).dropna(subset=["pooled"])
    parts = re.findall(rf"({'|'.join(words.values())}) {NUMBER}(?: \(within {NUMBER}\))?", said)
    assert [part[0] for part in parts] == [words[str(each).replace("_", " ")] for each in rows["sites"]]
    for (_, pooled, within), (_, row) in zip(parts, rows.iterrows(), strict=True):
        assert row["score"] == score_of(label)
        close(pooled, row["pooled"])
        if within:
            close(within, row["within"])
        else:
            assert np.isnan(row["within"])


def easy(page: Page, n: str) -> None:
    assert int(n) == page.table("identification_scans")["participant_id"].nunique()


def chosen_atlas(page: Page, names: str, used: str) -> None:
    files = page.folder.parent.glob("sub-*/**/*_relmat.tsv")
    there = {name[0] for path in files if (name := re.search(r"atlas-\w+?_scale-\d+", path.name))}
    assert set(names.split(", ")) == there
    assert used in there


def left_out(page: Page, said: str) -> None:
    kinds = page.table("excluded")["what"].value_counts()
    for n, kind in re.findall(r"(\d+) (\w+?)s?(?:,|$)", said):
        assert int(n) == kinds[kind]


def analyses_left_out(page: Page, n: str) -> None:
    assert int(n) == len(page.table("left_out"))


def stand_out(page: Page, n: str, people: str, strange: str) -> None:
    files = list(page.folder.parent.glob("sub-*/**/*_desc-fcpower_qc.tsv"))
    rows = pd.concat([read_table(path).assign(recording=path.name) for path in files])
    assert (int(n), int(people)) == (len(files), rows["recording"].str.split("_").str[0].nunique())
    rows["minutes"] = rows["seconds_kept"] / 60
    rows["censored"] = 100 * rows["censored_volumes"] / (rows["volumes"] - rows["dummy_volumes"]).clip(lower=1)
    sides = {"mean_fd": 1, "minutes": -1, "censored": 1, "degrees_of_freedom": -1, "band_leakage": 1}
    far = set()
    for _, own in rows.groupby("atlas"):
        for name, side in (sides | {"uncovered_parcels": 1, "participation_ratio": 0}).items():
            away = own[name] - own[name].median()
            spread = 1.4826 * away.abs().median() or 1.2533 * away.abs().mean()
            if spread:
                far |= set(own.loc[((away.abs() if side == 0 else side * away) / spread).to_numpy() > 3.5, "recording"])
    assert int(strange) == len(far)


def undecided(page: Page, n: str, *said: str) -> None:
    answer(page, *said[:6])
    assert n == said[4]
    assert int(n) < 20


def no_difference_identified(
    page: Page, later: str, earlier: str, wins: str, _: str, losses: str, __: str, p: str, *power: str | None
) -> None:
    wide = page.table("identification_scans").pivot_table(
        index=["participant_id", "session"], columns="representation", values="credit"
    )
    net = wide[page.key(later)] - wide[page.key(earlier)]
    assert (int(wins), int(losses)) == ((net > 0).sum(), (net < 0).sum())
    table = page.table("identification_comparisons").set_index(["representation", "reference"])
    row = table.loc[(page.key(later), page.key(earlier))]
    same_p(p, row["p_people"])
    assert row["p_people"] >= 0.05
    assert (power[0] is None) == (int(wins) + int(losses) < 6)
    if power[0] is not None:
        close(power[0], 50 * (row["ci_high"] - row["ci_low"]))
        close(power[1], 50 * (row["ci_high"] - row["ci_low"]) * 2.8 / 1.96)


TALLY = r"(none|\d+) (?:is|are) better, (none|\d+) (?:is|are) worse, (none|\d+) (?:is|are) not distinguishable"
FURTHER: tuple[tuple[str, Callable[..., object]], ...] = (
    (
        rf"Not decided: {COUNT} permutations cannot give a p below 0\.05 {PERMUTED}; 20 would do, 1,000 are better "
        r"\(--permutations\)\.",
        undecided,
    ),
    (
        rf"No evidence that {NAME} and {NAME} differ \((\d+) search(?:es)? only {NAME} gets "
        rf"right, (\d+) only {NAME}; exact sign "
        rf"flips over people {P}\); (?:the threshold was an observed difference of (\d+) points, and a true one of "
        r"(\d+) points is found in 80 of 100 cohorts|"
        r"6 people at least must differ for a p below 0\.05)\.",
        no_difference_identified,
    ),
    (rf"(\S+): of (\d+) (transform|control)s? compared with {NAME}, {TALLY}\.", compared),
    (rf"(\S+): furthest above {NAME}: (.+?) \({DIFFERENCE}\); furthest below: (.+?) \({DIFFERENCE}\)\.", furthest),
    (
        rf"(\S+): the mean (r|AUC) of (\d+) random filters of the eigenvalues lies between "
        rf"{NUMBER} and {NUMBER} \(median "
        rf"{NUMBER}\); (\d+) (?:is|are) above FC\^0\.35 \({NUMBER}\) and (\d+) above FC \({NUMBER}\)\.",
        random_filters,
    ),
    (
        rf"(\S+), raw eigenvalues: {NUMBER} with (\d+), {NUMBER} with all (\d+); flattened "
        rf"eigenvalues \(λ\^0\.35\): {NUMBER} "
        rf"with (\d+), {NUMBER} with all (\d+)\.",
        leading,
    ),
    (rf"(\S+), flattened minus raw at (\d+) eigenvectors: {DIFFERENCE}\.", matched),
    (r"(\d+) transforms? not available with this cohort: .*?\.$", not_available),
    (r"(\S+), mean (r|AUC|share found): (.*? min)\.(?=\s|$)", curves),
    (r"(\S+): gain in (r|AUC|share found)$", gain_heading),
    (
        rf"{NAME} − {NAME}: from {NUMBER} to {NUMBER}, positive in (\d+) of (\d+) cells?, "
        rf"distinguishable from 0 in (\d+)\.",
        gain,
    ),
    (
        rf"(\S+): under (\d+) of (\d+) parcellations? {NAME} is better than FC, under (\d+) worse, under (\d+) not "
        rf"distinguishable; differences in (r|AUC) from {NUMBER} to {NUMBER} \(p not corrected for the number of "
        r"parcellations\)\.",
        swept,
    ),
    (r"No two parcellations are distinguishable in (\d+) comparisons? \(Holm's correction\)\.", no_parcellation),
    (r"Means over parcellations: (.*)\.$", means_over_parcellations),
    (
        rf"(\S+): the highest (r|AUC|accuracy) is that of {NAME} \({NUMBER}\); (not "
        rf"distinguishable from .*?|it differs from "
        r"(?:all \d+ others|the other)|it could not be compared with the others)(?: \(Holm's correction(?: "
        r"over the pairs)?\))?\.(?=\s|$)",
        best_encoder,
    ),
    (
        r"In (\d+) comparisons? of (\d+) the embedding is better than connectivity, in (\d+) "
        r"worse, in (\d+) there is no "
        r"evidence for a difference \(Holm's correction within each question\)\.",
        embedding_tally,
    ),
    (r"There is no reason here to prefer the embedding to plain connectivity\.", no_reason),
    (r"The embedding adds something here\.", adds_something),
    (r"Plain connectivity does better here\.", does_better),
    (
        rf"Over (\d+) people the effective number of eigenvectors \(participation ratio\) goes from {NUMBER} for FC to "
        rf"{NUMBER} for FC\^0\.35 \(mean; all scans of a person together\)\.",
        effective_number,
    ),
    (
        rf"The first eigenvalue is {NUMBER} times the twentieth in FC and {NUMBER} times in FC\^0\.35\.",
        first_to_twentieth,
    ),
    (r"(\d+) (?:person has|people have) connectomes of incomplete rank .*?\.", incomplete_rank),
    (rf"Mean participation ratio {NUMBER} at α = (\S+), {NUMBER} at α = (\S+)\.", along),
    (r"Left: all eigenvalues of all people, at α = (.*?); the smaller α, the narrower\.", histograms),
    (r"FC\^α of (\S+), whose participation ratio is the median of the cohort, .*?\.", median_person),
    (r"Lines that leave it: (.*)\.$", leaves_the_disc),
    (
        rf"(\S+) \((prediction|alignment)\): the folds choose α = {NUMBER} \(median; quartiles "
        rf"{NUMBER} to {NUMBER}\)(?:, "
        r"(\d+) % of them at an end of the search, so the optimum may lie outside)?; its score in the table is "
        rf"{NUMBER} relative to α = 0\.35 \(mean\)\.",
        chosen_exponent,
    ),
    (r"Exponent for (\S+)$", exponent_heading),
    (r"((?:prediction: score in the test people|alignment with the target): highest mean at .*)\.$", best_exponents),
    (rf"(\S+) from {NAME}, (r|AUC) with sites (.*?)\.(?=\s|$)", handled),
    (r"Identification among (\d+) people is easy; accuracy falls as the group grows\.", easy),
    (r"Of the atlases (.*?) the cohort uses (\S+) \(--atlas\)\.", chosen_atlas),
    (r"Left out: (.*)\.$", left_out),
    (r"(\d+ (?:recording|parcel)s?(?:, \d+ (?:recording|parcel)s?)+)$", left_out),
    (r"(\d+) left out$", analyses_left_out),
    (
        r"(\d+) recordings? of (\d+) (?:person|people); (\d+) recordings? stands? out in at "
        r"least one measure \(more than "
        r"3\.5 robust standard deviations from the median\)\.",
        stand_out,
    ),
)
EVERY = (*FURTHER, *sentences_of_slices(), *CATALOGUE)
WITHOUT_TABLE = (
    r"Difference to FC\^0\.35 on the same folds, .*",
    r"Triangles( up are better)?.*",
    r"Mean over folds, quartiles shaded; dashed: α = 0\.35",
    r"The paper measures a difference of at most 0\.004; PCA of 150 people loses 0\.07\.",
    r"A one-hot identifier predicts the training mean for everyone: .*",
    r"Blue is a gain, red a loss; .*",
    r"People are the unit: .*",
    r"r = w0 / sqrt.*|2025, doi:10\.1038/s41586-025-09250-1.*|Where it is not determined, .*",
    r"FC\^0\.35 minus FC under each parcellation, .*|Every pair: the first minus the second, .*",
    r"All are 1 at α = 0; .*|α = 1 is FC, α = 0 the identity .*|Thin lines are people, .*|The disc is as large as .*",
)
"""What has a digit and says nothing of this cohort."""
