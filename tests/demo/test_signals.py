"""What a recording of the demo holds: its design, people, series, voxels and confounds."""

from __future__ import annotations

import io
import re
from importlib.resources import files

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from nilearn.image import resample_to_img

from fcpower_bids.demo import signals
from fcpower_bids.demo.dataset import LOADINGS, draw_connectome, draw_people, draw_person, draw_population
from fcpower_bids.demo.signals import (
    DemoDesign,
    build_confounds,
    draw_clean_series,
    draw_physiology,
    measure_displacement,
    paint_recording,
)
from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas import N_PARCELS, builtin_atlas


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"subjects": 0}, "participant"),
        ({"sessions": 27}, "lettered"),
        ({"volumes": 10}, "at least 40"),
        ({"repetition_time": 9.0}, "repetition time"),
        ({"noise": -1.0}, "noise"),
        ({"space": "fsLR"}, "MNI152NLin6Asym"),
        ({"seed": -1}, "seed"),
        ({"seed": -1, "runs": 0}, "run; the seed"),
    ],
)
def test_impossible_designs_are_refused_in_one_sentence(changes, words):
    with pytest.raises(UsageError, match=words):
        DemoDesign(**changes)
    DemoDesign(sessions=26, volumes=40, repetition_time=0.1, noise=0)  # the ends are possible


def test_connectomes_are_correlation_matrices_of_full_rank():
    rng = np.random.default_rng(0)
    population, people = draw_population(rng), draw_people(20, rng)
    connectomes = np.array([draw_connectome(population, draw_person(rng), factor, rng) for factor in people.factor])
    np.testing.assert_allclose(connectomes[:, range(N_PARCELS), range(N_PARCELS)], 1)
    np.testing.assert_allclose(connectomes, connectomes.swapaxes(1, 2), atol=1e-14)
    assert np.linalg.eigvalsh(connectomes).min() > 1e-4


def test_measures_share_the_factor_as_their_loadings_say():
    people = draw_people(600, np.random.default_rng(1))
    for name, loading in LOADINGS.items():
        scores = np.array(people.cognition[name][:-1], dtype=float)
        assert np.corrcoef(scores, people.factor[:-1])[0, 1] == pytest.approx(loading, abs=0.05)
    assert abs(np.corrcoef(people.participants["null_score"], people.factor)[0, 1]) < 3 / np.sqrt(600)
    assert people.cognition["attention"][-1] == "n/a"


def test_siblings_share_half_of_the_factor():
    people = draw_people(3000, np.random.default_rng(2))
    families = np.array(people.participants["family_id"])
    names, sizes = np.unique(families, return_counts=True)
    assert sorted(set(sizes)) == [1, 2]
    assert sizes.sum() - (sizes == 1).sum() == 1000
    pairs = np.array([people.factor[families == name] for name in names[sizes == 2]])
    assert np.corrcoef(pairs.T)[0, 1] == pytest.approx(0.5, abs=0.1)
    assert people.factor.std() == pytest.approx(1)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_clean_series_have_the_asked_correlation_and_deviation(rng):
    target = np.array([[1.0, 0.6, -0.3], [0.6, 1.0, 0.1], [-0.3, 0.1, 1.0]])
    series = draw_clean_series(target, 20_000, 2.0, rng)
    # In the band there are about 2 * 20000 * 2 * 0.067 = 5360 independent numbers per parcel.
    np.testing.assert_allclose(np.corrcoef(series.T), target, atol=4 / np.sqrt(5360))
    np.testing.assert_allclose(series.std(axis=0), signals.SIGNAL_SD, rtol=0.05)


def test_clean_series_lie_in_the_band(rng):
    series = draw_clean_series(np.eye(2), 400, 2.0, rng)
    power = np.abs(np.fft.rfft(series, axis=0)) ** 2
    frequencies = np.fft.rfftfreq(400, 2.0)
    inside = (frequencies > 0.01) & (frequencies < 0.08)
    # What is outside comes from rounding to whole numbers alone.
    assert power[~inside].sum() / power.sum() < signals.QUANTUM**2 / 12 / signals.SIGNAL_SD**2 * 1.5


def test_displacement_of_a_known_move():
    motion = np.zeros((4, 6))
    motion[2] = [0.1, -0.2, 0.0, 0.0, 0.002, 0.0]
    np.testing.assert_allclose(measure_displacement(motion), [0, 0, 0.4, 0.4])


def test_grid_holds_every_parcel_and_both_tissues(head):
    sizes = np.bincount(head.parcel, minlength=N_PARCELS + 1)
    assert sizes[1:].min() >= 20
    np.testing.assert_array_equal(sizes[1:31], sizes[31:])
    assert head.white_matter.sum() > 300
    assert head.csf.sum() > 100
    assert not (head.white_matter & (head.parcel > 0)).any()
    assert nib.aff2axcodes(head.affine) == ("R", "A", "S")


def test_labels_are_what_nilearn_resamples_to_the_grid(head, tmp_path):
    target = nib.Nifti1Image(head.brain.astype(np.uint8), head.affine)
    atlas = nib.load(builtin_atlas("MNI152NLin6Asym", tmp_path).image)
    resampled = resample_to_img(atlas, target, interpolation="nearest", force_resample=True, copy_header=True)
    labels = np.asarray(resampled.dataobj)
    np.testing.assert_array_equal(labels[head.brain], head.parcel)
    assert not labels[~head.brain].any()


REAL = files("nilearn.interfaces.fmriprep.data")
FIRST = 2


@pytest.fixture(scope="module")
def recording(head):
    rng = np.random.default_rng(3)
    design = DemoDesign.tiny(volumes=120)
    physiology = draw_physiology(120, 0.05, 1.0, rng)
    voxels = paint_recording(head, np.zeros((120, N_PARCELS)), physiology, design.noise, rng)
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
