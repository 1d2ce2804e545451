"""Foreign checkpoint files: nested dictionaries, ``module.`` prefixes, Hugging Face folders; strict both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fcpower_bids.encoders.checkpoints import CheckpointError, EncoderUnavailable, read_tensors
from fcpower_bids.errors import UsageError
from fcpower_bids.store import digest_of

Places = Mapping[str, tuple[float, float, float]]
HF_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class PublishedOptions:
    """Choices that only published encoders have."""

    protocol: str = "own"  # one of "own", "paper": fed as its authors feed it, or as in the comparison of the paper
    aux: tuple[Path, ...] = ()  # further files the model needs, which come with it and not with this program
    accept_licence: bool = False  # the user has read and accepts the licence of the weights
    places: Places = field(default_factory=dict)  # MNI centroids of the recording's parcels in mm, by name

    def __post_init__(self) -> None:
        if self.protocol not in ("own", "paper"):
            raise UsageError(f"There is no encoder protocol called '{self.protocol}'. Choose from: own, paper.")


DEFAULTS = PublishedOptions()


def find_weights(name: str, licence: str, weights: str | Path | None, options: PublishedOptions) -> Path:
    """Weights file of an encoder whose licence is accepted. Raises EncoderUnavailable, UsageError, CheckpointError."""
    if weights is None:
        raise EncoderUnavailable(f"No weights were given for the encoder {name}: download them and give their path.")
    if not options.accept_licence:
        raise UsageError(
            f"The weights of {name} are not free ({licence}); read their licence, then repeat with "
            "accept_encoder_licence = true in the file of --config-file."
        )
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
        if not isinstance(state, Mapping) or nested not in state:
            raise CheckpointError(f"{path} has no entry '{nested}', so it is not a checkpoint of this encoder.")
        state = state[nested]
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{path} does not hold named tensors, so it is not a checkpoint of this encoder.")
    plain = {str(key).removeprefix("module."): value for key, value in state.items()}
    own = {key.removeprefix(prefix): value for key, value in plain.items() if key.startswith(prefix)}
    if not own:
        raise CheckpointError(f"{path} has no keys under '{prefix}', so it is not a checkpoint of this encoder.")
    if odd := [key for key, value in own.items() if not isinstance(value, Tensor)]:
        raise CheckpointError(f"{path} holds no tensor under {', '.join(odd[:3])}; download it again.")
    return own


def same_key(key: str) -> tuple[str, ...]:
    """Our key is theirs."""
    return (key,)


def fill(
    model: nn.Module,
    state: Mapping[str, Tensor],
    source: str,
    published: Callable[[str], tuple[str, ...]] = same_key,
    unused: Sequence[str] = (),
) -> nn.Module:
    """Put foreign tensors into a model made on ``torch.device("meta")``, and freeze it. Raises CheckpointError."""
    import torch  # large, and an extra of the installation

    own = model.state_dict()
    parts = {key: published(key) for key in own}
    wanted = {name: _part(own[key], len(names)) for key, names in parts.items() for name in names}
    extra = [key for key in state if key not in wanted and not key.startswith(tuple(unused) or "\0")]
    shared = [key for key in wanted if key in state]
    problems = {
        "missing": sorted(set(wanted) - set(state)),
        "unexpected": sorted(extra),
        "of another shape": [key for key in shared if tuple(state[key].shape) != wanted[key]],
        "not finite": [key for key in shared if not bool(state[key].isfinite().all())],
    }
    if found := "; ".join(f"{what}: {', '.join(keys)}" for what, keys in problems.items() if keys):
        raise CheckpointError(f"The tensors of {source} are not those of this encoder ({found}).")
    tensors = {
        key: (state[names[0]] if len(names) == 1 else torch.cat([state[name] for name in names])).to(own[key].dtype)
        for key, names in parts.items()
    }
    model.load_state_dict(tensors, assign=True)
    return model.eval().requires_grad_(False)


def _part(tensor: Tensor, n: int) -> tuple[int, ...]:
    return (tensor.shape[0] // n, *tensor.shape[1:]) if n > 1 else tuple(tensor.shape)


def read_number_table(path: Path, rows: int, columns: int, labelled: bool = False) -> Tensor:
    """Read a CSV of numbers of known size, as the position tables of the models. Raises CheckpointError."""
    import numpy as np  # with torch, which is large
    import torch

    try:
        text = [line.split(",") for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        cells = [line[1:] for line in text[1:]] if labelled else text
        table = torch.from_numpy(np.array(cells, dtype=np.float32))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is not a table of numbers ({error}); give the CSV that comes with the model."
        ) from None
    if tuple(table.shape) != (rows, columns) or not bool(table.isfinite().all()):
        raise CheckpointError(
            f"{path} is {' by '.join(map(str, table.shape))}, not {rows} by {columns} finite numbers; "
            "give the CSV that comes with the model."
        )
    return table


def find_aux(
    name: str, aux: Sequence[Path], needed: Mapping[str, str], optional: Sequence[str] = ()
) -> dict[str, Path]:
    """Find the further files of a model among those the user gave, by their published file names. Raises UsageError."""
    found: dict[str, Path] = {}
    for file in (*needed, *optional):
        places = [path / file if path.is_dir() else path for path in map(Path, aux)]
        here = [path for path in places if path.name == file and path.is_file()]
        if not here and file in needed:
            raise UsageError(
                f"{name} needs {needed[file]} ({file}); give it with encoder_aux in the file of --config-file."
            )
        if here:
            found[file] = here[0]
    return found


def describe_files(weights: Path, aux: Mapping[str, Path]) -> dict[str, Any]:
    """Names and sha256 of what an encoder was made from, for the sidecar."""
    return {
        "weights": weights.name,
        "sha256": digest_of(weights),
        "aux_sha256": {file: digest_of(path) for file, path in aux.items()},
    }
