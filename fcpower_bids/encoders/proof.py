"""That a checkpoint and this program compute what was written: checksums, and the embedding of a fixed series."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from fcpower_bids.encoders.fbert import FBertConfig

PROBE_LENGTH = 40
"""Timepoints of the fixed series."""
TOLERANCE = 1e-3
"""Of the norm of the embedding; other machines differ by rounding (1e-6), another number of heads by about a half."""


def probe_series(n_parcels: int) -> Tensor:
    """Make the fixed series (1, `PROBE_LENGTH`, n_parcels): uniform, mean 0, variance 1."""
    raw = np.random.PCG64(0).random_raw(PROBE_LENGTH * n_parcels) >> np.uint64(11)
    uniform = raw.astype(np.float64) * 2.0**-53
    series = ((uniform - 0.5) * 12**0.5).reshape(1, PROBE_LENGTH, n_parcels)
    return torch.from_numpy(series.astype(np.float32))


def prove(config: FBertConfig, state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return what `fault` compares."""
    model = _on_cpu(config, state)
    return {
        "tensors_sha256": _tensor_digest(model),
        "probe_embedding": [float(f"{value:.7g}") for value in _embed(model)],
    }


def fault(proof: Mapping[str, Any], config: FBertConfig, state: Mapping[str, Tensor]) -> str | None:
    """Say in what tensors, and what they compute, differ from what was written; None where they do not."""
    model = _on_cpu(config, state)
    if proof.get("tensors_sha256") != _tensor_digest(model):
        return "the tensors are not those that were written (their checksum differs from that in config.json)"
    expected, found = np.array(proof.get("probe_embedding"), dtype=np.float64), _embed(model)
    fits = expected.shape == found.shape
    if not fits or not np.linalg.norm(found - expected) <= TOLERANCE * np.linalg.norm(expected):
        return (
            "it does not compute what it did when it was written, although its tensors are intact, so config.json "
            "describes another architecture (such as another number of heads)"
        )
    return None


def _on_cpu(config: FBertConfig, state: Mapping[str, Tensor]) -> nn.Module:
    model = config.build().eval()
    model.load_state_dict({name: tensor.detach().to("cpu", torch.float32) for name, tensor in state.items()})
    return model


def _tensor_digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


@torch.inference_mode()
def _embed(model: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    embedded: np.ndarray[Any, np.dtype[np.float64]] = model(probe_series(model.config.n_parcels))[0].double().numpy()
    return embedded
