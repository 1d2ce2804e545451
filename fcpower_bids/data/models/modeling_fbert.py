"""F-BERT on its own: this file needs torch, safetensors and the two files of its folder, and nothing else.

    from modeling_fbert import FBert
    model = FBert.from_pretrained(".")
    embedding = model.embed(series, parcel_names)      # (T, P) to (d,)

Written by fcpower_bids with every model; Apache-2.0. The licence of the weights is in README.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn


class FBert(nn.Module):
    """One token per timepoint, ``[CLS]``, a transformer encoder, the ``[CLS]`` output; `config` is ``config.json``."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        d = config["d"]
        self.input_projection = nn.Linear(config["n_parcels"], d)
        self.cls_token = nn.Parameter(torch.zeros(d))
        layer = nn.TransformerEncoderLayer(
            d,
            config["heads"],
            config["ff"],
            config["dropout"],
            config["activation"],
            config["norm_eps"],
            batch_first=True,
            norm_first=config["norm_first"],
        )
        norm = nn.LayerNorm(d, eps=config["norm_eps"]) if config["final_norm"] else None
        self.encoder = nn.TransformerEncoder(layer, config["layers"], norm, enable_nested_tensor=False)

    @classmethod
    def from_pretrained(cls, folder: str | Path, revision: str | None = None) -> FBert:
        """Load ``config.json`` and ``model.safetensors`` of a folder or of OWNER/NAME on the hub, ready to embed."""
        if not Path(folder).is_dir():
            from huggingface_hub import snapshot_download  # only a download needs it

            names = ["config.json", "model.safetensors"]
            folder = snapshot_download(str(folder), revision=revision, allow_patterns=names)
        model = cls(json.loads((Path(folder) / "config.json").read_text(encoding="utf-8")))
        model.load_state_dict(load_file(Path(folder) / "model.safetensors"))
        return model.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Embed z-scored series (B, T, P), parcels in the order of ``roi_labels``: (B, d)."""
        h, first = self.input_projection(x), self.cls_token.expand(len(x), 1, -1)
        if self.config["cls_position"]:
            h = torch.cat((first, h), dim=1)
            return self.encoder(h + self._positions(h))[:, 0]
        return self.encoder(torch.cat((first, h + self._positions(h)), dim=1))[:, 0]

    @torch.inference_mode()
    def embed(self, series: Any, parcel_names: Sequence[str]) -> Tensor:
        """Embed one cleaned recording (T, P) whose columns have these names; it is z-scored here."""
        where = {name: i for i, name in enumerate(parcel_names)}
        columns = [where[name] for name in self.config["roi_labels"]]
        x = torch.as_tensor(series, dtype=torch.float64)[:, columns]
        z = (x - x.mean(0)) / x.std(0)
        return self(z[None].to(self.cls_token.dtype))[0]

    def _positions(self, h: Tensor) -> Tensor:
        """Sines and cosines of p / 10000^(2i/d), interleaved or in halves."""
        length, d, kind = h.shape[1], h.shape[2], self.config["pe"]
        if kind == "none":
            return torch.zeros_like(h[0])
        rate = torch.exp(torch.arange(0, d, 2, dtype=torch.float64) * (-math.log(10000.0) / d))
        angle = torch.arange(length, dtype=torch.float64)[:, None] * rate
        pair = torch.stack((angle.sin(), angle.cos()), dim=1 if kind == "sinusoidal_halves" else 2)
        return pair.flatten(1).to(h)
