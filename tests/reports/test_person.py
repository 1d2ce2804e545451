"""The page of a participant: its verdict, its panels, the pictures of a brain and of a series."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import nibabel
import numpy as np
import pytest

from fcpower_bids.core.series import power_spectrum
from fcpower_bids.errors import DatasetError
from fcpower_bids.records import AXIAL, Slices
from fcpower_bids.reports.accounts import read_accounts
from fcpower_bids.reports.figures import (
    UNCOVERED,
    make_preview,
    paint_coverage,
    read_slices,
    shrink,
    standardise_trend,
)
from fcpower_bids.reports.panels import make_panels
from fcpower_bids.reports.person import write_pages


def panels(settings, number=0):
    accounts, _ = read_accounts(settings.output_dir, "02")
    return {panel.title: panel for panel in make_panels(accounts[number], accounts[number].views[0], settings)}


@pytest.fixture
def copied(written, tmp_path):
    """The same outputs, to be changed, and a function that writes the pages of a person."""
    shutil.copytree(written[0].output_dir, tmp_path / "out")
    settings = replace(written[0], output_dir=tmp_path / "out")

    def write(person="02"):
        made = write_pages(settings, [person])
        assert not made.failures
        return made.pages

    return settings, write


def test_a_broken_file_costs_its_panel_only_and_is_named(copied):
    settings, write = copied
    for path in (settings.output_dir / "sub-02").rglob("*ses-a*_relmat.tsv"):
        path.write_text("Node\tx\ny\tz\n")
        path.with_suffix(".npy").unlink(missing_ok=True)
    next(settings.output_dir.rglob("sub-02_ses-b*coverage_bold.json")).write_text("{")
    text = write()[0].read_text(encoding="utf-8")
    for words in ("This panel could not be drawn", "is not a numeric table", "is not valid JSON", "Power spectrum"):
        assert words in text
    assert str(settings.output_dir) not in text


def test_the_content_policy_names_the_script_and_no_address(written):
    text = written[1].read_text(encoding="utf-8")
    assert "script-src &#39;sha256-" in text
    assert "unsafe" not in text.split("<style>")[0]
    assert not [part for part in text.split('src="')[1:] if not part.startswith("data:")]


def test_spectra_and_eigenvalues_say_their_numbers(written):
    found, (account, *_) = panels(written[0]), read_accounts(written[0].output_dir, "02")[0]
    (row,) = account.quality
    assert f"{100 * row['band_leakage']:.1f} % of the cleaned power is outside the band" in found["Power spectrum"].svg
    said = found["Eigenvalues"].svg
    assert f"FC, participation ratio {row['participation_ratio']:.1f}" in said
    assert f", participation ratio {row['participation_ratio_power']:.1f}" in said


NETWORKS = ("a", "b") * 3


@pytest.fixture
def series():
    return np.random.default_rng(0).standard_normal((120, 6))


def test_the_spectrum_is_that_of_the_series_when_all_is_kept(series):
    kept = np.ones(120, dtype=bool)
    preview = make_preview(series, kept, 2.0, NETWORKS)
    frequencies, power = power_spectrum(series, 2.0)
    np.testing.assert_allclose(preview.frequencies, frequencies)
    np.testing.assert_allclose(preview.power, power.mean(axis=1))


def test_what_censored_volumes_hold_does_not_reach_the_spectrum(series):
    kept = np.ones(120, dtype=bool)
    kept[[0, 1, 40, 41, 119]] = False
    clean = make_preview(series, kept, 2.0, NETWORKS)
    spoilt = np.where(kept[:, None], series, 1e6)
    np.testing.assert_array_equal(make_preview(spoilt, kept, 2.0, NETWORKS).power, clean.power)


def test_carpet_rows_are_sorted_by_network(series):
    carpet = make_preview(series, np.ones(120, dtype=bool), 2.0, NETWORKS).carpet
    np.testing.assert_array_equal(carpet, series[:, [0, 2, 4, 1, 3, 5]].T)


def test_line_and_scale_are_those_of_the_kept_volumes(series):
    kept = np.ones(120, dtype=bool)
    kept[:5] = False
    line = 3e4 + 70 * np.arange(120)[:, None]
    raw = line + 250 * series
    raw[:5] = 1e9
    raw[:, 5] = np.nan
    standard = standardise_trend(raw, kept)
    assert np.isnan(standard[:, 5]).all()
    np.testing.assert_allclose(standard[kept][:, :5].mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(standard[kept][:, :5].std(axis=0, ddof=1), 1)
    slope = np.polynomial.polynomial.polyfit(np.flatnonzero(kept), standard[kept][:, :5], 1)[1]
    np.testing.assert_allclose(slope, 0, atol=1e-9)


def test_shrinking_averages_what_is_known_in_bins_of_equal_width():
    image = np.arange(12.0).reshape(2, 6)
    image[0, 1] = np.nan
    np.testing.assert_array_equal(shrink(image, 2, 3), [[0, 2.5, 4.5], [6.5, 8.5, 10.5]])
    widths = np.diff([0, *np.flatnonzero(np.diff(shrink(np.arange(1000.0)[None], 1, 300)[0]) > 3.4)])
    assert widths.max() <= 4
    np.testing.assert_array_equal(shrink(image, 5, 9), image)


SETTLED = 10


def slices_of(grey, brain, parcels, template):
    return Slices(
        grey[..., 0], grey[..., 0], brain, parcels, template, np.zeros(1), np.array([AXIAL]), np.array(np.nan)
    )


def test_a_parcel_below_the_limit_has_the_colour_that_says_so():
    grey = np.zeros((1, 1, 4, 3), dtype=np.uint8)
    parcels, brain = np.array([[[0, 1, 2, 3]]]), np.ones((1, 1, 4), dtype=bool)
    slices = slices_of(grey, brain, parcels, np.zeros_like(parcels))
    shown = paint_coverage(grey, slices, np.array([1.0, 0.49, np.nan]), 0.5)[0, 0]
    assert (shown[0] == 0).all()
    assert shown[1][0] > 1.5 * shown[1][2]  # yellow
    for uncovered in shown[2:]:
        np.testing.assert_allclose(uncovered, 0.65 * np.array(UNCOVERED), atol=1)


def test_the_page_tells_the_tsnr_of_the_file(troubled_demo, troubled_run):
    output, page = troubled_run.output, (troubled_run.output / "sub-01.html").read_text(encoding="utf-8")
    told = [int(text) for text in re.findall(r"cleaning, median (\d+) in the mask", page)]
    computed = []
    for kept in sorted((output / "sub-01" / "figures").glob("*_desc-slices_bold.npz")):
        name = kept.name.partition("_atlas-")[0]
        (bold,) = troubled_demo[0].rglob(f"{name}*_desc-preproc_bold.nii.gz")
        (mask,) = troubled_demo[0].rglob(f"{name}*_desc-brain_mask.nii.gz")
        image, heights = nibabel.load(bold), read_slices(kept).of(AXIAL).heights
        places = np.round((heights - image.affine[2, 3]) / image.affine[2, 2]).astype(int)
        values = image.get_fdata()[:, :, places, SETTLED:]
        brain = nibabel.load(mask).get_fdata()[:, :, places] > 0
        deviation = values.std(-1, ddof=1)
        varying = brain & (deviation > 0)
        computed.append(np.median(values.mean(-1)[varying] / deviation[varying]))
    assert len(told) == len(computed) > 1
    np.testing.assert_allclose(told, computed, atol=0.6)


def test_a_broken_picture_is_named(tmp_path):
    path = tmp_path / "x_desc-slices_bold.npz"
    assert read_slices(path) is None
    path.write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(DatasetError, match=r"slices_bold\.npz cannot be read"):
        read_slices(path)
    one = np.zeros((1, 2, 2))
    np.savez(path, **dict.fromkeys(Slices._fields, one) | {"parcels": np.zeros((1, 3, 2))})
    with pytest.raises(DatasetError, match="holds no slices"):
        read_slices(path)
