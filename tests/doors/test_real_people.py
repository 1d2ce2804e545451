"""Series of real people in `examples/stages`: as they are, painted into voxels, and through both levels.

What is cut, shifted or flipped in a painted head is named and seen first.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.outputs.tables import read_matrix
from fcpower_bids.outputs.tables import read_table as table
from tests.cases.people import run
from tests.elsewhere.sources import read_connectome

STAGES = Path(__file__).parents[2] / "examples" / "stages"
UPPER = np.triu_indices(400, 1)
ALPHA = 0.35


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


def flip_the_atlas(root):
    rewrite(images(root)[2], lambda values: values[::-1])


def participant(root, *options):
    words = ("participant", "--atlas", images(root)[2], "--nprocs", "2", "--quiet", *options)
    return run(root, root.parent / "out", *words)


def test_an_atlas_whose_left_is_on_the_right_is_refused(root, tmp_path):
    flip_the_atlas(root)
    ended = participant(root)
    assert ended.code == 2
    assert images(root)[2].name in ended.err
    assert "is flipped: the parcels that are named left lie on the right" in ended.err
    assert not list((tmp_path / "out").glob("sub-*"))
