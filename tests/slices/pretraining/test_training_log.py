"""Speed, and the optional TensorBoard log."""

from __future__ import annotations

from types import SimpleNamespace

import lightning.fabric.loggers
import pytest

from fcpower_bids.encoders.fbert import forward_flops
from fcpower_bids.errors import UsageError
from fcpower_bids.slices.pretraining import processes as training_log
from fcpower_bids.slices.pretraining.processes import Clock, open_tensorboard, step_flops
from fcpower_bids.slices.pretraining.train import pretrain
from tests.slices.pretraining.test_train import config, numbers


def test_speed_closed_form(monkeypatch):
    now = iter([10.0, 12.0, 13.0])
    monkeypatch.setattr(training_log, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    clock = Clock(100, steps=300, flops=50, limit=1000.0)
    monkeypatch.setattr(training_log, "peak_megabytes", lambda: 7.0)
    assert clock.read(110) == {"steps_per_s": 5.0, "mfu": 0.25, "peak_mb": 7.0, "seconds_left": 38.0}
    assert clock.read(112) == {"steps_per_s": 2.0, "mfu": 0.1, "peak_mb": 7.0, "seconds_left": 94.0}


def test_gradcache_costs_one_more_pass():
    model = config().model_config(10)
    assert step_flops(model, config(), 12) == 36 * forward_flops(model, 30)
    assert step_flops(model, config(microbatch=3), 12) == 48 * forward_flops(model, 30)


def test_tensorboard_gets_the_rows_of_the_log(tmp_path, pack, monkeypatch):
    seen = {}

    class Board:
        def __init__(self, folder, name, version):
            seen["folder"] = folder

        def log_metrics(self, metrics, step):
            seen[step] = metrics

    monkeypatch.setattr(lightning.fabric.loggers, "TensorBoardLogger", Board)
    pretrain(pack, tmp_path / "run", config(tensorboard=True))
    assert seen.pop("folder") == tmp_path / "run"
    log = numbers(tmp_path / "run").set_index("step")
    assert sorted(seen) == log.index.tolist()
    assert seen[8]["loss"] == pytest.approx(log.loc[8, "loss"])


def test_missing_tensorboard_is_explained(tmp_path, monkeypatch):
    def absent(*args, **kwargs):
        raise ModuleNotFoundError("tensorboard")

    monkeypatch.setattr(lightning.fabric.loggers, "TensorBoardLogger", absent)
    with pytest.raises(UsageError, match="pip install tensorboard"):
        open_tensorboard(tmp_path)
