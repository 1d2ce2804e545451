"""What every transform promises, whoever wrote it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.transforms.connectomes import TRANSFORMS

N_PARCELS = 7


def draw_series(n_recordings=4, n_volumes=60, seed=0):
    generator = np.random.default_rng(seed)
    mixing = np.eye(N_PARCELS) + 0.3 * generator.standard_normal((N_PARCELS, N_PARCELS))
    return generator.standard_normal((n_recordings, n_volumes, N_PARCELS)) @ mixing


def recordings_for(transform, series):
    return series if transform.needs == "series" else np.stack([pearson_connectivity(one) for one in series])


def drop_parcel(recordings, needs, parcel):
    recordings = recordings.copy()
    recordings[:, :, parcel] = np.nan
    if needs == "connectivity":
        recordings[:, parcel] = np.nan
    return recordings


@pytest.fixture(params=TRANSFORMS)
def transform(request):
    return TRANSFORMS[request.param]()


@pytest.fixture
def recordings(transform):
    return recordings_for(transform, draw_series())


def test_shape_type_and_symmetry(transform, recordings):
    result = transform.fit(recordings).transform(recordings)
    assert result.shape == (4, N_PARCELS, N_PARCELS)
    assert result.dtype == np.float64
    assert np.isfinite(result).all()
    np.testing.assert_array_equal(result, np.swapaxes(result, 1, 2))


def test_lists_arrays_and_fit_transform_agree(transform, recordings):
    expected = transform.fit(recordings).transform(recordings)
    np.testing.assert_array_equal(replace(transform).fit_transform(list(recordings)), expected)


def test_reordered_parcels_reorder_the_result(transform, recordings):
    order = np.random.default_rng(1).permutation(N_PARCELS)
    reordered = recordings[:, :, order] if transform.needs == "series" else recordings[:, order][:, :, order]
    expected = replace(transform).fit_transform(recordings)[:, order][:, :, order]
    result = replace(transform).fit_transform(reordered)
    if "cholesky" not in transform.label:
        np.testing.assert_allclose(result, expected, atol=1e-9)
    else:
        assert np.abs(result - expected).max() > 1e-3


def test_uncovered_parcels_stay_missing_and_touch_nobody(transform, recordings):
    holed = drop_parcel(recordings, transform.needs, 2)
    kept = np.delete(np.arange(N_PARCELS), 2)
    without = recordings[:, :, kept] if transform.needs == "series" else recordings[:, kept][:, :, kept]
    result = replace(transform).fit_transform(holed)
    assert np.isnan(result[:, 2]).all()
    assert np.isnan(result[:, :, 2]).all()
    np.testing.assert_allclose(result[:, kept][:, :, kept], replace(transform).fit_transform(without), atol=1e-12)


def test_input_is_left_alone(transform, recordings):
    before = recordings.copy()
    transform.fit(recordings).transform(recordings)
    transform.metadata(recordings[0])
    np.testing.assert_array_equal(recordings, before)


def test_stateless_ones_need_neither_company_nor_fit(transform, recordings):
    if transform.stateless:
        batch = transform.transform(recordings)
        alone = np.concatenate([replace(transform).transform([recording]) for recording in recordings])
        np.testing.assert_array_equal(alone, batch)
    else:
        with pytest.raises(ValueError, match="fit"):
            transform.transform(recordings)


def test_label_and_entities_are_bids(transform):
    assert transform.label.isascii()
    assert transform.label.isalnum()
    for key, value in transform.entities:
        assert key in ("stat", "desc")
        assert value.isascii()
        assert value.isalnum()


def test_metadata_goes_into_a_sidecar(transform, recordings):
    metadata = transform.fit(recordings).metadata(recordings[0])
    assert json.loads(json.dumps(metadata, allow_nan=False)) == metadata
    assert all(key[0].isupper() for key in metadata)


def test_metadata_of_an_incomplete_recording(transform, recordings):
    holed = drop_parcel(recordings, transform.needs, 2)
    json.dumps(transform.fit(holed).metadata(holed[0]), allow_nan=False)


def test_broken_recordings_are_refused(transform, recordings):
    transform.fit(recordings)
    broken = recordings[:1].copy()
    broken[0, 1, 3] = broken[0, 3, 1] = np.nan
    with pytest.raises(ValueError, match="counted from 0"):
        transform.transform(broken)
    with pytest.raises(ValueError, match="no recording"):
        transform.transform([])


def test_outputs_have_different_names():
    entities = [TRANSFORMS[name]().entities for name in TRANSFORMS]
    assert len(set(entities)) == len(entities)
