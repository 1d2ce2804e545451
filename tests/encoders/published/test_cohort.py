"""Cohort statistics from the series of the participant level."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.encoders.published.adapters import fit_statistics, read_statistics
from fcpower_bids.encoders.published.brainlm import LABELS
from fcpower_bids.encoders.published.cohort import main, read_series_tables
from fcpower_bids.encoders.published.parcel_orders import parcel_order
from fcpower_bids.errors import RecordingError, UsageError


def write(path, names, series):
    np.savetxt(path, series, delimiter="\t", header="\t".join(names), comments="")
    return path


def test_statistics_are_pooled_over_volumes():
    rng = np.random.default_rng(0)
    series = [rng.standard_normal((length, 3)) for length in (20, 35)]
    statistics = fit_statistics(series)
    pooled = np.concatenate(series)
    np.testing.assert_allclose(statistics.median, np.median(pooled, axis=0))
    scaled = statistics.scale(pooled)
    np.testing.assert_allclose(np.percentile(scaled, 75, axis=0) - np.percentile(scaled, 25, axis=0), 1)
    with pytest.raises(RecordingError, match="at least two training recordings"):
        fit_statistics(series[:1])
    with pytest.raises(RecordingError, match="does not vary"):
        fit_statistics([np.zeros((5, 2)), np.ones((5, 2)) * [0, 1]])


def test_command_writes_a_file_by_label_whatever_the_order_of_columns(tmp_path, capsys):
    names = [f"parcel{label:03d}" for label in range(1, 425)]
    shuffle = np.random.default_rng(0).permutation(424)
    series = [np.random.default_rng(seed).standard_normal((30, 424)) + 9 for seed in range(3)]
    paths = [
        write(tmp_path / f"sub-{i}_timeseries.tsv", [names[j] for j in shuffle], one[:, shuffle])
        for i, one in enumerate(series)
    ]
    assert main(["brainlm-111m", *map(str, paths), "--folder", str(tmp_path / "aux")]) == 0
    read = read_statistics(tmp_path / "aux" / "cohort_statistics.tsv", LABELS)
    expected = fit_statistics([one - one.mean(axis=0) for one in series])
    np.testing.assert_allclose(read.iqr, expected.iqr, rtol=1e-6)
    assert main(["brainmass", *map(str, paths)]) == 2
    assert "brainmass is not fed relative to a cohort" in capsys.readouterr().err
    assert main(["brain-harmonix-f", *map(str, paths)]) == 4
    assert "use --atlas Schaefer400x17" in capsys.readouterr().err


def test_command_for_parcels_with_names(tmp_path):
    order = parcel_order("Schaefer400x17")
    rng = np.random.default_rng(0)
    paths = [write(tmp_path / f"{i}.tsv", order.names, rng.standard_normal((20, 400))) for i in range(2)]
    assert main(["brain-harmonix-f", *map(str, paths), "--folder", str(tmp_path)]) == 0
    assert len(read_statistics(tmp_path / "cohort_statistics.tsv", order.names).median) == 400


def test_tables_with_missing_parcels_are_read(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tb\n1\tn/a\n2\tn/a\n")
    names, (values,) = read_series_tables([tmp_path / "a.tsv"])
    assert names == ["a", "b"]
    assert np.isnan(values[:, 1]).all()
    (tmp_path / "b.tsv").write_text("a\tb\n1\tx\n")
    with pytest.raises(UsageError, match="is not a table of parcel series"):
        read_series_tables([tmp_path / "b.tsv"])
    (tmp_path / "c.tsv").write_text("a\tc\n1\t2\n")
    with pytest.raises(UsageError, match="has other parcels than"):
        read_series_tables([tmp_path / "a.tsv", tmp_path / "c.tsv"])
