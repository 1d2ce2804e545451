"""Checkpoints: ``config.json`` and ``model.safetensors``; every missing or unexpected key is named.

Importing this loads no torch.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.encoders import FACTS, RANDOM
from fcpower_bids.errors import FcPowerError, UsageError
from fcpower_bids.store import atomic, load_json, replace_folder, write_text

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fcpower_bids.encoders.fbert import FBertConfig

STATE = "seen_in_pretraining"
"""Where the sidecar of an embedding says it."""
TRAINED, HELD_OUT, NO, UNKNOWN = "trained", "held out", "no", "unknown"
"""Whether an encoder was trained on a person, or they chose or confirmed its checkpoint; unknown: it does not say."""
SEEN = "the encoder of the embedding '{}' was trained on this person"
"""Why the group level leaves an embedding out."""
DIGITS = 16
"""Hexadecimal digits of a digest: by chance two of a million people share one with a probability of 3e-8."""


def person_digest(salt: str, dataset: str, subject: str) -> str:
    """Digest of one participant: the first `DIGITS` of SHA-256 of salt, dataset and label, one per line."""
    label = subject.removeprefix("sub-")
    return hashlib.sha256(f"{salt}\n{dataset}\n{label}".encode()).hexdigest()[:DIGITS]


def people_digests(salt: str, people: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Digests of people, each once and in an order that says nothing of them."""
    return tuple(sorted({person_digest(salt, dataset, subject) for dataset, subject in people}))


def training_state(encoder: Any, dataset: str, subject: str) -> str:
    """Say whether an encoder has seen a person; the models of others do not tell, and random weights saw nobody."""
    card = getattr(encoder, "card", None)
    if card is None:
        return UNKNOWN
    return NO if encoder.name == RANDOM else find_in_training(card, dataset, subject)


def find_in_training(card: ModelCard, dataset: str, subject: str) -> str:
    """Say whether a person was in the training of a model; nobody knows it of a dataset without a name."""
    if not (card.trained_on and dataset):
        return UNKNOWN
    names = {person_digest(card.corpus_sha256, name, subject) for name in dataset.split()}
    return TRAINED if names & {*card.trained_on} else HELD_OUT if names & {*card.held_out} else NO


logger = logging.getLogger(__name__)
WEIGHTS = "model.safetensors"
PROOF = "proof"
"""Where ``config.json`` has its own checksum and that of the tensors."""
ABSENT = "does not exist; give the folder that holds config.json and model.safetensors."
OTHER_NAMES = {
    "n_regions": "n_parcels",
    "hidden_size": "d",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "ff",
    "hidden_act": "activation",
    "layer_norm_eps": "norm_eps",
    "hidden_dropout_prob": "dropout",
}
"""Names of the same things on the card of the released models, and in the configuration of a Hugging Face BERT."""
TEXT = """\
# F-BERT

Embeds parcel series of resting-state fMRI. Inputs are matched by the parcel names in `config.json` and z-scored over
the whole recording. With fcpower_bids: `--encoder fbert --encoder-weights` and this folder, which also compares
the weights with their checksums. `model.safetensors` has the names of torch's own layers.

`config.json` lists who was in the training as salted digests, which hide no person from one who guesses the labels.
"""


class EncoderUnavailable(FcPowerError):
    """An encoder was asked for without its weights: its embeddings are skipped with this reason."""

    exit_code = 0


class CheckpointError(UsageError):
    """The weights that the user named cannot be used."""


@dataclass(frozen=True)
class ModelCard:
    """Facts about a checkpoint in addition to its architecture."""

    roi_labels: tuple[str, ...]  # names of the P input parcels in the order of the weights: inputs are matched by name
    atlas: str = "n/a"  # name of the parcellation
    alpha: float = ALPHA_STAR  # exponent of the teacher FC^alpha
    band: tuple[float, float] | None = None  # pass-band of the training series in Hz, where all have one
    # shortest and longest repetition time of the training recordings in seconds
    tr_range: tuple[float, float] | None = None
    window: int = 80  # timepoints of a training window; of shorter recordings there is a caution
    # timepoints of the windows of the ``windows`` read where the repetition time is unknown: as in the paper's
    # comparison at 2.4 minutes
    read_window: int = 200
    teacher: str = "n/a"  # the target, in words
    training: str = "n/a"  # the optimisation
    selection: str = "n/a"  # how the checkpoint was chosen
    verdict: str = "n/a"  # whether it is better than random weights
    optimism: float | None = None  # by how much the choice flattered the score it was chosen by
    corpus_sha256: str = "n/a"  # digest of the corpus pack
    corpus_revision: str = "n/a"  # commit of a corpus from the hub
    purpose: str = "n/a"  # what it is for
    licence: str = "n/a"  # under what terms
    corpus_licences: str = "n/a"  # how many recordings of the training have which
    corpus_citation: str = "n/a"  # how their datasets are to be cited
    step: int | None = None  # where in the training run the weights were taken
    seed: int | None = None  # of that run
    trained_on: tuple[str, ...] = ()  # digests (`person_digest`) of the people of the training
    held_out: tuple[str, ...] = ()  # and of those kept out of it to choose the checkpoint


# --- What a checkpoint states ---------------------------------------------------------------------------------------


def read_fields(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a configuration file states, as it is and by our names. Raises CheckpointError."""
    try:
        raw: dict[str, Any] = load_json(path)
        return raw, {OTHER_NAMES.get(key, key): value for key, value in raw.items() if value is not None}
    except FileNotFoundError:
        raise CheckpointError(f"{path} {ABSENT}") from None
    except (ValueError, AttributeError) as error:
        raise CheckpointError(f"{path} is not a JSON object ({error}); download the checkpoint again.") from None


def read_config(folder: Path, published: Mapping[str, Any] | None = None) -> tuple[FBertConfig, ModelCard]:
    """Read ``config.json`` and `FACTS`: architecture (every field required) and card. Raises CheckpointError."""
    path, file = folder / "config.json", folder / FACTS
    raw, values = read_fields(path)
    if file.is_file():
        given = read_fields(file)[1]
        if differing := [key for key in given if values.get(key, given[key]) != given[key]]:
            raise CheckpointError(
                f"{path} and {file} state {', '.join(differing)} differently; leave out what the model states itself."
            )
        values |= given
    values = {**(published or {}), **values}
    from fcpower_bids.encoders.fbert import FBertConfig, wrong_types  # loads torch

    required = [f.name for f in fields(FBertConfig)] + ["roi_labels"]
    if missing := [name for name in required if values.get(name) is None]:
        raise CheckpointError(
            f"{path} does not state {', '.join(missing)}; give the values used in training in a file {FACTS} beside it "
            "(weights of the hub: give the hub id)."
        )
    if problems := wrong_types(FBertConfig, values) + wrong_types(ModelCard, values):
        raise CheckpointError(f"{path} describes an impossible model: {'; '.join(problems)}.")
    card: dict[str, Any] = {f.name: values[f.name] for f in fields(ModelCard) if f.name in values}
    card = {name: tuple(value) if isinstance(value, list) else value for name, value in card.items()}
    try:
        config = FBertConfig(**{f.name: values[f.name] for f in fields(FBertConfig)})
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path} describes an impossible model: {error}") from None
    labels, proof = card["roi_labels"], raw.get(PROOF)
    if not len(labels) == len(set(labels)) == config.n_parcels:
        raise CheckpointError(
            f"{path} lists {len(set(labels))} different roi_labels for {config.n_parcels} parcels; list each parcel "
            "once."
        )
    if proof is not None and (not isinstance(proof, dict) or proof.get("config_sha256") != digest_facts(raw, PROOF)):
        raise CheckpointError(
            f"{path} is not as it was written (its checksum differs); download or copy the checkpoint again, or, if "
            f"the change is yours and meant, remove its entry '{PROOF}' and state the heads in {FACTS} beside it."
        )
    return config, ModelCard(**card)


def digest_facts(facts: Mapping[str, Any], proof: str) -> str:
    """SHA-256 of the entries of a JSON file but that which holds it, whatever their order and spacing."""
    stated = {key: value for key, value in facts.items() if key != proof}
    return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()


# --- Tensors, and where they come from ------------------------------------------------------------------------------


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read tensors from ``.safetensors``, or from a torch file by its weights-only reader. Raises CheckpointError."""
    import torch  # large, and an extra of the installation
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
        return loaded
    except FileNotFoundError:
        raise CheckpointError(f"{path} {ABSENT}") from None
    except UnpicklingError:  # whose text says how to load it all the same
        raise CheckpointError(f"{path} holds more than tensors and is not loaded, or is no file of torch.") from None
    except Exception as error:  # a file of anything else may meet any
        raise CheckpointError(f"{path} is damaged or incomplete ({error}); download or copy it again.") from None


def misfits(expected: Mapping[str, tuple[int, ...]], state: Mapping[str, Tensor], extra: Sequence[str]) -> str:
    """Say which tensors of a file are missing, unexpected (`extra`), of another shape than our own, or not finite."""
    shared = [key for key in expected if key in state]
    problems = {
        "missing": sorted(expected.keys() - state.keys()),
        "unexpected": sorted(extra),
        "of another shape": [key for key in shared if tuple(state[key].shape) != expected[key]],
        "not finite": [key for key in shared if not bool(state[key].isfinite().all())],
    }
    return "; ".join(f"{what}: {', '.join(keys)}" for what, keys in problems.items() if keys)


def locate(weights: str | Path, revision: str | None = None) -> Path:
    """Return the local folder of a checkpoint, downloaded where it is of the hub. Raises CheckpointError."""
    folder = Path(weights).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_file() and folder.name == WEIGHTS:
        return folder.parent
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", str(weights)):
        raise CheckpointError(f"There is no checkpoint folder {weights}; give a folder or a hub id (owner/name).")
    return fetch(str(weights), "model", ["config.json", WEIGHTS, "README.md"], revision)


def fetch(name: str, kind: str, files: Sequence[str], revision: str | None = None) -> Path:
    """Download a model or a dataset from the hub, or find it in the hub's cache. Raises CheckpointError."""
    from huggingface_hub import snapshot_download  # only a download needs it
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, repo_type=kind, revision=revision, allow_patterns=list(files)))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise CheckpointError(
            f"The {kind} {name} cannot be had from the hub ({type(error).__name__}): correct the name or the revision, "
            "log in with 'hf auth login', or fill HF_HOME with 'hf download' on a connected machine."
        ) from error


def resolved(folder: Path, revision: str | None) -> str | None:
    """Return the commit of a download where its folder in the cache of the hub names it, else `revision`."""
    return folder.name if folder.parent.name == "snapshots" else revision


# --- The proof: that tensors and program compute what was written ---------------------------------------------------


def digest_tensors(state: Mapping[str, Tensor]) -> str:
    """SHA-256 of the tensors of a model, whatever file and precision they were stored in."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
    return digest.hexdigest()


def load_weights(
    model: nn.Module,
    folder: Path,
    renamed: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] = dict,
    stated: bool = False,
) -> None:
    """Copy the tensors of a checkpoint into a model whose names and shapes must match exactly, and prove them.

    `renamed`: from the names of the file to those of the model. Raises CheckpointError.
    """
    path, tensors = folder / WEIGHTS, model.state_dict()
    state, shapes = renamed(read_tensors(path)), {key: tuple(tensor.shape) for key, tensor in tensors.items()}
    if problems := misfits(shapes, state, list(state.keys() - tensors.keys())):
        raise CheckpointError(f"The tensors of {path} do not fit the model of its config.json ({problems}).")
    model.load_state_dict({key: value.to(tensors[key].dtype) for key, value in state.items()})
    check_proof(folder, model.state_dict(), stated)


def check_proof(folder: Path, state: Mapping[str, Tensor], stated: bool = False) -> None:
    """Compare tensors with their checksum, which may lack where their facts are `stated`. Raises CheckpointError."""
    proof = load_json(folder / "config.json").get(PROOF)
    if proof is None:
        if not stated:
            raise CheckpointError(
                f"{folder / 'config.json'} has no proof of its weights (it was made elsewhere, or changed): a wrong "
                f"number of heads or place of the norms would not be noticed. State them in a file {FACTS} beside it, "
                "or give the hub id."
            )
    elif proof.get("tensors_sha256") != digest_tensors(state):
        raise CheckpointError(
            f"The model in {folder} is not sound: the tensors are not those that were written (their checksum differs "
            "from that in config.json); download or copy the checkpoint again."
        )


# --- Writing --------------------------------------------------------------------------------------------------------


def write_model(folder: Path, model: nn.Module, config: FBertConfig, card: ModelCard) -> None:
    """Write ``config.json`` with its proof, and ``model.safetensors``, into a folder that exists."""
    from safetensors.torch import save_file  # with torch, which is large

    state = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    with atomic(folder / WEIGHTS, flush=False) as part:  # the folder is written whole
        save_file(state, part)
    facts = {"model_type": config.model_type, **asdict(config), **asdict(card)}
    proof = {"config_sha256": digest_facts(facts, PROOF), "tensors_sha256": digest_tensors(state)}
    text = json.dumps({**facts, PROOF: proof}, indent=2, ensure_ascii=False)
    write_text(folder / "config.json", text + "\n")


def save_checkpoint(
    folder: Path, model: nn.Module, config: FBertConfig, card: ModelCard, facts: Mapping[str, Any] | None = None
) -> None:
    """Write a checkpoint folder with a model card, whole or not at all. Raises OSError."""
    known = {"atlas": card.atlas, "parcels": config.n_parcels, "embedding": config.d, "layers": config.layers}
    lists = {"people trained on": len(card.trained_on), "people held out": len(card.held_out)}
    apart = ("roi_labels", "atlas", "trained_on", "held_out")
    known |= {key: value for key, value in asdict(card).items() if key not in apart} | lists | dict(facts or {})

    def write(target: Path) -> None:
        write_model(target, model, config, card)
        rows = "".join(f"| {_cell(key)} | {_cell(value)} |\n" for key, value in known.items())
        write_text(target / "README.md", f"{TEXT}\n| | |\n|---|---|\n{rows}")

    replace_folder(folder, write)


def _cell(value: Any) -> str:
    return "n/a" if value is None else " ".join(str(value).split()).replace("|", "\\|")
