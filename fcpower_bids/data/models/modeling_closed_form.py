"""A closed-form student on its own: this file needs numpy, safetensors and the two files of its folder.

    from modeling_closed_form import ClosedForm
    model = ClosedForm.from_pretrained(".")
    embedding = model.embed(series, parcel_names)      # (T, P) to (d,)

Written by fcpower_bids with every model; Apache-2.0. The licence of the weights is in README.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file


class ClosedForm:
    """Edges of FC^alpha, centred and of unit norm, less their mean, times weights.

    `config`: the content of ``config.json``. `mean` (E,). `weights` (E, d).
    """

    def __init__(self, config: dict[str, Any], mean: np.ndarray, weights: np.ndarray) -> None:
        self.config, self.mean, self.weights = config, mean, weights

    @classmethod
    def from_pretrained(cls, folder: str | Path, revision: str | None = None) -> ClosedForm:
        """Load ``config.json`` and ``model.safetensors`` of a folder or of OWNER/NAME on the hub, ready to embed."""
        if not Path(folder).is_dir():
            from huggingface_hub import snapshot_download  # only a download needs it

            names = ["config.json", "model.safetensors"]
            folder = snapshot_download(str(folder), revision=revision, allow_patterns=names)
        arrays = load_file(Path(folder) / "model.safetensors")
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        return cls(config, arrays["mean"], arrays["weights"])

    def embed(self, series: Any, parcel_names: Sequence[str]) -> np.ndarray:
        """Embed one cleaned recording (T, P) whose columns have these names."""
        where = {name: i for i, name in enumerate(parcel_names)}
        fc = np.corrcoef(np.asarray(series, dtype=np.float64)[:, [where[name] for name in self.config["roi_labels"]]].T)
        values, vectors = np.linalg.eigh(fc)
        kept = values > 1e-10 * values[-1]
        raised = (vectors[:, kept] * values[kept] ** self.config["exponent"]) @ vectors[:, kept].T
        edges = raised[np.triu_indices(len(fc), 1)]
        edges -= edges.mean()
        return (edges / np.linalg.norm(edges) - self.mean) @ self.weights
