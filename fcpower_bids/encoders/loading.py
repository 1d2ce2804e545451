"""The loaders of the registry: a name and a checkpoint to an encoder that is ready to embed."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcpower_bids.encoders import HUB_IDS, LICENCE, NOTICE, name_of_weights
from fcpower_bids.encoders.checkpoints import (
    CheckpointError,
    EncoderUnavailable,
    ModelCard,
    check_proof,
    load_strictly,
    locate,
    read_config,
    read_tensors,
    resolved,
)
from fcpower_bids.encoders.embedding import SeriesEncoder, ready
from fcpower_bids.encoders.fbert import SIZES, FBert, FBertConfig
from fcpower_bids.errors import UsageError
from fcpower_bids.store import digest_of

if TYPE_CHECKING:
    from torch import Tensor


logger = logging.getLogger(__name__)

RELEASED: dict[str, dict[str, Any]] = {
    HUB_IDS[name]: {**SIZES[name], "n_parcels": 450, "window": 80, "band": [0.01, 0.08], "tr_range": [0.75, 3.0]}
    for name in HUB_IDS
}
"""Facts that the cards of the released models and the paper state; activation, norms and parcels are not among them."""


def _load(
    weights: str | Path | None,
    name: str,
    *,
    revision: str | None = None,
    seed: int = 0,
    allow_missing_parcels: bool = False,
    parcel_names: Sequence[str] | None = None,
    aux: Sequence[Path] = (),
) -> SeriesEncoder:
    """Load the model that a ``config.json`` states; see `fcpower_bids.encoders.load_encoder`."""
    if weights is None:
        example = HUB_IDS.get(name, "your own checkpoint")
        raise EncoderUnavailable(
            f"No weights were given for the encoder {name}: give a checkpoint folder or a hub id ({example})."
        )
    folder = locate(weights, revision)
    config, card = read_config(folder, aux, RELEASED.get(str(weights)) or SIZES.get(name))
    _check_size(folder, config, name)
    if str(weights) in HUB_IDS.values():
        logger.warning(NOTICE)
        card = replace(card, licence=LICENCE)
    path = folder / "model.safetensors"
    model = config.build().eval()
    load_strictly(model, rename_keys(read_tensors(path)), str(path))
    check_proof(folder, config, model.state_dict())
    source: dict[str, Any] = {"weights": name_of_weights(weights), "revision": resolved(folder, revision)}
    source["sha256"] = digest_of(path)
    source |= {"config_sha256": [digest_of(file) for file in aux]} if aux else {}
    return ready(SeriesEncoder(name, model, card, source, allow_missing_parcels), parcel_names)


load_fbert, load_fbert_1m, load_fbert_8m = (partial(_load, name=name) for name in ("fbert", "fbert-1m", "fbert-8m"))
"""F-BERT of any size, of 850,944 parameters at 450 parcels, and of 8,069,632."""


def _check_size(folder: Path, config: FBertConfig, name: str) -> None:
    """Heads too: the same tensors under another number of heads load as well, and embed otherwise."""
    found = {"d": config.d, "layers": config.layers, "heads": config.heads}
    expected = {field: SIZES[name][field] for field in found} if name in SIZES else found
    if found != expected:
        raise CheckpointError(
            f"{folder} holds an F-BERT of width {config.d} with {config.layers} layers and {config.heads} heads, not "
            f"{name} ({', '.join(f'{field} {value}' for field, value in expected.items())}); use the encoder name "
            "'fbert' for other sizes."
        )


def load_random_init(
    weights: str | Path | None = None,
    *,
    revision: str | None = None,
    seed: int = 0,
    allow_missing_parcels: bool = False,
    parcel_names: Sequence[str] | None = None,
    aux: Sequence[Path] = (),
) -> SeriesEncoder:
    """Make the negative control: F-BERT with seeded random weights, by default those of ``fbert-1m``'s sizes."""
    if weights is not None:
        folder = locate(weights, revision)
        config, card = read_config(folder, aux)
    elif parcel_names is not None:
        config = FBertConfig(len(parcel_names), **SIZES["fbert-1m"])  # type: ignore[arg-type]
        card = ModelCard(tuple(parcel_names))
    else:
        raise UsageError("The encoder random-init needs the names of the parcels or a checkpoint to copy the shape of.")
    card = replace(card, purpose="negative control: random weights", selection="none", optimism=None, seed=seed)
    card = replace(card, training="none", trained_on=(), held_out=())
    source = {"weights": "random", "revision": None, "sha256": None, "seed": seed}
    encoder = SeriesEncoder("random-init", FBert(config, seed).eval(), card, source, allow_missing_parcels)
    return ready(encoder, parcel_names)


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
    """Translate the key names of ``nn.TransformerEncoder`` files and of HF-BERT files into those of `FBert`."""
    import torch  # large, and an extra of the installation

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
