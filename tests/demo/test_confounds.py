import io
import re
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.demo.signals import DemoDesign, build_confounds, draw_physiology, paint_recording
from fcpower_bids.imaging.atlas import N_PARCELS

REAL = files("nilearn.interfaces.fmriprep.data")
FIRST = 2


@pytest.fixture(scope="module")
def recording(head):
    rng = np.random.default_rng(3)
    design = DemoDesign.tiny(volumes=120)
    physiology = draw_physiology(120, 0.05, 1.0, rng)
    voxels = paint_recording(head, np.zeros((120, N_PARCELS)), physiology, design, rng)
    return voxels, physiology, build_confounds(head, voxels, physiology, design)


@pytest.fixture(scope="module")
def columns(recording):
    return recording[2]


def test_names_are_among_those_of_a_real_table(columns):
    real = pd.read_csv(io.BytesIO((REAL / "test-v21_desc-confounds_timeseries.tsv").read_bytes()), sep="\t")
    names, known = ({re.sub(r"\d{2,}$", "#", name) for name in table} for table in (columns, real.columns))
    assert names <= known
    assert len(names) > 40


def test_components_are_orthonormal_high_passed_and_find_the_sources(recording):
    _, physiology, columns = recording
    cosines = np.array([value for name, value in columns.items() if name.startswith("cosine")])
    assert len(cosines) == int(2 * (120 - FIRST) * 2.5 / 128)
    for letter in "cw":
        names = [name for name in columns if name.startswith(f"{letter}_comp_cor")]
        components = np.array([columns[name] for name in names])
        assert not components[:, :FIRST].any()
        np.testing.assert_allclose(components @ components.T, np.eye(len(names)), atol=1e-5)  # written to 6 decimals
        np.testing.assert_allclose(components @ cosines.T, 0, atol=1e-5)
    first = physiology.white_matter[FIRST:, 0]
    components = np.array([columns[f"w_comp_cor_{index:02d}"][FIRST:] for index in range(5)])
    assert np.linalg.norm(components @ (first - first.mean())) / np.linalg.norm(first - first.mean()) > 0.9
