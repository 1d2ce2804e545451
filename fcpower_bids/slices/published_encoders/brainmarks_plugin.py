"""F-BERT as a model of the benchmark suite ``brainmarks``, which finds plugins by their place in its namespace package.

Put one line into ``brainmarks/models/fbert.py`` of any folder on the Python path (a folder without ``__init__.py``)::

    from fcpower_bids.slices.published_encoders.brainmarks_plugin import *

The suite is not a dependency: this module is only imported by it.
"""

from __future__ import annotations

from typing import Any

import torch
from brainmarks.models.base import Embeddings
from brainmarks.models.registry import register_model
from torch import Tensor, nn

from fcpower_bids.encoders.loading import load_fbert

__all__ = ["FBertWrapper", "fbert"]


class FBertWrapper(nn.Module):
    """Series of the suite (B, T, 450), z-scored over each recording, to one ``[CLS]`` embedding per recording."""

    __space__ = "schaefer400_tians3"

    def __init__(self, model: nn.Module, order: Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("order", order)

    def forward(self, batch: dict[str, Tensor]) -> Embeddings:
        """Embed ``batch["bold"]``; the suite has no names of parcels, so `order` sorts its columns."""
        cls = self.model(batch["bold"][..., self.get_buffer("order")])
        return Embeddings(cls_embeds=cls[:, None], reg_embeds=None, patch_embeds=None)


@register_model
def fbert(ckpt_path: str, column_names: list[str], revision: str | None = None, **unused: Any) -> FBertWrapper:
    """Build the model from a checkpoint and the names of the suite's columns (Schaefer-400, then Tian S3)."""
    encoder = load_fbert(ckpt_path, revision=revision, parcel_names=column_names)
    order = torch.tensor([column_names.index(name) for name in encoder.card.roi_labels])
    return FBertWrapper(encoder.model, order).requires_grad_(False)
