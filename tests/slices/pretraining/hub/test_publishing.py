"""A model outside of this program: loaded without it, described in the words of the hub, pushed after asking."""

from __future__ import annotations

import importlib.util
import io
import json
import subprocess
import sys

import huggingface_hub
import numpy as np
import pytest
import yaml
from huggingface_hub.errors import HfHubHTTPError

from fcpower_bids.cli.run import main
from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.checkpoints import LICENCES, ModelCard, save_checkpoint
from fcpower_bids.encoders.closed_form import ClosedForm
from fcpower_bids.encoders.fbert import FBert, FBertConfig
from fcpower_bids.encoders.proof import probe_series
from fcpower_bids.slices.pretraining.publishing import FILES
from tests.encoders.conftest import NAMES

ALONE = """
import sys
class Missing:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in ("fcpower_bids", "lightning", "pandas"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
sys.path.insert(0, sys.argv[1])
import json, torch
from modeling_fbert import FBert
model = FBert.from_pretrained(sys.argv[1])
said = json.load(sys.stdin)
print(json.dumps([model(torch.tensor(said["probe"]))[0].tolist(), model.embed(said["series"], said["names"]).tolist()]))
assert "fcpower_bids" not in sys.modules
"""


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_first": True, "final_norm": True, "activation": "relu", "pe": "sinusoidal_halves", "norm_eps": 1e-3},
        {"cls_position": False, "pe": "none"},
    ],
    ids=["default", "norms first", "no positions"],
)
def test_a_model_embeds_without_this_program(tmp_path, recordings, changes):
    """The file beside the weights, in a process that cannot import fcpower_bids, against the stored proof."""
    config = FBertConfig(n_parcels=12, d=16, layers=2, heads=4, ff=24, **changes)
    folder = tmp_path / "model"
    save_checkpoint(folder, FBert(config, seed=3), config, ModelCard(NAMES, window=20))
    shuffled = list(reversed([*NAMES, "Other"]))
    series = np.column_stack([recordings[0], recordings[0][:, 0]])[:, ::-1]
    said = {"probe": probe_series(12).tolist(), "series": series.tolist(), "names": shuffled}
    command = [sys.executable, "-c", ALONE, str(folder)]
    done = subprocess.run(command, input=json.dumps(said), capture_output=True, text=True, check=True, cwd=tmp_path)
    probe, embedded = json.loads(done.stdout)
    proof = json.loads((folder / "config.json").read_text())["proof"]["probe_embedding"]
    np.testing.assert_allclose(probe, proof, rtol=0, atol=2e-5)
    expected = load_encoder("fbert", folder).embed(recordings[:1], NAMES, 2.0)[0]
    np.testing.assert_allclose(embedded, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", ["fbert", "closed_form"])
def test_the_file_alone_fetches_a_model_from_the_hub(tmp_path, checkpoint, recordings, monkeypatch, kind):
    if kind == "closed_form":
        model = ClosedForm.of(np.zeros(66), np.random.default_rng(0).standard_normal((66, 3)), 12, 0.35)
        save_checkpoint(checkpoint, model, model.config, ModelCard(NAMES, window=20))
    asked = []

    def download(*name, **options):
        asked.append((name, options))
        return str(checkpoint)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("alone", checkpoint / f"modeling_{kind}.py")
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    loaded = (alone.FBert if kind == "fbert" else alone.ClosedForm).from_pretrained("owner/name", revision="v1")
    assert asked == [(("owner/name",), {"revision": "v1", "allow_patterns": ["config.json", "model.safetensors"]})]
    expected = load_encoder(kind.replace("_", "-"), checkpoint).embed(recordings[:1], NAMES, 2.0)[0]
    np.testing.assert_allclose(loaded.embed(recordings[0], NAMES), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("licence", "said"),
    [
        ("CC BY-NC 4.0", {"license": "cc-by-nc-4.0"}),
        ("CC0-1.0", {"license": "cc0-1.0"}),
        ("n/a", {"license": "unknown"}),
        ("ask: 'us' | first\n---\nx: 1", {"license": "other", "license_name": "ask-us-first-x-1"}),
    ],
)
def test_the_card_is_one_that_the_hub_takes(tmp_path, config, licence, said):
    card = ModelCard(NAMES, licence=licence, purpose="a | b\n| c | d |")
    save_checkpoint(tmp_path / "model", FBert(config), config, card, {"n_train": 3})
    text = (tmp_path / "model" / "README.md").read_text()
    header = yaml.safe_load(text.split("\n---\n")[0].removeprefix("---\n"))
    assert header["tags"] == ["fmri", "connectome", "fbert"]
    assert {key: header[key] for key in header if key.startswith("license")} == said
    assert said["license"] in {*LICENCES, "other"}
    read = huggingface_hub.ModelCard.load(tmp_path / "model" / "README.md")
    assert read.data.to_dict() == header
    assert "| purpose | a \\| b \\| c \\| d \\| |" in read.text
    assert "| n_train | 3 |" in read.text


class FakeHub:
    """What is asked of the hub, and what it then holds."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem, self.made, self.held = problem, {}, {}

    def __call__(self, token: str) -> FakeHub:
        self.token = token
        return self

    def create_repo(self, name: str, *, private: bool, exist_ok: bool) -> str:
        if self.problem is not None:
            raise self.problem
        self.made = {"name": name, "private": private, "exist_ok": exist_ok}
        return f"https://hub/{name}"

    def upload_folder(self, *, repo_id, folder_path, allow_patterns, commit_message) -> None:
        self.held = {name: (folder_path / name).read_bytes() for name in allow_patterns}


@pytest.fixture
def hub(monkeypatch) -> FakeHub:
    fake = FakeHub()
    monkeypatch.setattr(huggingface_hub, "HfApi", fake)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "secret")
    return fake


def answer(monkeypatch, text: str, is_terminal: bool = True) -> None:
    stream = io.StringIO(text)
    stream.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stdin", stream)


@pytest.mark.parametrize(("more", "private"), [((), True), (("--public",), False)])
def test_push_uploads_the_model_and_nothing_else(hub, checkpoint, monkeypatch, capsys, more, private):
    (checkpoint / "notes.txt").write_text("mine")
    answer(monkeypatch, "y\n")
    assert main(["push", str(checkpoint), "me/model", *more]) == 0
    assert hub.made == {"name": "me/model", "private": private, "exist_ok": True}
    assert hub.token == "secret"
    assert hub.held == {name: (checkpoint / name).read_bytes() for name in (*FILES, "modeling_fbert.py")}
    told = capsys.readouterr().out
    assert "Published: https://hub/me/model" in told
    assert "secret" not in told


@pytest.mark.parametrize("text", ["n\n", "\n", "what\n"])
def test_push_publishes_nothing_unless_it_is_meant(hub, checkpoint, monkeypatch, capsys, text):
    answer(monkeypatch, text)
    assert main(["push", str(checkpoint), "me/model"]) == 0
    assert not hub.made
    assert not hub.held
    assert "Nothing was published." in capsys.readouterr().out


def test_push_asks_or_is_told_not_to(hub, checkpoint, monkeypatch, capsys):
    answer(monkeypatch, "", is_terminal=False)
    assert main(["push", str(checkpoint), "me/model"]) == 2
    assert "give --yes if it is meant" in capsys.readouterr().err
    assert not hub.made
    assert main(["push", str(checkpoint), "me/model", "--yes"]) == 0
    assert hub.held


def test_push_needs_a_token_a_name_and_a_sound_model(hub, checkpoint, monkeypatch, capsys):
    assert main(["push", str(checkpoint), "model", "--yes"]) == 2
    assert "give OWNER/NAME" in capsys.readouterr().err
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert main(["push", str(checkpoint), "me/model", "--yes"]) == 2
    assert "There is no token for the hub" in capsys.readouterr().err
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "secret")
    weights = checkpoint / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-4] ^= 1
    weights.write_bytes(content)
    assert main(["push", str(checkpoint), "me/model", "--yes"]) == 2
    assert "tensors are not those that were written" in capsys.readouterr().err
    (checkpoint / "modeling_fbert.py").unlink()
    assert main(["push", str(checkpoint), "me/model", "--yes"]) == 2
    assert "lacks modeling_fbert.py" in capsys.readouterr().err
    assert not hub.made


def test_what_the_hub_says_is_told_and_what_is_our_fault_is_not_blamed_on_it(hub, checkpoint, capsys):
    hub.problem = OSError("no network")
    assert main(["push", str(checkpoint), "me/model", "--yes"]) == 2
    assert "me/model could not be published (no network)" in capsys.readouterr().err
    hub.problem = HfHubHTTPError.__new__(HfHubHTTPError)
    assert main(["push", str(checkpoint), "me/model", "--yes"]) == 2
    assert "me/model could not be published" in capsys.readouterr().err
    hub.problem = TypeError("ours")
    assert main(["push", str(checkpoint), "me/model", "--yes"]) == 1
    assert "internal error" in capsys.readouterr().err
