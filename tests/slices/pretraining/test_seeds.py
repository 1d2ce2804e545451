"""`pretrain --seeds`: runs in folders of their own, each as if it had been alone, and their spread."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.slices.pretraining.run_state import SPREAD
from tests.running import as_copied
from tests.slices.pretraining.conftest import made_recordings
from tests.slices.pretraining.outputs import plant_outputs, run_pretrain


def alignment(folder) -> pd.DataFrame:
    return pd.read_csv(folder / "alignment.tsv", sep="\t", na_values="n/a").set_index("map")


def test_runs_stand_side_by_side_and_one_page_has_their_spread(tmp_path, capsys):
    plant_outputs(tmp_path, made_recordings())
    assert run_pretrain(tmp_path, "--seeds", "0", "3") == 0
    folders = [tmp_path / "out" / "encoder" / f"seed-{seed}" for seed in (0, 3)]
    each = [alignment(folder) for folder in folders]
    assert run_pretrain(tmp_path, "--corpus", tmp_path / "out" / "corpus", "--random-seed", "3", out="alone") == 0
    pd.testing.assert_frame_equal(alignment(tmp_path / "alone" / "encoder"), each[1])
    assert (each[0].loc["model"] != each[1].loc["model"]).any()
    spread = pd.read_csv(tmp_path / "out" / "encoder" / "seeds.tsv", sep="\t", na_values="n/a").set_index("map")
    assert list(spread.index) == list(each[0].index)
    assert (spread["runs"] == 2).all()
    for name in SPREAD:
        both = np.array([one[name] for one in each])
        np.testing.assert_allclose(spread[f"{name}_mean"], both.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(spread[f"{name}_sd"], both.std(axis=0, ddof=1), atol=1e-12)
    page = as_copied((tmp_path / "out" / "pretrain.html").read_text())
    own = spread.loc["model"]
    assert f"{own['cka_debiased_mean']:.3f}, standard deviation {own['cka_debiased_sd']:.3f}" in page
    assert "seed 3" in page
    assert not (tmp_path / "out" / "encoder" / "model").exists(), "none of the seeds is chosen"
    capsys.readouterr()
    assert run_pretrain(tmp_path, "--seeds", "-1") == 2
    assert "--seeds must be 0 or more" in capsys.readouterr().err


def test_the_closed_form_has_a_spread_too_and_each_unproven_model_counts(tmp_path, capsys):
    plant_outputs(tmp_path, made_recordings())
    words = ("--method", "closed-form", "--require", "closed-form", "--seeds", "0", "1")
    assert run_pretrain(tmp_path, *words) == 0
    spread = pd.read_csv(tmp_path / "out" / "encoder" / "seeds.tsv", sep="\t", na_values="n/a").set_index("map")
    assert spread.loc["model", "cka_debiased_mean"] == pytest.approx(
        np.mean([alignment(tmp_path / "out" / "encoder" / f"seed-{k}").loc["model", "cka_debiased"] for k in (0, 1)])
    )
    assert "0 of 2 models are proven" in as_copied((tmp_path / "out" / "pretrain.html").read_text())


def test_seeds_share_the_teacher_kernel_of_a_public_corpus(tmp_path):
    """It is computed once, and lies beside the folders of the seeds."""
    plant_outputs(tmp_path, made_recordings())
    assert run_pretrain(tmp_path, "--public-corpus", tmp_path / "public", level="pack") == 0
    assert run_pretrain(tmp_path, "--corpus", tmp_path / "public", "--seeds", "0", "3", out="new") == 0
    encoder = tmp_path / "new" / "encoder"
    assert [path.parent for path in encoder.rglob("teacher_kernel.safetensors")] == [encoder]
    assert run_pretrain(tmp_path, "--corpus", tmp_path / "public", "--random-seed", "3", out="alone") == 0
    pd.testing.assert_frame_equal(alignment(tmp_path / "alone" / "encoder"), alignment(encoder / "seed-3"))
