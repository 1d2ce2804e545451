"""Real series of twelve people, painted into a real parcellation: what is written identifies them as the series do.

The published identification of all 37 is that of the series (tests/core/test_stages_identification.py).
"""

from __future__ import annotations

import json
import shutil

import nibabel
import numpy as np
import pytest

from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.core.series import z_score
from fcpower_bids.outputs.tables import read_matrix
from fcpower_bids.workflows import participant
from tests.running import PLAIN, run_app

pytestmark = pytest.mark.shared

SPACE = "MNI152NLin2009cAsym"
CORTEX = 400
PEOPLE = 12
EVERY_THIRD = (slice(2, None, 3),) * 3
"""Of the 2 mm labels: a 6 mm grid on which each of the 400 parcels keeps a voxel, nearest label and all."""
TR = 2.5


@pytest.fixture(scope="module")
def labels(shared):
    name = f"tpl-{SPACE}_atlas-Schaefer2018_seg-7n_scale-400_res-02_dseg.nii.gz"
    return nibabel.load(shared / "atlases" / f"tpl-{SPACE}" / name)


@pytest.fixture(scope="module")
def series(shared):
    """Series (234, 400) of the scans of people who have two, by ``sub-X_ses-Y``."""
    archive = np.load(shared / "data" / "stages" / "timeseries.npz", allow_pickle=False)
    people = [key.split("_")[0] for key in archive.files]
    twice = sorted(person for person in {*people} if people.count(person) == 2)[:PEOPLE]
    return {key: archive[key][:, :CORTEX] for key, person in zip(archive.files, people, strict=True) if person in twice}


@pytest.fixture(scope="module")
def fmriprep(labels, series, tmp_path_factory):
    """Derivatives with the series painted into every voxel of their parcel; removed afterwards."""
    root = tmp_path_factory.mktemp("stages") / "fmriprep"
    fine = np.asarray(labels.dataobj).astype(int)
    coarse = fine[EVERY_THIRD]
    assert len(np.unique(coarse)) == CORTEX + 1
    affine = labels.affine @ np.diag([3, 3, 3, 1.0])
    affine[:3, 3] = (labels.affine @ [2, 2, 2, 1])[:3]
    root.mkdir()
    about = {"Name": "x", "BIDSVersion": "1.6.0", "DatasetType": "derivative", "GeneratedBy": [{"Name": "fMRIPrep"}]}
    (root / "dataset_description.json").write_text(json.dumps(about))
    for scan, values in series.items():
        person, session = scan.split("_")
        write_recording(root / person / session / "func" / f"{scan}_task-rest", values, coarse, affine)
    yield root
    shutil.rmtree(root.parent)


def write_recording(stem, values, parcels, affine):
    """Write BOLD, mask and a confounds table of motion that is never there."""
    from isal import igzip

    stem.parent.mkdir(parents=True, exist_ok=True)
    volume = np.zeros((*parcels.shape, len(values)), np.float32, order="F")
    volume[parcels > 0] = values.T[parcels[parcels > 0] - 1]
    for what, data in (("desc-preproc_bold", volume), ("desc-brain_mask", (parcels > 0).astype(np.uint8))):
        image = nibabel.Nifti1Image(data, affine)
        image.header.set_xyzt_units("mm", "sec")
        if data.ndim == 4:
            image.header.set_zooms((*image.header.get_zooms()[:3], TR))
        path = stem.parent / f"{stem.name}_space-{SPACE}_{what}.nii.gz"
        path.write_bytes(igzip.compress(image.to_bytes(), compresslevel=1))
    rows = "0\t0\n" * len(values)
    table = stem.parent / f"{stem.name}_desc-confounds_timeseries.tsv"
    table.write_text("framewise_displacement\ttrans_x\n" + rows)


@pytest.fixture(scope="module")
def finished(fmriprep, shared):
    options = ("--atlas", "Schaefer400", "--atlas-dir", shared / "atlases", *PLAIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(participant, "_report", lambda *_, **__: None)  # pages are not the point here
        return run_app(fmriprep, fmriprep.parent / "out", *options)


def identification(matrices, scans):
    """Share of scans whose most similar scan of the other session is of the same person, mean of both directions."""
    upper = np.triu_indices(CORTEX, 1)
    sessions = sorted({scan.split("_")[1] for scan in scans})
    first, second = (
        np.stack([matrices[scan][upper] for scan in sorted(scans) if scan.endswith(session)]) for session in sessions
    )
    across = np.corrcoef(first, second)[: len(first), len(first) :]
    own = np.arange(len(across))
    return float(np.mean([(across.argmax(axis=axis) == own).mean() for axis in (0, 1)]))


def test_parcellation_returns_the_real_series(finished, series):
    for scan in sorted(series)[:10]:
        written, _ = read_matrix(finished.file(scan, "stat-mean_timeseries.tsv"))
        np.testing.assert_allclose(written, z_score(series[scan]), rtol=0, atol=1e-5)


def test_identification_from_the_written_connectomes(finished, series):
    fc = {scan: np.corrcoef(values, rowvar=False) for scan, values in series.items()}
    accuracy = {}
    for ending, alpha in (("stat-pearsoncorrelation", 1.0), ("desc-power0p35", 0.35)):
        files = {path.name.partition("_task")[0]: path for path in finished.files(f"*{ending}_relmat.tsv")}
        matrices = {scan: read_matrix(files[scan])[0] for scan in series}
        accuracy[alpha] = identification(matrices, series)
        expected = {scan: spectral_power(matrix, alpha) for scan, matrix in fc.items()} if alpha < 1 else fc
        assert accuracy[alpha] == identification(expected, series)
    assert accuracy[1.0] < accuracy[0.35] == 1
