"""What the pages say is what the tables say; embeddings that say nothing, and scans of other parcels."""

from __future__ import annotations

import html
import re
import shutil
from importlib.resources import files

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from nilearn.image import resample_to_img

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.notebook import load_cohort
from fcpower_bids.outputs.tables import read_table
from tests.cases.cohorts import PEOPLE, group, index_rows, read, run, write_series, write_table
from tests.cases.test_people import AGES
from tests.planting.surfaces import PARAMETERS
from tests.referee import identified
from tests.running import PLAIN


def page_of(folder):
    return html.unescape(re.sub(r"<[^>]+>", " ", (folder / "out" / "group.html").read_text()))


def test_33_few_people_are_described_and_predicted_only_where_targets_are_named(tmp_path):
    folder = write_series(tmp_path, PEOPLE[:9])
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE[:9], age=AGES[:9])
    said = group(folder, "--permutations", 0).err + page_of(folder)
    assert not (folder / "out" / "group" / "prediction_summary.tsv").is_file()
    assert "9 people are too few" in said
    assert "--targets" in said
    assert "better than chance" not in said
    assert not re.search(r"use --folds", said)
    assert (folder / "out" / "index.html").is_file()
    group(folder, "--targets", "age")
    assert (folder / "out" / "group" / "prediction_summary.tsv").is_file()


@pytest.mark.parametrize(
    "options",
    [
        ("--analyses", "alpha_selection", "--alpha", "align"),
        ("--analyses", "parcellation_sweep"),
        ("--analyses", "transform_screen"),
        ("--analyses", "prediction", "--site-column", "site", "--sites", "hold-out"),
    ],
)
def test_35_an_analysis_answers_for_every_target(tmp_path, options):
    folder = write_series(tmp_path, parcels=5, sessions=("a",))
    table = pd.read_csv(folder / "list.tsv", sep="\t")
    if "parcellation_sweep" in options:
        table = pd.concat([table.assign(atlas="one"), table.assign(atlas="two")])
    table.to_csv(folder / "list.tsv", sep="\t", index=False)
    names = {"age": AGES, "iq": AGES[::-1], "memory": np.roll(AGES, 7)}
    sites = np.array(["one", "two", "six"])[np.arange(len(PEOPLE)) % 3]
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE, site=sites, **names)
    group(folder, *options, "--targets", *names)
    page = page_of(folder)
    assert "FC^nan" not in page
    head = page[: page.index("left out at group level")]
    assert "Nothing was predicted or identified" not in head
    assert ": done; the page has the tables" not in head
    assert all(re.search(rf"\b{name}\b[ (:]", head) for name in names)


def test_39_the_share_of_edges_that_go_with_motion_is_said_of_every_representation(tmp_path):
    motion = np.round(np.linspace(0.05, 0.5, 30), 3)
    folder = write_series(tmp_path, signal=lambda number: 0.95 * (number - 15) / 15, mean_fd=motion)
    group(folder, "--analyses", "qc_fc")
    edges, page = read(folder, "qcfc"), page_of(folder)
    head = re.sub(r"\s+", " ", page[: page.index("left out at group level")])
    for name, title in (("fc", "FC"), ("fc_power", "FC^0.35")):
        share = 100 * (edges[edges["representation"] == name]["q"] < 0.05).mean()
        line = re.search(r"Edges that go with motion \(q < 0.05\): ([^:]*? %)\.", head)
        assert line
        said = dict(re.findall(r"(FC(?:\^0\.35)?) (\d+\.\d) %", line[1]))
        assert float(said[title]) == pytest.approx(share, abs=0.051)


SHARES = (0.1, 0.25, 0.4, 0.6)
"""Of the volumes of each of four scans, the part that is censored because of motion."""


WORDS = {"ok": "used", "caution": "used with caution", "stop": "excluded"}


def judged(out):
    """Name, quality and cautions of each scan in ``recordings.tsv``, once the index and its page have said the same."""
    rows = {row["recording"]: row for row in index_rows(out)}
    table = read_table(out / "recordings.tsv")
    assert list(rows) == table["recording"].tolist()
    for name, quality, cautions in table[["recording", "quality", "cautions"]].itertuples(index=False):
        page = html.unescape((out / f"{name[:6]}.html").read_text())
        said = "" if pd.isna(cautions) else cautions
        assert rows[name]["state"] == WORDS[quality]
        if quality == "caution":
            assert " ".join(rows[name]["said"]) == said
            assert all(sentence in page for sentence in rows[name]["said"])
        yield name, quality, said


def test_36_every_page_has_the_same_verdict_on_a_scan(tmp_path):
    """Two people twice, with more and more motion, through both levels; the last scan is below ``--min-time``."""
    make_dataset(tmp_path / "in", DemoDesign.tiny(noise=0.1))
    tables = sorted((tmp_path / "in").rglob("*_desc-confounds_timeseries.tsv"))
    for path, share in zip(tables, SHARES, strict=True):
        rows = pd.read_csv(path, sep="\t", na_values=["n/a"])
        moved = np.linspace(10, len(rows) - 1, round(share * len(rows))).astype(int)
        displaced = np.where(np.isin(np.arange(len(rows)), moved), 1.0, 0.1)
        rows[PARAMETERS] = 1e-7 * np.random.default_rng(0).standard_normal((len(rows), 6))
        rows["trans_x"] = np.cumsum(displaced * (-1) ** np.arange(len(rows)))
        rows["framewise_displacement"] = np.r_[np.nan, displaced[1:]]
        rows.to_csv(path, sep="\t", index=False, na_rep="n/a")
    words = (*PLAIN, "--fd-thresh", 0.5, "--min-time", 90, "--atlas", "builtin", "--nprocs", 1)
    assert run(tmp_path / "in", tmp_path / "out", "participant", *words).code == 0
    assert run(tmp_path / "in", tmp_path / "out", "group", "--min-time", 0, "--nprocs", 1).code == 0
    moving = tmp_path / "out"
    verdicts = []
    for (name, quality, said), planted in zip(judged(moving), SHARES, strict=True):
        (path,) = moving.rglob(f"{name}_desc-confounds_outliers.tsv")
        volumes = read_table(path)
        later = volumes[volumes["dummy"] == 0] if "dummy" in volumes else volumes
        share = 1 - later["kept"].mean()
        assert share == pytest.approx(planted, abs=0.06)
        verdicts.append(quality)
        sentence = f"{100 * share:.0f} % of the volumes were censored because of motion."
        assert (sentence in said) == (0.3 < share < 0.5)
    assert verdicts == ["ok", "ok", "caution", "stop"]


def test_36_what_was_not_scanned_is_cautioned_everywhere_by_parcels_and_overlap(tmp_path):
    """Masks whose upper parts are missing: parcels without a value by nibabel, Dice with the whole brain's mask."""
    make_dataset(tmp_path / "in", DemoDesign.tiny(noise=0.1))
    atlas, whole, expected = files("fcpower_bids") / "data" / "builtin_dseg.nii.gz", None, []
    for path, cut in zip(sorted((tmp_path / "in").rglob("*_desc-brain_mask.nii.gz")), (0, 0.25, 0.5, 0.7), strict=True):
        image = nib.load(path)
        mask = np.asanyarray(image.dataobj).copy()
        whole = mask > 0 if whole is None else whole
        slices = np.flatnonzero(mask.any(axis=(0, 1)))
        mask[:, :, slices[len(slices) - int(cut * len(slices)) :]] = 0
        nib.save(nib.Nifti1Image(mask, image.affine, image.header), path)
        placed = resample_to_img(str(atlas), image, interpolation="nearest", force_resample=True, copy_header=True)
        labels = np.asanyarray(placed.dataobj)
        lost = [np.mean(mask[labels == label] > 0) < 0.5 for label in np.unique(labels[labels > 0])]
        expected.append((sum(lost), 2 * mask.astype(bool).sum() / (mask.astype(bool).sum() + whole.sum())))
    out = tmp_path / "out"
    words = (*PLAIN, "--atlas", "builtin", "--nprocs", 1, "--min-time", 0)
    assert run(tmp_path / "in", out, "participant", *words).code == 0
    assert run(tmp_path / "in", out, "group", "--min-time", 0, "--nprocs", 1).code == 0
    for (_, quality, said), (lost, dice) in zip(judged(out), expected, strict=True):
        assert quality == ("caution" if lost or dice < 0.8 else "ok")
        assert re.findall(r"(\d+) of the parcels", said) == [str(lost)] * bool(lost)
        overlap = [float(number) for number in re.findall(r"Dice coefficient ([\d.]+)", said)]
        assert overlap == pytest.approx([dice] * bool(dice < 0.8), abs=0.01)
    assert [bool(lost) for lost, _ in expected] == [False, True, True, True]


ANALYSES = ("--analyses", "prediction", "fingerprinting", "--targets", "score")
BOTH = ("--representations", "fc", "embedding", "--encoder", "random-init")


def twice(folder):
    """Thirty people with two sessions and a score."""
    score = np.random.default_rng(0).standard_normal(30)
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE, score=score)
    return write_series(folder, PEOPLE, ("a", "b"), parcels=8, volumes=90)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Thirty people twice, with embeddings by random weights."""
    folder = twice(tmp_path_factory.mktemp("embedded"))
    group(folder, *ANALYSES, *BOTH)
    return folder


@pytest.mark.parametrize(
    ("change", "left", "reason"),
    [
        (lambda path, table: 0.0 * table + np.arange(table.shape[1]), 0, "is the same for everyone, and left out"),
        (lambda path, table: table * ("sub-003_ses-a" not in path.name), 29, "it is one number throughout"),
    ],
)
def test_an_embedding_that_says_nothing_costs_itself_alone(plain, tmp_path, change, left, reason):
    folder = shutil.copytree(plain, tmp_path / "study")
    expected = {name: read(folder, name).query("representation == 'fc'") for name in ("predictions", "identification")}
    for path in (folder / "out").rglob("*_embedding.tsv"):
        change(path, pd.read_csv(path, sep="\t")).to_csv(path, sep="\t", index=False)
    group(folder, *ANALYSES, "--representations", "fc", "embedding", "--replace")
    excluded = read(folder, "excluded")
    assert excluded["reason"].str.contains(reason).any()
    predictions = read(folder, "predictions")
    embedded = predictions[predictions["representation"].str.startswith("embedding")]
    assert embedded["participant_id"].nunique() in ((left, 30) if left else (0,))  # who has another scan is described
    assert "people unknown in pretraining" not in set(read(folder, "check")["check"])
    if left:
        cohort = load_cohort(folder / "out", folder / "bids", per="scan", min_time=0.0)
        with pytest.warns(UserWarning, match="1 of 60 rows"):
            features = cohort.features("embedding")
        (row,) = np.flatnonzero(np.isnan(features).any(axis=1))
        assert (cohort.names[row], cohort.sessions[row]) == ("sub-003", "ses-a")
    if not left:
        for name, rows in expected.items():
            now = read(folder, name).query("representation == 'fc'")
            now, rows = (each.reset_index(drop=True).dropna(axis=1, how="all") for each in (now, rows))
            pd.testing.assert_frame_equal(now, rows[list(now)], rtol=1e-9, obj=name, check_dtype=False)


def test_a_scan_of_other_parcels_is_left_out_with_its_reason(tmp_path):
    folder = twice(tmp_path)
    rows = pd.read_csv(folder / "list.tsv", sep="\t")
    for path in rows["path"]:
        columns = list("abcdefgx" if path == "sub-003_b.npy" else "abcdefgh")
        table = pd.DataFrame(np.load(folder / path), columns=columns)
        table.to_csv((folder / path).with_suffix(".tsv"), sep="\t", index=False)
    rows["path"] = rows["path"].str.replace(".npy", ".tsv")
    rows.to_csv(folder / "list.tsv", sep="\t", index=False)
    group(folder, *ANALYSES, *BOTH)
    excluded = read(folder, "excluded").query("participant_id == 'sub-003'")
    assert excluded["reason"].str.contains("its parcels are others: it has 8, the others have 8, and").sum() == 1
    scans = read(folder, "scans")
    assert len(scans) == 59
    assert ("sub-003", "ses-b") not in set(zip(scans["participant_id"], scans["session"], strict=True))
    there = [name for name in PEOPLE if name != "sub-003"]
    one, other = (
        [np.corrcoef(np.load(folder / f"{name}_{day}.npy").T)[np.triu_indices(8, 1)] for name in there] for day in "ab"
    )
    accuracy = read(folder, "identification").set_index("representation").loc["fc", "accuracy"]
    assert accuracy == pytest.approx(identified(one, other))
