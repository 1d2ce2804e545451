"""Steps that all published encoders share: match parcels, check, resample, cut into windows, average, account."""

from __future__ import annotations

import csv
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.encoders import FURTHER, PUBLISHED, further_files
from fcpower_bids.encoders.checkpoints import CheckpointError, EncoderUnavailable, misfits, read_tensors
from fcpower_bids.encoders.embedding import Read, positions_of, ready
from fcpower_bids.encoders.fbert import count_parameters
from fcpower_bids.errors import RecordingError, UsageError
from fcpower_bids.schema import EXACT
from fcpower_bids.store import digest_of

logger = logging.getLogger(__name__)

# --- The orders in which published encoders expect their parcels ------------------------------------------------------
# Parcels are found by region name, never by position. The same 400 parcels of Schaefer 2018 come with 7- and 17-network
# names, in two orders, and were renamed between releases. The tables in ``data/parcel_orders`` hold every spelling of
# each parcel: which name stands for which parcel was found by centroid (MNI, 2 mm; matched parcels are less than 0.6 mm
# apart, the next nearest at least 4.9 mm).


Columns = NDArray[np.intp]
BUCKNER = tuple(
    f"Buckner7_{network}" for network in ("Vis", "SomMot", "DorsAttn", "SalVentAttn", "Limbic", "Cont", "Default")
)


@dataclass(frozen=True)
class ParcelOrder:
    """Parcels of one atlas in one order."""

    atlas: str  # short name of the atlas, as for ``--atlas``
    # complete lists of names, each in this order; a recording must use one list throughout
    spellings: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The current spelling."""
        return self.spellings[0]

    def __len__(self) -> int:
        return len(self.names)

    def match(self, names: Sequence[str]) -> Columns:
        """Position in `names` of each parcel of this order. Raises RecordingError."""
        where = positions_of(names)
        best = max(self.spellings, key=lambda spelling: sum(name in where for name in spelling))
        missing = [name for name in best if name not in where]
        # All names of Schaefer 100 are names of other parcels in Schaefer 400, and those of 424 parcels without names
        # are among those of 500: more of a kind is another atlas.
        kinds = {match[0] for name in best if (match := KIND.match(name))}
        others = [name for name in names if (match := KIND.match(name)) and match[0] in kinds and name not in best]
        if not missing and not others:
            return np.array([where[name] for name in best])
        wrong, how = missing or others, " as an image without a table of names" * (self.atlas == "A424")
        what = "are not among" if missing else "would be found, but others of the same kind are too among"
        raise RecordingError(
            f"{len(missing) or len(self)} of the {len(self)} parcels of {self.atlas} {what} the {len(names)} of the "
            f"recording ({', '.join(wrong[:3])}{', ...' if len(wrong) > 3 else ''}); use --atlas {self.atlas}{how}."
        )


KIND = re.compile(r"\d+Networks(?=_)|parcel(?=\d+$)|(?=\d+$)")
"""What begins the names of one kind: of Schaefer's parcels, and of those without names."""


@cache
def parcel_order(atlas: str) -> ParcelOrder:
    """Return the order of a known atlas. Raises UsageError."""
    if atlas in ("Schaefer450", "Schaefer450x17"):
        first, second = parcel_order("TianS3"), parcel_order(atlas.replace("450", "400"))
        return ParcelOrder(atlas, tuple((*first.names, *names) for names in second.spellings))
    if atlas == "A424":
        forms = ("parcel{:03d}", "parcel{:04d}", "{}")
        return ParcelOrder(atlas, tuple(tuple(map(form.format, range(1, 425))) for form in forms))
    if atlas == "Buckner7":
        return ParcelOrder(atlas, (BUCKNER,))
    if atlas == "TianS3":
        return ParcelOrder(atlas, (tuple(row["name"] for row in _rows("TianS3")),))
    if atlas not in ("Schaefer100", "Schaefer400", "Schaefer400x17"):
        raise UsageError(f"There is no parcel order called '{atlas}'.")
    index = "index17" if atlas.endswith("x17") else "index7"
    rows = sorted(_rows(atlas.removesuffix("x17")), key=lambda row: int(row[index]))
    spelled = ("name7", "name7_before", "name17", "name17_before")
    columns = sorted((column for column in spelled if column in rows[0]), key=lambda c: index[5:] not in c)
    return ParcelOrder(atlas, tuple(tuple(row[column] for row in rows) for column in columns))


def _rows(table: str) -> list[dict[str, str]]:
    text = (files("fcpower_bids") / "data" / "parcel_orders" / f"{table}.tsv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t"))


# --- What all encoders do ---------------------------------------------------------------------------------------------


HF_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class PublishedEncoder(ABC):
    """A published encoder with the weights the user supplied; one subclass per model."""

    # how its authors feed it
    name: ClassVar[str]  # that of `encoders.PUBLISHED`
    url: ClassVar[str]  # where model and weights were published
    size: ClassVar[Any]  # that of the published weights
    atlas: ClassVar[str]  # its parcels, as for ``--atlas``
    n_parcels: ClassVar[int]  # how many they are
    n_dimensions: ClassVar[int]  # length of the embedding
    repetition_time: ClassVar[float | None] = None  # seconds between the volumes it was trained on; None for any
    tolerance: ClassVar[float] = 0.12  # repetition times this close (relative) are taken as they are
    frames: ClassVar[int | None] = None  # volumes of a window; None if it takes the whole recording
    band: ClassVar[tuple[float, float] | None] = None  # pass-band of its training series in Hz, where filtered

    model: nn.Module  # in evaluation mode
    source: Mapping[str, Any] = field(default_factory=dict)  # paths and sha256 of weights and auxiliary files
    protocol: str = "own"  # one of "own", "paper": fed as its authors feed it, or as in the comparison of the paper

    @classmethod
    @abstractmethod
    def make(cls, path: Path, aux: Mapping[str, Path], size: Any) -> PublishedEncoder:
        """Make the encoder from weights and the files of `FURTHER`. Raises CheckpointError."""

    @abstractmethod
    def prepare(self, series: FloatArray, repetition_time: float) -> Tensor:
        """Turn one recording (T, P), in the order of the model, into its windows (n, ...)."""

    def columns(self, parcel_names: Sequence[str]) -> Columns:
        """Position in the input of each parcel of the model, -1 for one it can do without. Raises RecordingError."""
        return parcel_order(self.atlas).match(parcel_names)

    @torch.inference_mode()
    def embed(
        self,
        series: Sequence[ArrayLike],
        parcel_names: Sequence[str],
        repetition_time: float | Sequence[float],
        read: Read = "sequence",
    ) -> NDArray[np.float32]:
        """Embed recordings, repetition time in seconds: the mean over windows (n, d). Raises RecordingError."""
        columns = self.columns(parcel_names)
        times = np.broadcast_to(np.asarray(repetition_time, np.float64), len(series))
        vectors = []
        for recording, time in zip(series, times.tolist(), strict=True):
            windows = self.prepare(self.select(recording, columns), time)
            total = sum(self.model(windows[i : i + 1])[0] for i in range(len(windows)))  # one at a time: bounded memory
            vectors.append((total / len(windows)).numpy())  # type: ignore[union-attr]
        return np.stack(vectors)

    def provenance(self, read: Read = "sequence") -> dict[str, Any]:
        """Identity of the embeddings, for the sidecar."""
        return {
            "name": self.name,
            **self.source,
            "licence": PUBLISHED[self.name],
            "source": self.url,
            "n_parameters": count_parameters(self.model),
            "n_dimensions": self.n_dimensions,
            "n_parcels": self.n_parcels,
            "parcellation": self.atlas,
            "protocol": self.protocol,
            "repetition_time": self.target_time,
            "window": self.frames,
            "band": self.band,
            "read": f"{self.reading} ({self.protocol} protocol)",
            "missing_parcels": "refused",
        }

    @property
    def reading(self) -> str:
        """Part of a recording that is read, in words."""
        return "whole recording" if self.frames is None else f"windows of {self.frames} volumes{self._apart}"

    @property
    def _apart(self) -> str:
        return f" {self.target_time:g} s apart" if self.target_time else ""

    @property
    def target_time(self) -> float | None:
        """Repetition time that recordings are resampled to; None where volumes are taken as they are."""
        return self.repetition_time if self.protocol == "own" else None

    def select(self, series: ArrayLike, columns: Columns) -> FloatArray:
        """Take the parcels of the model from one recording: (T, P) float64, 0 for parcels it does without."""
        values = np.asarray(series, np.float64)
        if values.ndim != 2 or values.shape[1] <= columns.max():
            raise RecordingError(f"A series must be volumes by named parcels, not of the shape {values.shape}.")
        chosen = np.where(columns >= 0, values[:, columns], 0.0)
        if n := int((~np.isfinite(chosen).all(axis=0)).sum()):
            raise RecordingError(
                f"{n} parcels that {self.name} needs are missing, in part or whole, or infinite; leave the "
                "recording out."
            )
        return chosen

    def resampled(self, series: FloatArray, repetition_time: float) -> FloatArray:
        """Bring a recording to the repetition time of the model, or leave it. Raises RecordingError."""
        if repetition_time <= 0 or repetition_time >= 20:
            raise RecordingError(f"A repetition time of {repetition_time:g} s cannot be; give it in seconds.")
        target = self.target_time
        if target is None:
            return series
        if np.isnan(repetition_time):
            raise RecordingError(
                f"The repetition time is not known, and {self.name} needs it; state it where the series came "
                "from (repetition_time of a list)."
            )
        if abs(repetition_time / target - 1) <= self.tolerance:
            return series
        if repetition_time > target:
            as_they_are = replace(self, protocol="paper").target_time is None
            remedy = "set encoder_protocol to paper to feed them as they are" if as_they_are else "leave it out"
            raise RecordingError(
                f"{self.name} was trained on volumes {target:g} s apart and those of the recording are "
                f"{repetition_time:g} s apart; {remedy}."
            )
        return resample(series, repetition_time, target)

    def windows(self, series: FloatArray, frames: int, number: int = 0) -> FloatArray:
        """Cut (T, P) into windows (n, frames, P), evenly spread, the first at the start and the last at the end.

        `number`: how many; 0 for as many as hold all volumes. Raises RecordingError.
        """
        if len(series) < frames:
            raise RecordingError(
                f"The recording has {len(series)} volumes{self._apart} and {self.name} needs {frames}; leave it out of "
                "the embedding."
            )
        starts = np.linspace(0, len(series) - frames, number or -(-len(series) // frames)).astype(int)
        return np.stack([series[start : start + frames] for start in starts])

    @classmethod
    def load(
        cls,
        weights: str | Path | None,
        *,
        protocol: str = "own",
        parcel_names: Sequence[str] | None = None,
        size: Any = None,
        **unused: Any,
    ) -> PublishedEncoder:
        """Load the encoder; see `fcpower_bids.encoders.load_encoder`."""
        if protocol not in ("own", "paper"):
            raise UsageError(f"There is no encoder protocol called '{protocol}'. Choose from: own, paper.")
        path = find_weights(cls.name, weights)
        files = further_files(cls.name, path)
        if absent := [file for file in FURTHER.get(cls.name, ()) if file not in files]:
            raise UsageError(
                f"{cls.name} needs {absent[0]} beside {path.name} in {path.parent}: it comes with the model, or is "
                "made as docs/encoder.md says."
            )
        encoder = cls.make(path, files, size or cls.size)
        further = {file: digest_of(extra) for file, extra in files.items()}
        source = {"weights": path.name, "sha256": digest_of(path), "aux_sha256": further}
        logger.warning("Licence of the weights of %s: %s. See %s.", cls.name, PUBLISHED[cls.name], cls.url)
        return ready(replace(encoder, source=source, protocol=protocol), parcel_names)


# --- Files of others ------------------------------------------------------------------------------------------------


def find_weights(name: str, weights: str | Path | None) -> Path:
    """Weights file of an encoder. Raises EncoderUnavailable, CheckpointError."""
    if weights is None:
        raise EncoderUnavailable(f"No weights were given for the encoder {name}: download them and give their path.")
    path = Path(weights).expanduser()
    if path.is_dir():
        inside = [path / file for file in HF_WEIGHTS if (path / file).is_file()]
        if not inside:
            raise CheckpointError(f"{path} holds neither {' nor '.join(HF_WEIGHTS)}; give the weights file itself.")
        return inside[0]
    if not path.is_file():
        raise CheckpointError(f"There is no weights file {path}; download the weights of {name} and give their path.")
    return path


def read_state(path: Path, nested: str | None = None, prefix: str = "") -> dict[str, Tensor]:
    """Read the tensors of one model from a foreign file. Raises CheckpointError."""
    state: Any = read_tensors(path)
    if nested is not None:
        state = state.get(nested) if isinstance(state, Mapping) else None
    named = state.items() if isinstance(state, Mapping) else ()
    plain = {str(key).removeprefix("module."): value for key, value in named}
    tensors = {key.removeprefix(prefix): value for key, value in plain.items() if key.startswith(prefix)}
    if not tensors or not all(isinstance(value, Tensor) for value in tensors.values()):
        where = " and ".join(f"'{name}'" for name in (nested, prefix) if name)
        raise CheckpointError(
            f"{path} has no tensors{f' under {where}' if where else ''}, so it is no checkpoint of this encoder."
        )
    return tensors


def fill(
    make: Callable[[], nn.Module],
    path: Path,
    nested: str | None = None,
    prefix: str = "",
    published: Callable[[str], tuple[str, ...]] = lambda key: (key,),
    unused: Sequence[str] = (),
) -> nn.Module:
    """Make a model with the tensors of a foreign file, see `read_state`, and freeze it. Raises CheckpointError."""
    with torch.device("meta"):
        model = make()
    made, state = model.state_dict(), read_state(path, nested, prefix)
    parts = {key: published(key) for key in made}
    wanted = {
        name: (made[key].shape[0] // len(names), *made[key].shape[1:]) if len(names) > 1 else tuple(made[key].shape)
        for key, names in parts.items()
        for name in names
    }
    extra = [key for key in state if key not in wanted and not key.startswith(tuple(unused) or "\0")]
    if problems := misfits(wanted, state, extra):
        raise CheckpointError(f"The tensors of {path} are not those of this encoder ({problems}).")
    tensors = {
        key: (state[names[0]] if len(names) == 1 else torch.cat([state[name] for name in names])).to(made[key].dtype)
        for key, names in parts.items()
    }
    model.load_state_dict(tensors, assign=True)
    return model.eval().requires_grad_(False)


def read_number_table(
    path: Path, rows: int, columns: int | list[str], numbered: bool = False, **how: Any
) -> FloatArray:
    """Read numbers of known size, or columns by their names, by `pandas.read_csv`. Raises CheckpointError.

    `numbered`: the first column holds 1, 2, ...
    """
    try:
        frame = pd.read_csv(path, **{"header": None, "encoding": "utf-8-sig", **EXACT, **how})
        if isinstance(columns, list):
            frame, columns = frame[columns], len(columns)
        table = frame.to_numpy(float)
        if table.shape != (rows, columns) or not np.isfinite(table).all():
            raise ValueError(f"{' by '.join(map(str, table.shape))}, not {rows} by {columns} finite numbers")
        if numbered and not np.array_equal(table[:, 0], np.arange(1, rows + 1)):
            raise ValueError(f"its first column is not 1 to {rows}")
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{path} is not the table of numbers that the model needs: {str(error).strip()}."
        ) from None
    return np.asarray(table)


# --- Series and layers ----------------------------------------------------------------------------------------------


def resample(series: FloatArray, repetition_time: float, target: float) -> FloatArray:
    """Interpolate linearly at multiples of `target` seconds: (T, P) to (T', P)."""
    times = np.arange(len(series)) * repetition_time
    wanted = np.arange(int(times[-1] / target + 1e-9) + 1) * target
    left = np.minimum((wanted / repetition_time).astype(int), len(series) - 2)
    share = (wanted / repetition_time - left)[:, None]
    return np.asarray((1 - share) * series[left] + share * series[left + 1])


def z_scored(series: FloatArray) -> FloatArray:
    """Centre each parcel and divide by its standard deviation (denominator T); parcels without variance become 0."""
    centred = series - series.mean(axis=0)
    spread = centred.std(axis=0)
    return np.asarray(centred / np.where(spread > 1e-8, spread, np.inf))


def as_tensor(array: ArrayLike) -> Tensor:
    """Make a float32 tensor."""
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))


class Block(nn.Module):
    """x + attention(norm1 x), then x + feed-forward(norm2 x), each optionally scaled per channel; no N x N matrix."""

    def __init__(
        self, d: int, heads: int, ff: int, eps: float = 1e-6, qkv_bias: bool = True, layer_scale: bool = False
    ) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d, eps=eps), nn.LayerNorm(d, eps=eps)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(d, 3 * d, bias=qkv_bias), "proj": nn.Linear(d, d)})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(d, ff), "fc2": nn.Linear(ff, d)})
        scales = [{"gamma": nn.Parameter(torch.ones(d))} if layer_scale else {} for _ in range(2)]
        self.ls1, self.ls2 = map(nn.ParameterDict, scales)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, d) to (B, N, d); rows of ``qkv`` are queries, keys, values."""
        parts = self.attn["qkv"](self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = self.attn["proj"](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        x = x + attended * self.ls1.get("gamma", 1.0)
        out: Tensor = x + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.norm2(x)))) * self.ls2.get("gamma", 1.0)
        return out
