"""Series of real people in `examples/stages`: as they are, painted into voxels, and through both levels.

What is cut, shifted or flipped in a painted head is named and seen first.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from nilearn.datasets import load_mni152_brain_mask
from nilearn.image import resample_to_img

from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.demo.dataset import CENTRES
from fcpower_bids.outputs.tables import read_matrix
from fcpower_bids.outputs.tables import read_table as table
from tests.cases.people import run
from tests.elsewhere.sources import read_connectome

STAGES = Path(__file__).parents[2] / "examples" / "stages"
UPPER = np.triu_indices(400, 1)
ALPHA = 0.35
LIMIT = 0.5


@pytest.fixture(scope="module")
def series():
    with np.load(STAGES / "series.npz", allow_pickle=False) as archive:
        return {key: archive[key].astype(float) for key in archive.files if key != "parcels"}


def identification(features):
    """Mean of both directions; ``features`` by scan."""
    people = sorted({key.split("_")[0] for key in features})
    first, second = (np.array([features[f"{one}_{day}"] for one in people]) for day in ("ses-1", "ses-2"))
    across = np.corrcoef(first, second)[: len(people), len(people) :]
    return np.mean([across.argmax(axis=axis) == np.arange(len(people)) for axis in (0, 1)])


def test_the_series_are_those_of_the_source(shared, series):
    with np.load(shared / "data" / "stages" / "timeseries.npz", allow_pickle=False) as source:
        assert len(series) == 74
        for key, values in series.items():
            own = source[key][:, :400].astype(float)
            standard = (own - own.mean(axis=0)) / own.std(axis=0)
            np.testing.assert_allclose(values / 1000, standard, atol=0.00051)
        twice = {key.split("_")[0] for key in source.files if key.endswith("ses-2")}
    assert {key.split("_")[0] for key in series} == twice


def test_identification_of_37_people_is_the_published_one(series, tmp_path):
    source = ("-d", f"list={STAGES / 'list.tsv'}")
    ended = run(STAGES, tmp_path / "out", "group", *source, "--analyses", "fingerprinting", "--nprocs", "2")
    assert ended.code == 0, ended.err
    found = table(tmp_path / "out" / "group" / "identification.tsv").set_index("representation")
    written = found["accuracy"]
    cells = [
        f"{100 * row['accuracy']:.0f} % ({100 * row['ci_low']:.0f} to {100 * row['ci_high']:.0f})"
        for _, row in found.iterrows()
    ]
    readme = (STAGES.parents[1] / "README.md").read_text(encoding="utf-8").replace("**", "")
    assert " | ".join(cells) in readme, "the interval that the README states"
    connectomes = {key: np.corrcoef(values, rowvar=False) for key, values in series.items()}
    key = min(connectomes)
    (path,) = (tmp_path / "out").rglob(f"{key.replace('_', '*')}*_stat-mean_timeseries.npy")
    np.testing.assert_allclose(read_connectome(path), connectomes[key], rtol=0, atol=1e-12)
    assert written["fc"] == pytest.approx(identification({k: m[UPPER] for k, m in connectomes.items()}))
    assert written["fc"] == pytest.approx(0.838, abs=5e-4)
    raised = {key: spectral_power(matrix, ALPHA)[UPPER] for key, matrix in connectomes.items()}
    assert written["fc_power"] == identification(raised) == 1


@pytest.fixture(scope="module")
def painted(painted_people):
    return painted_people / "out"


def test_painted_people_have_their_own_connectomes(painted, series):
    """Cleaning takes the invented artefacts out, and its filter the ends of the band."""
    found = {}
    for path in painted.glob("sub-*/ses-*/func/*_stat-pearsoncorrelation_relmat.tsv"):
        key = "_".join(path.name.split("_")[:2])
        found[key] = read_matrix(path)[0]
        true = np.corrcoef(series[key], rowvar=False)
        assert np.corrcoef(found[key][UPPER], true[UPPER])[0, 1] > 0.8
    assert len(found) == 4
    assert identification({key: spectral_power(matrix, ALPHA)[UPPER] for key, matrix in found.items()}) == 1


def test_two_scans_of_400_parcels_take_little_of_a_page(painted):
    pages = list(painted.glob("sub-*.html"))
    assert pages
    assert max(page.stat().st_size for page in pages) < 2.5e6


def test_parcels_lie_around_the_centres_of_their_atlas(painted):
    rows = table(next(painted.glob("sourcedata/**/*.tsv"), None) or next(painted.rglob("atlas-*_dseg.tsv")))
    centres = table(Path(str(CENTRES)))
    distance = np.linalg.norm(rows[["x", "y", "z"]].to_numpy() - centres[["x", "y", "z"]].to_numpy(), axis=1)
    assert rows["name"].tolist() == centres["name7"].tolist()
    assert np.quantile(distance, 0.95) < 8


# Views of the head


@pytest.fixture
def root(painted_people, tmp_path):
    """A copy of the painted people with one recording each."""
    return shutil.copytree(painted_people / "in", tmp_path / "bids", ignore=shutil.ignore_patterns("ses-2"))


def images(root, person="001"):
    atlas = next(root.glob("atlas/*_dseg.nii.gz"))
    bold = next(root.glob(f"derivatives/**/sub-{person}_ses-1*_desc-preproc_bold.nii.gz"))
    return bold, bold.with_name(bold.name.replace("preproc_bold", "brain_mask")), atlas


def rewrite(path, change):
    image = nib.load(path)
    nib.save(nib.Nifti1Image(change(np.asanyarray(image.dataobj).copy()), image.affine, image.header), path)


def heights(path):
    image = nib.load(path)
    index = np.indices(image.shape[:3]).reshape(3, -1)
    return nib.affines.apply_affine(image.affine, index.T).T.reshape(3, *image.shape[:3])


def cut(root, person, part):
    """What lies in a part of the head that is told by its places is not seen in a scan."""
    bold, mask, _ = images(root, person)
    beyond = part(*heights(mask))
    rewrite(mask, lambda values: np.where(beyond, 0, values).astype(values.dtype))
    rewrite(bold, lambda values: np.where(beyond[..., None], 0, values).astype(values.dtype))


def flip_the_atlas(root):
    rewrite(images(root)[2], lambda values: values[::-1])


def add_a_cerebellum(root):
    """The atlas gets two parcels of the cerebellum."""
    atlas = images(root)[2]
    x, y, z = heights(atlas)
    cerebellum = (np.abs(x) < 35) & (y > -75) & (y < -50) & (z > -50) & (z < -32)
    sides = np.where(x < 0, 901, 902)
    rewrite(atlas, lambda values: np.where(cerebellum & (values == 0), sides, values).astype(np.int16))
    table = next(root.glob("atlas/*_dseg.tsv"))
    rows = pd.read_csv(table, sep="\t", keep_default_na=False)
    extra = pd.DataFrame({"index": [901, 902], "name": ["Cerebellum_left", "Cerebellum_right"]})
    pd.concat([rows, extra.reindex(columns=rows.columns, fill_value="n/a")]).to_csv(table, sep="\t", index=False)


def participant(root, *options):
    words = ("participant", "--atlas", images(root)[2], "--nprocs", "2", "--quiet", *options)
    return run(root, root.parent / "out", *words)


def uncovered(root, person="001"):
    """Names of the parcels of which the mask and the signal hold less than the limit, from the files."""
    bold, mask, atlas = images(root, person)
    images_of = (nib.load(atlas), nib.load(mask))
    nearest = resample_to_img(*images_of, interpolation="nearest", force_resample=True, copy_header=True)
    labels = np.asanyarray(nearest.dataobj)
    seen = (np.asanyarray(nib.load(mask).dataobj) > 0) & (np.asanyarray(nib.load(bold).dataobj).std(-1) > 0)
    table = pd.read_csv(next(root.glob("atlas/*_dseg.tsv")), sep="\t", keep_default_na=False)
    share = {name: seen[labels == label].mean() for label, name in zip(table["index"], table["name"], strict=True)}
    return [name for name, value in share.items() if value < LIMIT]


def dice_of(root, person="001"):
    """Dice coefficient of the mask and the template's brain, by nilearn on the grid of the mask."""
    template, mask = load_mni152_brain_mask(resolution=1), nib.load(images(root, person)[1])
    placed = resample_to_img(template, mask, interpolation="nearest", force_resample=True, copy_header=True)
    own, there = (np.asanyarray(image.dataobj) > 0 for image in (mask, placed))
    cubic = abs(np.linalg.det(mask.affine[:3, :3]))
    return 2 * (own & there).sum() * cubic / (own.sum() * cubic + template.get_fdata().sum())


def shift_the_scan(root):
    """Upwards, by 20 mm."""
    for path in images(root)[:2]:
        image = nib.load(path)
        affine = image.affine.copy()
        affine[2, 3] += 20
        nib.save(nib.Nifti1Image(np.asanyarray(image.dataobj).copy(), affine, image.header), path)


def keep_only_seen_parcels(root):
    """The atlas loses the parcels that the scan has not seen."""
    table, lost = next(root.glob("atlas/*_dseg.tsv")), uncovered(root)
    rows = pd.read_csv(table, sep="\t", keep_default_na=False)
    dropped = rows.loc[rows["name"].isin(lost), "index"]
    rows[~rows["name"].isin(lost)].to_csv(table, sep="\t", index=False)
    rewrite(images(root)[2], lambda values: np.where(np.isin(values, dropped), 0, values).astype(values.dtype))


def test_what_a_scan_has_not_seen_is_cautioned_and_comes_first(root, tmp_path):
    add_a_cerebellum(root)
    cut(root, "001", lambda x, y, z: z >= 54)
    cut(root, "002", lambda x, y, z: (x > 0) & (z < -30) & (y < -45))
    assert participant(root).code == 0
    for person in ("001", "002"):
        missing = uncovered(root, person)
        assert missing
        text = (tmp_path / "out" / f"sub-{person}.html").read_text(encoding="utf-8").replace("<wbr>", "")
        assert "1 of 1 recording can be used, with caution." in text
        assert re.search(rf"{len(missing)} of the parcels of|The parcel", text)
        assert missing[0] in text.partition('id="recordings"')[0], "the verdict names it"
        assert re.findall(r"<h4>([^<]*)</h4>", text)[0] == "Brain"
        quality = pd.read_csv(next((tmp_path / "out").glob(f"sub-{person}/**/*_desc-fcpower_qc.tsv")), sep="\t")
        assert quality["uncovered_parcels"].tolist() == [len(missing)]
        np.testing.assert_allclose(quality["mask_dice"], dice_of(root, person), atol=0.003)


def test_a_scan_in_another_place_is_cautioned_by_the_overlap_of_its_mask(root, tmp_path):
    assert dice_of(root) > 0.9
    shift_the_scan(root)
    keep_only_seen_parcels(root)
    assert dice_of(root) < 0.8
    assert uncovered(root) == []
    assert participant(root, "--participant-label", "001").code == 0
    page = (tmp_path / "out" / "sub-001.html").read_text(encoding="utf-8")
    assert re.findall(r"<h4>([^<]*)</h4>", page)[0] == "Brain"
    assert f"overlap little (Dice coefficient {dice_of(root):.2f})" in page
    assert f"Dice coefficient with the template's brain {dice_of(root):.2f}".replace("'", "&#39;") in page


def test_an_atlas_whose_left_is_on_the_right_is_refused(root, tmp_path):
    flip_the_atlas(root)
    ended = participant(root)
    assert ended.code == 2
    assert images(root)[2].name in ended.err
    assert "is flipped: the parcels that are named left lie on the right" in ended.err
    assert not list((tmp_path / "out").glob("sub-*"))
