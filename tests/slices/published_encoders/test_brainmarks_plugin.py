"""The plugin against a stand-in that has the interface of brainmarks 0.1 (read from its wheel)."""

from __future__ import annotations

import importlib
import sys
import types
from typing import NamedTuple

import numpy as np
import pytest
import torch

from tests.encoders.conftest import NAMES


class Embeddings(NamedTuple):
    cls_embeds: torch.Tensor | None
    reg_embeds: torch.Tensor | None
    patch_embeds: torch.Tensor | None


@pytest.fixture
def plugin(monkeypatch):
    registered = {}
    modules = {name: types.ModuleType(name) for name in ("brainmarks", "brainmarks.models")}
    modules["brainmarks.models.base"] = types.ModuleType("brainmarks.models.base")
    modules["brainmarks.models.base"].Embeddings = Embeddings
    modules["brainmarks.models.registry"] = types.ModuleType("brainmarks.models.registry")
    modules["brainmarks.models.registry"].register_model = lambda f: registered.setdefault(f.__name__, f)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "fcpower_bids.slices.published_encoders.brainmarks_plugin", raising=False)
    importlib.import_module("fcpower_bids.slices.published_encoders.brainmarks_plugin")
    yield registered
    sys.modules.pop("fcpower_bids.slices.published_encoders.brainmarks_plugin", None)


def test_plugin_gives_the_embeddings_of_the_encoder(plugin, checkpoint, recordings):
    from fcpower_bids.encoders import load_encoder

    order = list(NAMES[::-1])
    model = plugin["fbert"](ckpt_path=str(checkpoint), column_names=order)
    x = recordings[0]
    bold = ((x - x.mean(0)) / x.std(0, ddof=1))[:, ::-1].astype(np.float32).copy()
    out = model({"bold": torch.from_numpy(bold)[None]})
    assert out.cls_embeds.shape == (1, 1, 16)
    assert out.reg_embeds is None
    assert not any(parameter.requires_grad for parameter in model.parameters())
    expected = load_encoder("fbert", checkpoint).embed([x], NAMES, 2.0)
    np.testing.assert_allclose(out.cls_embeds[:, 0].detach().numpy(), expected, rtol=0, atol=2e-6)
    assert model.__space__ == "schaefer400_tians3"
