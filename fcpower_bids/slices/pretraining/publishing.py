"""Put a model on the Hugging Face hub: what is sound, what was asked for, and nothing else of its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fcpower_bids.encoders.checkpoints import (
    CheckpointError,
    check_proof,
    load_strictly,
    plain_model,
    read_config,
    read_tensors,
)
from fcpower_bids.errors import UsageError

FILES = ("config.json", "model.safetensors", "README.md")
"""Files that are published, besides the one that uses the model without this program."""
CLIENTS = ("huggingface_hub", "httpx", "httpcore", "requests", "urllib3")
"""Packages whose errors come from the hub or the network, not from this program."""


def check_model(folder: Path) -> list[Path]:
    """Return the files to publish, after the weights were compared with their proof. Raises CheckpointError."""
    if missing := [name for name in FILES if not (folder / name).is_file()]:
        raise CheckpointError(f"{folder} lacks {', '.join(missing)}; give the folder 'model' of a pretraining run.")
    config, _ = read_config(folder)
    if not (plain := folder / plain_model(config).name).is_file():
        raise CheckpointError(f"{folder} lacks {plain.name}; give the folder 'model' of a pretraining run.")
    model = config.build()
    load_strictly(model, read_tensors(folder / "model.safetensors"), str(folder))
    check_proof(folder, config, model.state_dict())
    return [*(folder / name for name in FILES), plain]


def require_token() -> str:
    """Return the token of the hub that its own client has stored. Raises UsageError."""
    from huggingface_hub import get_token  # slow to load

    token = get_token()
    if not token:
        raise UsageError("There is no token for the hub: log in with 'hf auth login', or set HF_TOKEN, and try again.")
    return token


def publish(files: Sequence[Path], name: str, token: str, *, public: bool = False) -> str:
    """Upload the files of a model, all of one folder, and return its address. Raises UsageError."""
    from huggingface_hub import HfApi  # slow to load

    try:
        api = HfApi(token=token)
        address = api.create_repo(name, private=not public, exist_ok=True)
        api.upload_folder(
            repo_id=name,
            folder_path=files[0].parent,
            allow_patterns=[file.name for file in files],
            commit_message="Upload model of fcpower_bids",
        )
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__module__.partition(".")[0] not in CLIENTS:
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"{name} could not be published ({reason}); look at the name, the token and the network."
        ) from error
    return str(address)
