"""From ``--atlas`` to an atlas: names, files, folders, merges, TemplateFlow without network; what comes with us."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import logging
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import nibabel
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from nibabel.cifti2 import BrainModelAxis
from nilearn.datasets import load_mni152_brain_mask, load_mni152_wm_template, struct

from fcpower_bids.cohort.feature_choice import match_atlases
from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.imaging import atlas as builtin
from fcpower_bids.imaging import atlas_files
from fcpower_bids.imaging.atlas import (
    N_PARCELS,
    SPACES,
    SPACING,
    builtin_atlas,
    load_atlas,
    parcel_centroids,
    prefetch_atlases,
)
from fcpower_bids.imaging.atlas_files import (
    hemisphere_of,
    network_of,
    read_atlas_table,
    unique_names,
)
from fcpower_bids.imaging.labels import IMAGE, template_tissue
from fcpower_bids.outputs.tables import read_table
from fcpower_bids.records import join
from scripts.make_builtin import encode_image, parcellate_grey_matter
from tests.planting.surfaces import cortex, labels_of, save_dlabel
from tests.planting.trees import put
from tests.running import contents

SPACE = "MNI152NLin2009cAsym"
FETCH = atlas_files._fetch
OTHER = "MNI152NLin6Asym"
AFFINE = np.diag([2.0, 2, 2, 1])
SHAPE = (6, 6, 6)


def save_labels(path, labels, affine=AFFINE):
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(np.asarray(labels, np.int16), affine), path)
    return path


def cube(n_parcels, start=0):
    labels = np.zeros(SHAPE, np.int16)
    labels.flat[start : start + 4 * n_parcels] = np.repeat(np.arange(1, n_parcels + 1), 4)
    return labels


def save_table(path, rows, header="index\tname"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *("\t".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    """No test leaves the machine: an attempt fails as it does on a compute node."""

    def refuse(*_, **__):
        raise OSError("Temporary failure in name resolution")

    monkeypatch.setattr(atlas_files, "_fetch", refuse)
    monkeypatch.setenv("TEMPLATEFLOW_HOME", str(tmp_path / "templateflow"))
    monkeypatch.delenv("FCPOWER_OFFLINE", raising=False)


def test_templateflow_by_file_name_without_network_or_client(tmp_path):
    """A partial home with one small 'Schaefer' file, as ``prefetch`` leaves it."""
    home = tmp_path / "templateflow" / f"tpl-{SPACE}"
    save_labels(home / f"tpl-{SPACE}_res-02_atlas-Schaefer2018_desc-100Parcels7Networks_dseg.nii.gz", cube(3))
    rows = [
        (1, "7Networks_LH_Vis_1", "#000"),
        (2, "7Networks_LH_SomMot_1", "#111"),
        (3, "7Networks_RH_Cont_PFCl_1", "#2"),
    ]
    save_table(home / f"tpl-{SPACE}_atlas-Schaefer2018_desc-100Parcels7Networks_dseg.tsv", rows, "index\tname\tcolor")
    atlas = load_atlas("Schaefer100", SPACE)
    assert atlas.entities == (("atlas", "Schaefer2018"), ("seg", "7n"), ("scale", "100"))
    assert atlas.image.parent == home
    assert atlas.networks == ("Vis", "SomMot", "Cont")
    assert atlas.hemispheres == ("L", "L", "R")
    assert "Schaefer" in atlas.citation
    assert atlas.licence == "MIT"
    assert "TemplateFlow" in atlas.source
    assert len(list(home.parent.rglob("*"))) == 3, "nothing is unpacked into the home"


THALAMUS = "MIAL67ThalamicNuclei"
DSEG = f"atlas-{THALAMUS}_dseg"
"""An atlas that TemplateFlow has at 1 mm alone, and how its files are called."""
TABLE = b"index\tname\n1\tleft-one\n2\tright-two\n"


def test_the_client_fetches_into_a_scratch_folder_and_what_is_whole_is_kept(monkeypatch, tmp_path):
    """An archive on this machine serves a small file under the name of a real one; tables come with the client."""
    body, asked = save_labels(tmp_path / "image.nii.gz", cube(2)).read_bytes(), []
    image, names = (f"tpl-{SPACE}/tpl-{SPACE}_{end}" for end in (f"res-01_{DSEG}.nii.gz", f"{DSEG}.tsv"))
    spec, home, folder = f"templateflow:{THALAMUS}", tmp_path / "templateflow", tmp_path / "portable"
    put(home / names, TABLE)

    class Archive(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path[1:])
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    monkeypatch.setattr(atlas_files, "_fetch", FETCH)
    with ThreadingHTTPServer(("127.0.0.1", 0), Archive) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(atlas_files, "ARCHIVE", f"http://127.0.0.1:{server.server_port}")
        atlas, table = load_atlas(spec, SPACE), prefetch_atlases([spec], [SPACE], folder)
        server.shutdown()
    assert asked == [image, image]
    assert contents(home) == {image: body, names: TABLE}, "no stub is left in the home"
    assert atlas.names == ("left-one", "right-two")
    there = contents(folder)
    listed = there.pop("checksums.tsv").decode()
    assert set(there) == {image, names}
    rows = [f"{name}\t{hashlib.sha256(there[name]).hexdigest()}\t{len(there[name])}\n" for name in sorted(there)]
    assert listed == "".join(["file\tsha256\tbytes\n", *rows])
    assert load_atlas(spec, SPACE) == atlas, "the second time nothing is fetched"
    assert prefetch_atlases([spec], [SPACE], folder) == table
    assert contents(folder)["checksums.tsv"].decode() == listed
    assert load_atlas(spec, SPACE, [folder]).image == folder / image


def answer_in_this_process(monkeypatch, answer):
    """Let the program that fetches an address run here, with this answer of the network."""

    def run(words, env, **_):
        printed = io.StringIO()
        with monkeypatch.context() as patched, contextlib.redirect_stdout(printed):
            patched.setenv("TEMPLATEFLOW_HOME", env["TEMPLATEFLOW_HOME"])
            code = atlas_files.main(words[3:])
        return subprocess.CompletedProcess(words, code, printed.getvalue(), "")

    monkeypatch.setattr(atlas_files, "_fetch", FETCH)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("urllib.request.urlopen", answer)


def test_prefetch_for_cifti_is_from_the_authors_and_found_by_name(monkeypatch, tmp_path):
    save_dlabel(tmp_path / "theirs.dlabel.nii", labels_of(4), [f"7Networks_LH_Vis_{k}" for k in range(4)])
    asked = []

    def answer(url, **_):
        asked.append(url)
        return io.BytesIO((tmp_path / "theirs.dlabel.nii").read_bytes())

    answer_in_this_process(monkeypatch, answer)
    folder = tmp_path / "portable"
    table = prefetch_atlases(["Schaefer400"], ["fsLR"], folder)
    name = "Schaefer2018_400Parcels_7Networks_order.dlabel.nii"
    (address,) = asked
    assert address.startswith("https://raw.githubusercontent.com/ThomasYeoLab/CBIG/")
    assert address.endswith(name)
    digest = hashlib.sha256((tmp_path / "theirs.dlabel.nii").read_bytes()).hexdigest()
    assert table.read_text().splitlines()[1].split("\t")[:2] == [f"tpl-fsLR/{name}", digest]
    assert prefetch_atlases(["Schaefer400"], ["fsLR"], folder) == table
    assert len(asked) == 1, "what is there is not fetched again"
    atlas = load_atlas("Schaefer400", "fsLR", [folder], cifti=True)
    assert atlas.entities == (("atlas", "Schaefer2018"), ("seg", "7n"), ("scale", "400"))
    assert atlas.networks == ("Vis",) * 4


def test_prefetch_for_cifti_refuses_a_login_page(monkeypatch, tmp_path):
    answer_in_this_process(monkeypatch, lambda *_, **__: io.BytesIO(b"<html>please log in</html>"))
    with pytest.raises(DatasetError, match="login portal"):
        prefetch_atlases(["Schaefer400"], ["fsLR"], tmp_path / "a")
    assert not list((tmp_path / "a").rglob("*.nii"))


def test_a_file_without_a_table(tmp_path):
    image = save_labels(tmp_path / "my_own-regions v2.nii.gz", cube(3) * 5)
    atlas = load_atlas(str(image), SPACE)
    assert atlas.labels == (5, 10, 15)
    assert atlas.names == ("parcel005", "parcel010", "parcel015")
    assert atlas.entities == (("atlas", "myownregionsv2"),)
    assert atlas.networks == atlas.hemispheres == ("n/a",) * 3
    assert atlas.space == SPACE


def test_a_table_given_after_a_colon_rules(tmp_path, caplog):
    image = save_labels(tmp_path / "regions.nii.gz", cube(4))
    rows = [(3, "c", "Net B", "rh"), (1, "a", "Net A", "Left"), (9, "gone", "n/a", "")]
    table = save_table(tmp_path / "names.tsv", rows, "Index\tname\tnetwork\themisphere")
    with caplog.at_level(logging.WARNING):
        atlas = load_atlas(f"{image}:{table}", SPACE)
    assert atlas.labels == (3, 1, 9)
    assert atlas.names == ("c", "a", "gone")
    assert atlas.networks == ("Net B", "Net A", "n/a")
    assert atlas.hemispheres == ("R", "L", "n/a")
    assert "labels [2, 4]" in caplog.text


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("index\tname\n", "has no rows"),
        ("name\nfoo\n", "no column 'index'"),
        ("index\tname\n1\ta\n1\tb\n", "label 1 more than once"),
        ("index\tname\n0\tLeft Frontal Pole\n1\tRight\n", "0 is the background"),
        ("index\tname\n77\tnowhere\n", "No label of"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, content, sentence):
    image = save_labels(tmp_path / "regions.nii.gz", cube(2))
    table = tmp_path / "bad.tsv"
    table.write_text(content)
    with pytest.raises(UsageError, match=rf"bad\.tsv.*{sentence}|{sentence}.*bad\.tsv"):
        load_atlas(f"{image}:{table}", SPACE)


def test_tables_of_other_conventions(tmp_path):
    atlaspack = save_table(tmp_path / "a.tsv", [(0, "Background"), (4, "LH-Foo"), (2, "Foo")], "index\tlabel")
    assert read_atlas_table(atlaspack)[:2] == ((4, 2), ("LH-Foo", "Foo"))
    other = tmp_path / "b.tsv"
    other.write_bytes("\ufefflabel\tregion\r\n1\tÄ region\r\n2\t\r\n3\tÄ  region\r\n".encode())
    assert read_atlas_table(other).names == ("Ä region_1", "parcel002", "Ä region_3")


@hypothesis_settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.sampled_from(["a", "b", "", "c"]), min_size=1, max_size=8))
def test_names_are_unique_and_one_per_parcel(names):
    labels = list(range(3, 3 + len(names)))
    found = unique_names(labels, names)
    assert len(set(found)) == len(names)
    assert all(one == name for one, name in zip(found, names, strict=True) if name and names.count(name) == 1)


@pytest.mark.parametrize(
    ("name", "network", "hemisphere"),
    [
        ("7Networks_LH_Vis_1", "Vis", "L"),
        ("17Networks_RH_ContA_IPS_1", "ContA", "R"),
        ("HIP-head-l-rh", "n/a", "R"),
        ("R_Thal", "n/a", "R"),
        ("Relay-lateral", "n/a", "n/a"),
    ],
)
def test_network_and_hemisphere_are_read_from_names(name, network, hemisphere):
    assert network_of(name) == network
    assert hemisphere_of(name) == hemisphere


def test_wrong_space_and_wrong_kind(tmp_path):
    image = save_labels(tmp_path / f"tpl-{OTHER}_atlas-A_dseg.nii.gz", cube(2))
    with pytest.raises(UsageError, match=f"in space {OTHER} but the recording in {SPACE}"):
        load_atlas(str(image), SPACE)
    with pytest.raises(UsageError, match="give a dlabel file"):
        load_atlas(str(image), OTHER, cifti=True)
    with pytest.raises(UsageError, match="does not exist"):
        load_atlas(str(tmp_path / "none.nii.gz"), SPACE)
    with pytest.raises(UsageError, match="Did you mean Schaefer400"):
        load_atlas("Shaefer400", SPACE)


def test_a_dataset_with_a_selector(tmp_path):
    folder = tmp_path / "my atlases"
    for scale in (2, 3):
        for resolution in ("01", "02"):
            stem = f"tpl-{SPACE}_atlas-Toy_scale-{scale}_res-{resolution}_dseg"
            save_labels(folder / f"tpl-{SPACE}" / f"{stem}.nii.gz", cube(scale))
            save_table(folder / f"tpl-{SPACE}" / f"{stem}.tsv", [(k, f"region {k}") for k in range(1, scale + 1)])
    save_labels(folder / f"tpl-{OTHER}" / f"tpl-{OTHER}_atlas-Solo_dseg.nii.gz", cube(1))
    put(folder / "atlas-Toy_description.json", {"License": "CC0", "ReferencesAndLinks": ["Doe 1999"]})
    atlas = load_atlas(f"{folder}:Toy_scale-3", SPACE)
    assert atlas.image.name == f"tpl-{SPACE}_atlas-Toy_scale-3_res-02_dseg.nii.gz", "2 mm is preferred"
    assert atlas.names == ("region 1", "region 2", "region 3")
    assert (atlas.licence, atlas.citation) == ("CC0", "Doe 1999")
    assert load_atlas("Toy_scale-3", SPACE, [folder]) == atlas
    assert load_atlas("atlas-Toy_scale-3", SPACE, [folder]) == atlas


def test_merging_keeps_order_and_never_overwrites(tmp_path):
    first = save_labels(tmp_path / "atlas-Sub.nii.gz", cube(2))
    save_table(tmp_path / "atlas-Sub.tsv", [(2, "b", "S"), (1, "a", "S")], "index\tname\tnetwork")
    second = save_labels(tmp_path / "atlas-Ctx_seg-7n_scale-3.nii.gz", cube(3, start=6))
    save_table(tmp_path / "atlas-Ctx_seg-7n_scale-3.tsv", [(1, "x"), (2, "a"), (3, "z")])
    atlas = load_atlas(f"{first}+{second}", SPACE, cache=tmp_path / "cache")
    assert atlas.entities == (("atlas", "SubCtx"), ("seg", "7n"), ("scale", "5"))
    assert atlas.labels == (1, 2, 3, 4, 5)
    assert atlas.names == ("b", "a_2", "x", "a_4", "z")
    assert atlas.networks[:2] == ("S", "S")
    labels = np.asarray(nibabel.load(atlas.image).dataobj)
    np.testing.assert_array_equal(labels.flat[:18], np.repeat([2, 1, 3, 4, 5], [4, 4, 2, 4, 4]))
    assert "2 voxels claimed by several" in atlas.source
    with gzip.open(atlas.image) as stream:
        stream.read()
        assert stream.mtime == 0, "no time in it: an array job writes the same file"
    assert read_atlas_table(atlas.image.with_name(atlas.image.name.replace(".nii.gz", ".tsv"))).names == atlas.names


def test_selectors_and_tables_stand_anywhere_in_a_merge_and_their_outputs_are_known_by_the_same_words(tmp_path):
    plain, table = tmp_path / "own.nii.gz", save_table(tmp_path / "one+two.tsv", [(1, "first")])
    save_labels(plain, cube(1))
    for folder in (tmp_path / "dataset", tmp_path / "a+b"):
        for name, scale in (("Toy", 2), ("Toys", 3)):
            stem = f"tpl-{SPACE}_atlas-{name}_seg-{scale}n_scale-{scale}_dseg"
            save_labels(folder / f"{stem}.nii.gz", cube(scale, start=6))
    toy = f"{tmp_path}/dataset:Toy"
    names = {
        f"{plain}": "atlas-own",
        f"{plain}:{table}": "atlas-own",
        toy: "atlas-Toy_seg-2n_scale-2",
        f"{tmp_path}/a+b:seg-3n": "atlas-Toys_seg-3n_scale-3",
        f"{toy}+{plain}": "atlas-Toyown_seg-2n_scale-3",
        f"{plain}:{tmp_path}/names.tsv+{toy}": "atlas-ownToy_seg-2n_scale-3",
        f"{toy}+{tmp_path}/dataset:Toys": "atlas-ToyToys_seg-2n3n_scale-5",
    }
    save_table(tmp_path / "names.tsv", [(1, "first")])
    for spec, name in names.items():
        assert join(load_atlas(spec, SPACE, cache=tmp_path / "cache").entities) == name
        assert match_atlases(spec, ["atlas-Other_scale-3", *dict.fromkeys(names.values())]) == [name]


def test_merging_across_resolutions_uses_the_larger_grid(tmp_path):
    fine = np.zeros((8, 8, 8), np.int16)
    fine[:2, :2, :2] = 1
    first = save_labels(tmp_path / "small.nii.gz", fine[:4, :4, :4], np.diag([4.0, 4, 4, 1]))
    second = save_labels(tmp_path / "large.nii.gz", np.full((8, 8, 8), 1))
    atlas = load_atlas(f"{first}+{second}", SPACE, cache=tmp_path)
    labels = np.asarray(nibabel.load(atlas.image).dataobj)
    assert labels.shape == (8, 8, 8)
    # Centres of 2 mm voxels at 0, 2 and 4 mm lie in the first two 4 mm voxels (0 and 4 mm); that at 6 mm is halfway.
    assert np.sum(labels == 1) == 3**3
    assert np.sum(labels == 2) == 8**3 - np.sum(labels == 1)


def test_merging_dlabels(tmp_path):
    thalamus = BrainModelAxis.from_mask(np.ones((2, 2, 2), bool), "CIFTI_STRUCTURE_THALAMUS_LEFT", affine=AFFINE)
    vertices = cortex(range(5), range(5))
    specs = [
        save_dlabel(tmp_path / "Thal.dlabel.nii", [0] * 10 + [7] * 8, {7: "Thal7"}, vertices + thalamus),
        save_dlabel(tmp_path / "Ctx.dlabel.nii", [0, 1, 1, 2, 2, 1, 1, 2, 2, 2], ["Ctx1", "Ctx2"], vertices),
    ]
    atlas = load_atlas("+".join(map(str, specs)), "fsLR", cache=tmp_path / "cache", cifti=True)
    assert atlas.names == ("Thal7", "Ctx1", "Ctx2")
    values = nibabel.load(atlas.image).get_fdata()[0]
    np.testing.assert_array_equal(values, [0, 2, 2, 3, 3, 2, 2, 3, 3, 3] + [1] * 8)


def test_the_image_that_is_kept_is_that_of_the_template():
    labels, affine = parcellate_grey_matter()
    kept = gzip.decompress(builtin.IMAGE.read_bytes())
    np.testing.assert_array_equal(np.asarray(nibabel.Nifti1Image.from_bytes(kept).dataobj), labels)
    assert gzip.decompress(encode_image(labels, affine)) == kept


@pytest.mark.parametrize("space", SPACES)
def test_image_and_table_agree_with_the_atlas(space, tmp_path):
    atlas = builtin_atlas(space, tmp_path / "new" / "cache")
    image = nibabel.load(atlas.image)
    assert atlas.space == space
    assert tuple(np.unique(np.asarray(image.dataobj)))[1:] == atlas.labels == tuple(range(1, N_PARCELS + 1))
    assert nibabel.aff2axcodes(image.affine) == ("R", "A", "S")
    assert image.header.get_zooms() == (2, 2, 2)
    assert len(set(atlas.names)) == atlas.n_parcels
    table = read_table(atlas.image.with_name(atlas.image.name[:-7] + ".tsv"))
    facts = {"index": atlas.labels, "name": atlas.names, "network": atlas.networks, "hemisphere": atlas.hemispheres}
    for column, values in facts.items():
        assert tuple(table[column]) == values, column


def test_a_damaged_file_in_the_cache_is_replaced_and_a_whole_one_is_not_written_again(tmp_path):
    atlas = builtin_atlas(SPACES[0], tmp_path)
    os.utime(atlas.image, (0, 0))
    assert builtin_atlas(SPACES[0], tmp_path).image.stat().st_mtime == 0
    whole = atlas.image.read_bytes()
    atlas.image.write_bytes(whole[:100])
    builtin_atlas(SPACES[0], tmp_path)
    assert atlas.image.read_bytes() == whole
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".gz", ".tsv"]


UNEVEN = np.array([[-2.0, 0, 0, 90], [0, 2.5, 0, -126], [0, 0, 3.0, -72], [0, 0, 0, 1]])


def test_a_centroid_is_the_mean_of_its_voxels_in_the_order_of_the_labels(tmp_path: Path):
    volume = np.zeros((6, 7, 8), np.int16)
    volume[1:3, 2, 3] = 7
    volume[5, 5, 4:7] = 2
    path = tmp_path / "atlas.nii.gz"
    nibabel.save(nibabel.Nifti1Image(volume, UNEVEN), path)
    found = parcel_centroids(path, (7, 2, 9))
    expected = [UNEVEN @ [1.5, 2, 3, 1], UNEVEN @ [5, 5, 5, 1]]
    np.testing.assert_allclose(found[:2], np.array(expected)[:, :3], atol=1e-12)
    assert np.isnan(found[2]).all()


def test_a_parcel_on_a_surface_has_no_place_and_one_of_voxels_has(tmp_path: Path):
    mask = np.zeros((4, 4, 4), bool)
    mask[1, 2, 1:4] = True
    volume = BrainModelAxis.from_mask(mask, name="thalamus_left", affine=UNEVEN)
    labels = [1, 1, 1, 1, 1, 2, 2, 2]
    axis = cortex(range(3), range(2)) + volume
    path = save_dlabel(tmp_path / "atlas.dlabel.nii", labels, ["cortex", "thalamus"], axis)
    found = parcel_centroids(path, (1, 2))
    assert np.isnan(found[0]).all()
    np.testing.assert_allclose(found[1], (UNEVEN @ [1, 2, 2, 1])[:3])


WHITE_MATTER = 195


def dice(one, other):
    return 2 * (one & other).sum() / (one.sum() + other.sum())


@pytest.mark.parametrize("resolution", [1, 3])
def test_tissue_is_that_of_nilearn(resolution):
    brain, white = load_mni152_brain_mask(resolution=resolution), load_mni152_wm_template(resolution=resolution)
    tissue, volume = template_tissue(brain.shape, tuple(brain.affine.ravel()))
    assert dice(tissue > 0, (np.asanyarray(brain.dataobj) > 0).ravel(order="F")) > 0.98
    assert dice(tissue == 2, (white.get_fdata() > 0.5).ravel(order="F")) > 0.88
    assert volume == pytest.approx(load_mni152_brain_mask(resolution=1).get_fdata().sum(), rel=0.005)


def test_the_image_is_the_one_that_its_rule_gives():
    whole = nibabel.load(struct.MNI152_FILE_PATH)
    intensity = np.asanyarray(whole.dataobj)[::SPACING, ::SPACING, ::SPACING]
    tissue = (intensity > 0).astype(np.uint8) + (intensity >= WHITE_MATTER)
    affine = whole.affine @ np.diag([SPACING, SPACING, SPACING, 1.0])
    assert gzip.decompress(IMAGE.read_bytes()) == gzip.decompress(encode_image(tissue, affine))


def test_merged_parts_equal_the_published_merge(shared, tmp_path):
    """Tian S3 cut from the reference and merged with Schaefer 400 gives its 450 parcels back, image and names."""
    folder = shared / "atlases"
    whole = load_atlas("Schaefer450", SPACE, [folder])
    image = nibabel.load(whole.image)
    labels = np.asarray(image.dataobj)
    part = np.where(labels <= 50, labels, 0)
    save_labels(tmp_path / f"tpl-{SPACE}_atlas-TianS3_res-02_dseg.nii.gz", part, image.affine)
    rows = list(zip(whole.labels, whole.names, strict=True))[:50]
    save_table(tmp_path / f"tpl-{SPACE}_atlas-TianS3_res-02_dseg.tsv", rows)
    cortex = next((folder / f"tpl-{SPACE}").glob("*atlas-Schaefer2018_*scale-400*.nii.gz"))
    for extension in (".nii.gz", ".tsv"):
        source = cortex.with_name(cortex.name.replace(".nii.gz", extension))
        (tmp_path / source.name).write_bytes(source.read_bytes())
    merged = load_atlas("Schaefer450", SPACE, [tmp_path], cache=tmp_path / "cache")
    again = load_atlas("TianS3+Schaefer400", SPACE, [tmp_path], cache=tmp_path / "cache")
    assert merged == again, "a declared merge has its declared name however it is asked for"
    for attribute in ("entities", "labels", "names", "networks", "hemispheres"):
        assert getattr(merged, attribute) == getattr(whole, attribute), attribute
    np.testing.assert_array_equal(np.asarray(nibabel.load(merged.image).dataobj), labels)
