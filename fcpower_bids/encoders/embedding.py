"""From recordings to embeddings: match parcels by name, z-score, read whole or by windows."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.connectome import ParcelError, standardise
from fcpower_bids.encoders import FACTS, HUB_IDS, LICENCE, NOTICE, RANDOM, name_of_weights
from fcpower_bids.encoders.checkpoints import (
    WEIGHTS,
    CheckpointError,
    EncoderUnavailable,
    ModelCard,
    load_weights,
    locate,
    read_config,
    read_fields,
    resolved,
)
from fcpower_bids.encoders.fbert import SIZES, FBert, FBertConfig, count_parameters
from fcpower_bids.errors import RecordingError, UsageError
from fcpower_bids.records import PLACE
from fcpower_bids.store import digest_of

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)
Read = Literal["sequence", "windows"]
Array = NDArray[np.float32]
READ_SECONDS = 144.0
"""Of a window of the ``windows`` read, as in the paper (Table scaling); windows follow each other."""
FEWEST_VOLUMES = 2
E = TypeVar("E", bound=Any)


def ready(encoder: E, parcel_names: Sequence[str] | None) -> E:
    """Compare the parcels at loading, once, instead of at the first recording. Raises CheckpointError."""
    try:
        if parcel_names is not None:
            encoder.columns(parcel_names)
    except RecordingError as error:
        raise CheckpointError(str(error)) from None
    return encoder


def positions_of(parcel_names: Sequence[str]) -> dict[str, int]:
    """Number parcels by name. Raises RecordingError."""
    where = {name: i for i, name in enumerate(parcel_names)}
    if len(where) != len(parcel_names):
        raise RecordingError("The recording has two parcels of the same name; parcels are matched by name.")
    return where


@cache
def _warn_once(caution: str) -> None:
    logger.warning(caution)


@dataclass(frozen=True)
class SeriesEncoder:
    """A model of series, F-BERT with its weights."""

    name: str  # that of `encoders.ENCODERS` it was loaded as
    model: FBert  # in evaluation mode
    card: ModelCard  # parcels, window, range of repetition times, licence
    source: Mapping[str, Any]  # where the weights came from: ``weights``, ``revision``, ``sha256``

    def embed(
        self,
        series: Sequence[ArrayLike],
        parcel_names: Sequence[str],
        repetition_time: float | Sequence[float],
        read: Read = "sequence",
    ) -> Array:
        """Embed recordings, repetition time in seconds: (n, d). Raises RecordingError, UsageError."""
        if read not in ("sequence", "windows"):
            raise UsageError(f"There is no read called '{read}'. Choose from: sequence, windows.")
        if not len(series):
            raise UsageError("There is no recording to embed.")
        columns = self.columns(parcel_names)
        times = np.broadcast_to(np.asarray(repetition_time, np.float64), len(series))
        vectors = []
        for array, time in zip(map(np.asarray, series), times.tolist(), strict=True):
            if array.ndim != 2 or array.shape[1] != len(parcel_names):
                raise RecordingError(
                    f"A series must be volumes by {len(parcel_names)} named parcels, not of the shape {array.shape}."
                )
            vectors.append(self._embed_one(array, time, columns, read))
        return np.stack(vectors)

    def _embed_one(self, series: NDArray[Any], time: float, columns: NDArray[np.intp], read: Read) -> Array:
        """Mean over windows that follow each other, which are the whole recording where it is one sequence: (d,)."""
        if not (np.isnan(time) or (np.isfinite(time) and time > 0)):
            raise RecordingError(f"A repetition time of {time} s is impossible; correct the metadata of the recording.")
        low, high = self.card.tr_range or (-np.inf, np.inf)
        if time < low - 1e-6 or time > high + 1e-6:
            _warn_once(
                f"Repetition time {time:g} s is outside {low:g}-{high:g} s, the range that {self.name} was trained on."
            )
        x = self._prepare(series, columns)
        length = len(x)
        if read == "windows":
            length = self.card.read_window if np.isnan(time) else max(2, round(READ_SECONDS / time))
        length = min(length, len(x))  # a shorter recording is one
        windows = torch.from_numpy(x[: len(x) // length * length].reshape(-1, length, x.shape[1]))
        with torch.inference_mode():
            vectors: Array = self.model(windows.to(next(self.model.parameters()))).float().cpu().numpy()
        return vectors.mean(axis=0)

    def provenance(self, read: Read = "sequence") -> dict[str, Any]:
        """Identity of the embeddings, for the sidecar."""
        card = self.card
        return {
            "name": self.name,
            **self.source,
            "n_parameters": count_parameters(self.model),
            "n_dimensions": self.model.config.d,
            "n_parcels": self.model.config.n_parcels,
            "parcellation": card.atlas,
            "read": read,
            "read_window_seconds": READ_SECONDS if read == "windows" else None,
            **{name: getattr(card, name) for name in STATED},
            "missing_parcels": "refused",
        }

    def caution(self, n_volumes: int) -> str:
        """Say that a recording is shorter than those that the encoder was trained on; nothing where it is not."""
        if n_volumes >= self.card.window:
            return ""
        return (
            f"{n_volumes} volumes are fewer than the {self.card.window} of the windows that {self.name} was trained "
            "on: the embedding is less certain."
        )

    def columns(self, parcel_names: Sequence[str]) -> NDArray[np.intp]:
        """Position in the input of each parcel of the encoder. Raises RecordingError."""
        where = positions_of(parcel_names)
        labels = self.card.roi_labels
        if len(labels) != len(parcel_names) and all(map(PLACE.fullmatch, parcel_names)):
            raise RecordingError(
                f"The {len(parcel_names)} parcels of the recording have no names, and {self.name} has {len(labels)}: "
                "which are the same cannot be told. Give the parcels of both names."
            )
        if missing := [name for name in labels if name not in where]:
            raise RecordingError(
                f"{_listed(missing)} of the {len(labels)} parcels of {self.name} are not among the "
                f"{len(parcel_names)} of the recording; use the encoder's atlas ({self.card.atlas})."
            )
        return np.array([where[name] for name in labels])

    def _prepare(self, series: NDArray[Any], columns: NDArray[np.intp]) -> Array:
        """Select, check and z-score one recording: (T, P) float32 in the encoder's order."""
        if len(series) < FEWEST_VOLUMES:
            raise RecordingError(f"The recording has {len(series)} volumes; leave it out of the embedding.")
        if caution := self.caution(len(series)):
            _warn_once(caution)
        values = series[:, columns]
        empty = np.isnan(values).all(axis=0) | (values == values[:1]).all(axis=0)
        broken = ~np.isfinite(values).all(axis=0) & ~empty
        self._refuse(np.flatnonzero(broken), "partly missing or infinite")
        self._refuse(np.flatnonzero(empty), "without data or constant")
        if len(values) == FEWEST_VOLUMES:  # of two volumes there is a z-score, and no correlation
            return ((values - values.mean(axis=0)) / values.std(axis=0, ddof=1)).astype(np.float32)
        try:
            return standardise(values).astype(np.float32)
        except ParcelError as error:
            self._refuse(error.parcels, "constant to rounding")
            raise

    def _refuse(self, parcels: Sequence[int] | NDArray[np.intp], what: str) -> None:
        if len(parcels):
            names = _listed([self.card.roi_labels[i] for i in parcels])
            raise RecordingError(f"{names} of the recording are {what}; repair or exclude the recording.")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{len(names)} parcels ({', '.join(names[:5])}{more})"


STATED = (
    *("window", "alpha", "band", "tr_range", "teacher", "selection"),
    *("verdict", "optimism", "corpus_sha256", "purpose", "licence"),
)
"""Facts of the card that the sidecar of an embedding repeats."""
RELEASED: dict[str, dict[str, Any]] = {
    HUB_IDS[name]: {**SIZES[name], "n_parcels": 450, "window": 80, "band": [0.01, 0.08], "tr_range": [0.75, 3.0]}
    for name in HUB_IDS
}
"""Facts that the cards of the released models and the paper state; activation, norms and parcels are not among them."""


def load_fbert(
    weights: str | Path | None = None,
    *,
    name: str,
    revision: str | None = None,
    seed: int = 0,
    parcel_names: Sequence[str] | None = None,
    **unused: Any,
) -> SeriesEncoder:
    """Load the model that a ``config.json`` states, or make random weights; see `encoders.load_encoder`."""
    if name == RANDOM:
        if weights is not None:
            config, card = read_config(locate(weights, revision))
        elif parcel_names is not None:
            config = FBertConfig(len(parcel_names), **SIZES["fbert-1m"])  # type: ignore[arg-type]
            card = ModelCard(tuple(parcel_names))
        else:
            raise UsageError(
                f"The encoder {RANDOM} needs the names of the parcels or a checkpoint to copy the shape of."
            )
        card = replace(card, purpose="negative control: random weights", selection="none", optimism=None, seed=seed)
        card = replace(card, training="none", trained_on=(), held_out=())
        source: dict[str, Any] = {"weights": "random", "revision": None, "sha256": None, "seed": seed}
        return ready(SeriesEncoder(name, FBert(config, seed).eval(), card, source), parcel_names)
    if weights is None:
        example = HUB_IDS.get(name, "your own checkpoint")
        raise EncoderUnavailable(
            f"No weights were given for the encoder {name}: give a checkpoint folder or a hub id ({example})."
        )
    folder = locate(weights, revision)
    config, card = read_config(folder, RELEASED.get(str(weights)) or SIZES.get(name))
    sizes = {"d": config.d, "layers": config.layers, "heads": config.heads}
    expected = {field: SIZES[name][field] for field in sizes} if name in SIZES else sizes
    if sizes != expected:  # heads too: the same tensors under another number of heads load as well, and embed otherwise
        raise CheckpointError(
            f"{folder} holds an F-BERT of width {config.d} with {config.layers} layers and {config.heads} heads, not "
            f"{name} ({', '.join(f'{field} {value}' for field, value in expected.items())}); use the encoder name "
            "'fbert' for other sizes."
        )
    if str(weights) in HUB_IDS.values():
        logger.warning(NOTICE)
        card = replace(card, licence=LICENCE)
    model, facts = config.build().eval(), folder / FACTS
    is_stated = facts.is_file() and not {"heads", "norm_first"}.isdisjoint(read_fields(facts)[1])
    load_weights(model, folder, rename_keys, stated=is_stated or str(weights) in HUB_IDS.values())
    source = {"weights": name_of_weights(weights), "revision": resolved(folder, revision)}
    source |= {"sha256": digest_of(folder / WEIGHTS)}
    source |= {"config_sha256": [digest_of(facts)]} if facts.is_file() else {}
    return ready(SeriesEncoder(name, model, card, source), parcel_names)


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
    renamed: dict[str, Tensor] = {}
    parts: dict[str, dict[str, Tensor]] = {}
    for key, value in state.items():
        name = re.sub(r"^(?:module\.|model\.|bert\.|student\.)+", "", key)
        name = re.sub(r"^(?:encoder\.|transformer\.)?layers?\.(?=\d)", "encoder.layers.", name)
        name = re.sub(r"^transformer\.norm\.", "encoder.norm.", name)
        for ours, theirs in STEM.items():
            name = re.sub(rf"^(?:{'|'.join(theirs)})(?=$|\.)", ours, name)
        for layer, ours in HF_LAYER.items():
            name = re.sub(rf"(?<=\d\.){re.escape(layer)}(?=\.)", ours, name)
        if match := HF_QKV.fullmatch(name):
            stacked = f"{match['layer']}.self_attn.in_proj_{match['kind']}"
            parts.setdefault(stacked, {})[match["part"]] = value
        else:
            renamed[name] = value.flatten() if name == "cls_token" else value
    for name, qkv in parts.items():
        if len(qkv) == 3:
            renamed[name] = torch.cat([qkv["query"], qkv["key"], qkv["value"]])
    return renamed
