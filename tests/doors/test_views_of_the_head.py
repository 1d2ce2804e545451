"""A head that is cut, an atlas that is shifted or flipped, half a cerebellum: each is named and seen first."""

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

from fcpower_bids.demo.__main__ import main as make_demo
from tests.command import main

REAL = Path(__file__).parents[2] / "examples" / "stages"
LIMIT = 0.5


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    """One recording of a real person's series, painted into a template brain."""
    root = tmp_path_factory.mktemp("head") / "bids"
    assert make_demo([str(root), "--series", str(REAL), "--subjects", "1"]) in (0, None)
    return root


def images(root):
    atlas = next(root.glob("atlas/*_dseg.nii.gz"))
    bold = next(root.glob("derivatives/**/*ses-1*_desc-preproc_bold.nii.gz"))
    return bold, bold.with_name(bold.name.replace("preproc_bold", "brain_mask")), atlas


def rewrite(path, change):
    image = nib.load(path)
    nib.save(nib.Nifti1Image(change(np.asanyarray(image.dataobj).copy()), image.affine, image.header), path)


def heights(path):
    image = nib.load(path)
    index = np.indices(image.shape[:3]).reshape(3, -1)
    return nib.affines.apply_affine(image.affine, index.T).T.reshape(3, *image.shape[:3])


def cut_at_54(root):
    bold, mask, _ = images(root)
    beyond = heights(mask)[2] >= 54
    rewrite(mask, lambda values: np.where(beyond, 0, values).astype(values.dtype))
    rewrite(bold, lambda values: np.where(beyond[..., None], 0, values).astype(values.dtype))


def shift_the_atlas(root):
    """To the right, by 16 mm."""
    atlas = images(root)[2]
    image = nib.load(atlas)
    affine = image.affine + 16 * np.eye(4, k=3)
    nib.save(nib.Nifti1Image(np.asanyarray(image.dataobj).copy(), affine), atlas)


def flip_the_atlas(root):
    rewrite(images(root)[2], lambda values: values[::-1])


def lose_half_a_cerebellum(root):
    """The atlas gets two parcels of the cerebellum, and the scan ends in the middle of it."""
    bold, mask, atlas = images(root)
    x, y, z = heights(atlas)
    cerebellum = (np.abs(x) < 35) & (y > -75) & (y < -50) & (z > -50) & (z < -32)
    sides = np.where(x < 0, 901, 902)
    rewrite(atlas, lambda values: np.where(cerebellum & (values == 0), sides, values).astype(np.int16))
    table = next(root.glob("atlas/*_dseg.tsv"))
    rows = pd.read_csv(table, sep="\t", keep_default_na=False)
    extra = pd.DataFrame({"index": [901, 902], "name": ["Cerebellum_left", "Cerebellum_right"]})
    pd.concat([rows, extra.reindex(columns=rows.columns, fill_value="n/a")]).to_csv(table, sep="\t", index=False)
    x, y, z = heights(mask)
    beyond = (x > 0) & (z < -30) & (y < -45)
    rewrite(mask, lambda values: np.where(beyond, 0, values).astype(values.dtype))
    rewrite(bold, lambda values: np.where(beyond[..., None], 0, values).astype(values.dtype))


def run(root):
    return main(
        [str(root), str(root.parent / "out"), "participant", "--atlas", str(images(root)[2]), "--session-label", "1"]
    )


def uncovered(root):
    """Names of the parcels of which the mask and the signal hold less than the limit, from the files."""
    bold, mask, atlas = images(root)
    images_of = (nib.load(atlas), nib.load(mask))
    nearest = resample_to_img(*images_of, interpolation="nearest", force_resample=True, copy_header=True)
    labels = np.asanyarray(nearest.dataobj)
    seen = (np.asanyarray(nib.load(mask).dataobj) > 0) & (np.asanyarray(nib.load(bold).dataobj).std(-1) > 0)
    table = pd.read_csv(next(root.glob("atlas/*_dseg.tsv")), sep="\t", keep_default_na=False)
    share = {name: seen[labels == label].mean() for label, name in zip(table["index"], table["name"], strict=True)}
    return [name for name, value in share.items() if value < LIMIT]


def dice_of(root):
    """Dice coefficient of the mask and the template's brain, by nilearn on the grid of the mask."""
    template, mask = load_mni152_brain_mask(resolution=1), nib.load(images(root)[1])
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


@pytest.mark.parametrize("plant", [cut_at_54, shift_the_atlas, lose_half_a_cerebellum])
def test_what_a_scan_has_not_seen_is_cautioned_and_comes_first(head, tmp_path, plant):
    root = shutil.copytree(head, tmp_path / "bids")
    plant(root)
    missing = uncovered(root)
    assert missing
    assert run(root) == 0
    page = (tmp_path / "out" / "sub-001.html").read_text(encoding="utf-8")
    text = re.sub(r"<wbr>", "", page)
    assert "The recording can be used, with caution." in text
    assert re.search(rf"{len(missing)} of the parcels of|The parcel", text)
    assert missing[0] in text.partition('id="recordings"')[0], "the verdict names it"
    panels = re.findall(r"<h4>([^<]*)</h4>", text)
    assert panels[0] == "Brain"
    quality = pd.read_csv(next((tmp_path / "out").glob("sub-001/**/*_desc-fcpower_qc.tsv")), sep="\t")
    assert quality["uncovered_parcels"].tolist() == [len(missing)]
    np.testing.assert_allclose(quality["mask_dice"], dice_of(root), atol=0.003)


def test_a_scan_in_another_place_is_cautioned_by_the_overlap_of_its_mask(head, tmp_path):
    root = shutil.copytree(head, tmp_path / "bids")
    assert dice_of(root) > 0.9
    shift_the_scan(root)
    keep_only_seen_parcels(root)
    assert dice_of(root) < 0.8
    assert uncovered(root) == []
    assert run(root) == 0
    page = (tmp_path / "out" / "sub-001.html").read_text(encoding="utf-8")
    assert re.findall(r"<h4>([^<]*)</h4>", page)[0] == "Brain"
    assert f"overlap little (Dice coefficient {dice_of(root):.2f})" in page
    assert f"Dice coefficient with the template's brain {dice_of(root):.2f}".replace("'", "&#39;") in page


def test_an_atlas_whose_left_is_on_the_right_is_refused(head, tmp_path, capsys):
    root = shutil.copytree(head, tmp_path / "bids")
    flip_the_atlas(root)
    assert run(root) == 2
    said = capsys.readouterr().err
    assert images(root)[2].name in said
    assert "is flipped: the parcels that are named left lie on the right" in said
    assert not list((tmp_path / "out").glob("sub-*"))
