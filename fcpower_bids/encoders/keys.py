"""Key names of foreign F-BERT files, translated into those of `fcpower_bids.encoders.fbert.FBert`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

STEM = {
    "input_projection": ("input_proj", "projection", "proj", "embed", "embedding", "token_embedding"),
    "cls_token": ("cls", "cls_embedding"),
}
HF_LAYER = {
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "linear1",
    "output.dense": "linear2",
    "output.LayerNorm": "norm2",
}
HF_QKV = re.compile(
    r"(?P<layer>encoder\.layers\.\d+)\.attention\.self\.(?P<part>query|key|value)\.(?P<kind>weight|bias)"
)


def rename_keys(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Translate the key names of ``nn.TransformerEncoder`` files and of HF-BERT files into those of `FBert`.

    Unknown names are passed through, so that the strict comparison can name them.
    """
    import torch

    renamed: dict[str, Tensor] = {}
    parts: dict[str, dict[str, Tensor]] = {}
    for key, value in state.items():
        name = _rename(key)
        if match := HF_QKV.fullmatch(name):
            stacked = f"{match['layer']}.self_attn.in_proj_{match['kind']}"
            parts.setdefault(stacked, {})[match["part"]] = value
        else:
            renamed[name] = value.flatten() if name == "cls_token" else value
    for name, qkv in parts.items():
        if len(qkv) == 3:
            renamed[name] = torch.cat([qkv["query"], qkv["key"], qkv["value"]])
    return renamed


def _rename(key: str) -> str:
    key = re.sub(r"^(?:module\.|model\.|bert\.|student\.)+", "", key)
    key = re.sub(r"^(?:encoder\.|transformer\.)?layers?\.(?=\d)", "encoder.layers.", key)
    key = re.sub(r"^transformer\.norm\.", "encoder.norm.", key)
    for ours, theirs in STEM.items():
        key = re.sub(rf"^(?:{'|'.join(theirs)})(?=$|\.)", ours, key)
    for theirs_layer, ours_layer in HF_LAYER.items():
        key = re.sub(rf"(?<=\d\.){re.escape(theirs_layer)}(?=\.)", ours_layer, key)
    return key
