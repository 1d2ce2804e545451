"""A checkpoint that was changed is refused by the command that reads it, with what was changed."""

from __future__ import annotations

import hashlib
import json
import shutil

import pandas as pd
import pytest
from safetensors.torch import load_file, save_file

from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.checkpoints import CheckpointError, read_config
from tests.pretrain.conftest import made_recordings
from tests.pretrain.outputs import plant_outputs, run_pretrain


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folder of a run of four steps."""
    folder = tmp_path_factory.mktemp("proof")
    plant_outputs(folder, made_recordings())
    assert run_pretrain(folder) == 0
    return folder


@pytest.fixture
def trained(finished, tmp_path):
    """A copy of the run, to be changed, with the folder of its model."""
    folder = shutil.copytree(finished, tmp_path / "run")
    return folder, folder / "out" / "encoder" / "model"


def flip(path, from_end: int = 4) -> None:
    """Change the least bit of one number: it stays finite and near."""
    content = bytearray(path.read_bytes())
    content[-from_end] ^= 1
    path.write_bytes(content)


def test_the_proof_is_of_the_files(trained):
    """The checksum, computed here from the files."""
    model = trained[1]
    facts, tensors = json.loads((model / "config.json").read_text()), load_file(model / "model.safetensors")
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tuple(tensors[name].shape)}\n".encode() + tensors[name].numpy().tobytes())
    assert facts["proof"]["tensors_sha256"] == digest.hexdigest()
    load_encoder("fbert", model)


def test_a_flipped_bit_is_noticed(trained):
    flip(trained[1] / "model.safetensors")
    with pytest.raises(CheckpointError, match="tensors are not those that were written"):
        load_encoder("fbert", trained[1])


def test_a_changed_configuration_is_noticed_and_may_be_meant(trained, tmp_path):
    path = trained[1] / "config.json"
    facts = json.loads(path.read_text()) | {"licence": "CC0-1.0"}
    path.write_text(json.dumps(facts))
    with pytest.raises(CheckpointError, match=r"not as it was written.*remove its entry 'proof'"):
        load_encoder("fbert", trained[1])
    del facts["proof"]
    path.write_text(json.dumps(facts))
    with pytest.raises(CheckpointError, match="has no proof of its weights"):
        load_encoder("fbert", trained[1])
    (tmp_path / "stated.json").write_text(json.dumps({"heads": facts["heads"]}))
    assert load_encoder("fbert", trained[1], aux=[tmp_path / "stated.json"]).provenance()["licence"] == "CC0-1.0"


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(trained, finished, name, caplog, capsys):
    """The same weights as of a run whose last checkpoint was whole; none is gone on from where both are damaged."""
    folder, _ = trained
    newest, other = (folder / "out" / "encoder" / "checkpoints" / f"step-000000{step}" for step in (4, 2))
    flip(newest / name, from_end=4 if name != "state.json" else 1)
    assert run_pretrain(folder) == 0
    assert f"{newest} is damaged: training goes on from the checkpoint before it" in caplog.text
    log = pd.read_csv(folder / "out" / "encoder" / "log.tsv", sep="\t")
    assert log["step"].tolist() == [0, 2, 4]
    last = newest.relative_to(folder) / "optimizer.safetensors"
    assert (folder / last).read_bytes() == (finished / last).read_bytes()
    for place in (newest, other):
        flip(place / "model.safetensors")
    assert run_pretrain(folder, "--steps", "8") == 3
    assert "The model in" in capsys.readouterr().err
    assert other.is_dir()


def test_tensors_under_a_foreign_precision_prove_themselves_too(trained):
    path = trained[1] / "model.safetensors"
    save_file({name: tensor.double() for name, tensor in load_file(path).items()}, path)
    load_encoder("fbert", trained[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d": "8"}, "d must be a whole number above 0, not '8'"),
        ({"d": 10**9, "heads": 10}, "parameters"),
        ({"layers": True}, "layers must be a whole number above 0, not True"),
        ({"norm_eps": float("nan")}, "norm_eps must be a finite number, not nan"),
        ({"dropout": 1.5}, "dropout=1.5 at least 0 and below 1"),
        ({"norm_first": "false"}, "norm_first must be true or false, not 'false'"),
        ({"activation": ["gelu"]}, "activation must be text"),
        ({"roi_labels": list(range(10))}, "roi_labels must be a list of names"),
        ({"tr_range": [float("nan"), 3]}, "tr_range must be two finite numbers"),
    ],
    ids=str,
)
def test_fields_of_another_type_are_named(tmp_path, change, message):
    folder = tmp_path / "model"
    folder.mkdir()
    good = {"n_parcels": 10, "d": 8, "layers": 1, "heads": 2, "ff": 8, "activation": "gelu", "norm_first": False}
    good |= {"final_norm": False, "norm_eps": 1e-5, "pe": "none", "cls_position": True, "dropout": 0.1}
    good |= {"roi_labels": [f"P{i}" for i in range(10)]}
    (folder / "config.json").write_text(json.dumps(good))
    assert read_config(folder)[0].d == 8
    (folder / "config.json").write_text(json.dumps(good | change))
    with pytest.raises(CheckpointError) as caught:
        read_config(folder)
    assert f"{folder / 'config.json'} describes an impossible model: " in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
