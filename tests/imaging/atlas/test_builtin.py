import csv
import gzip
import os
import subprocess
import sys

import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage

from fcpower_bids.errors import UsageError
from fcpower_bids.imaging import atlas as builtin
from fcpower_bids.imaging.atlas import N_PARCELS, POSITIONS, SPACES, builtin_atlas
from scripts.make_builtin import encode_image, parcellate_grey_matter


@pytest.fixture(scope="module")
def labels():
    return parcellate_grey_matter()[0]


def test_the_image_that_is_kept_is_that_of_the_template(labels):
    kept = nib.Nifti1Image.from_bytes(gzip.decompress(builtin.IMAGE.read_bytes()))
    np.testing.assert_array_equal(np.asarray(kept.dataobj), labels)
    made = gzip.decompress(encode_image(*parcellate_grey_matter()))
    assert made == gzip.decompress(builtin.IMAGE.read_bytes())


def test_hemispheres_mirror_each_other_and_left_has_negative_x(labels):
    right = np.where(labels[::-1] > 0, (labels[::-1].astype(int) + 29) % N_PARCELS + 1, 0)
    np.testing.assert_array_equal(labels, right)
    affine = parcellate_grey_matter()[1]
    assert (affine @ [*ndimage.center_of_mass(labels == 1), 1])[0] < 0


def test_names_say_where_the_parcels_are(labels, tmp_path):
    atlas = builtin_atlas(SPACES[0], tmp_path)
    centres = np.array(ndimage.center_of_mass(labels > 0, labels, atlas.labels))
    by_position = {name: centres[[i for i, n in enumerate(atlas.networks) if n == name]] for name in POSITIONS}
    anterior, middle, posterior = (
        np.concatenate([by_position[name + side] for side in ("Sup", "Inf")])[:, 1] for name in ("Ant", "Mid", "Post")
    )
    assert posterior.max() < middle.min() < middle.max() < anterior.min()
    for part in ("Ant", "Mid", "Post"):
        assert by_position[part + "Inf"][:, 2].max() < by_position[part + "Sup"][:, 2].min()


@pytest.mark.parametrize("space", SPACES)
def test_image_and_table_agree_with_the_atlas(space, tmp_path):
    atlas = builtin_atlas(space, tmp_path / "new" / "cache")
    image = nib.load(atlas.image)
    assert atlas.space == space
    assert tuple(np.unique(np.asarray(image.dataobj)))[1:] == atlas.labels == tuple(range(1, N_PARCELS + 1))
    assert nib.aff2axcodes(image.affine) == ("R", "A", "S")
    assert image.header.get_zooms() == (2, 2, 2)
    assert len(set(atlas.names)) == atlas.n_parcels
    rows = list(csv.DictReader(atlas.image.with_name(atlas.image.name[:-7] + ".tsv").open(), delimiter="\t"))
    assert [(row["name"], row["network"], row["hemisphere"]) for row in rows] == list(
        zip(atlas.names, atlas.networks, atlas.hemispheres, strict=True)
    )
    assert [int(row["index"]) for row in rows] == list(atlas.labels)


def test_same_bytes_in_another_process_and_no_rewriting(tmp_path):
    first = builtin_atlas(SPACES[0], tmp_path / "a")
    code = f"import sys, pathlib; from {builtin.__name__} import *; builtin_atlas(SPACES[0], pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "b")], check=True)
    for path in first.image.parent.iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    os.utime(first.image, (1, 1))
    assert builtin_atlas(SPACES[0], tmp_path / "a") == first
    assert first.image.stat().st_mtime == 1


def test_a_damaged_file_in_the_cache_is_replaced(tmp_path):
    atlas = builtin_atlas(SPACES[0], tmp_path)
    whole = atlas.image.read_bytes()
    atlas.image.write_bytes(whole[:100])
    builtin_atlas(SPACES[0], tmp_path)
    assert atlas.image.read_bytes() == whole
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".gz", ".tsv"]


@pytest.mark.parametrize("space", ["fsLR", "MNI152NLin2009aSym", ""])
def test_other_spaces_are_refused_with_the_remedy(space, tmp_path):
    with pytest.raises(UsageError, match=r"--atlas.*--space"):
        builtin_atlas(space, tmp_path)
    assert not list(tmp_path.iterdir())
