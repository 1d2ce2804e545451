"""What is told of a recording is what is true now, for this request."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fcpower_bids.outputs.status import write_status_table
from fcpower_bids.outputs.tables import read_table
from tests.command import main
from tests.running import PLAIN, run_app

WORDS = ("--atlas", "builtin", *PLAIN, "--transforms", "power", "fisher_z", "--quiet")


@pytest.fixture
def output(exact_run, tmp_path):
    return shutil.copytree(exact_run.output, tmp_path / "out", ignore=shutil.ignore_patterns("work"))


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def cut_at_a_line(path):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))


DAMAGES = {"sub-01_ses-a": Path.unlink, "sub-01_ses-b": cut, "sub-02_ses-a": cut_at_a_line}


def test_a_connectome_that_is_gone_or_cut_is_not_done(exact_demo, output):
    tables = {name: next(output.rglob(f"{name}*_stat-pearsoncorrelation_relmat.tsv")) for name in DAMAGES}
    whole = {name: table.read_bytes() for name, table in tables.items()}
    for name, damage in DAMAGES.items():
        damage(tables[name])
    main([*map(str, [exact_demo[0], output, "group", "--check", "--min-time", "1", "--quiet"])])
    excluded = read_table(output / "group" / "excluded.tsv")["reason"]
    for name, damage in DAMAGES.items():
        said = f"{tables[name].name} is {'gone' if damage is Path.unlink else 'cut short'}: run"
        assert excluded.str.contains(said, regex=False).any(), excluded
    found = run_app(exact_demo[0], output, *WORDS)
    assert found.code == 0, found.err
    assert {name: table.read_bytes() for name, table in tables.items()} == whole
    assert set(write_status_table(output)["state"]) == {"done"}


def test_an_embedding_that_failed_is_made_when_it_can_be(exact_demo, output, tmp_path, monkeypatch):
    """The weights are there and broken for a while, as on a disk that was full; nothing of the request changes."""
    from fcpower_bids.interfaces import embedding

    (here := tmp_path / "here.yml").write_text("plugin: Linear\n")
    one = ("--participant-label", "01", "--session-label", "a")
    asked = (*WORDS, "--encoder", "random-init", "--use-plugin", here, *one)
    real = embedding._embed

    def broken(path, settings, atlases, person):
        _, facts = real(path, settings, atlases, person)
        return {}, {"atlas": facts["atlas"], "label": facts["label"], "problem": ["failed", "The disk was full."]}

    monkeypatch.setattr(embedding, "_embed", broken)
    assert run_app(exact_demo[0], output, *asked).code == 4
    other = run_app(exact_demo[0], output, *WORDS, *one)
    assert other.code == 0, "a request without an encoder is not about it"
    assert set(write_status_table(output)["state"]) == {"done"}
    monkeypatch.setattr(embedding, "_embed", real)
    assert run_app(exact_demo[0], output, *asked).code == 0
    assert list(output.rglob("sub-01_ses-a_*_desc-randominit_embedding.tsv"))
    assert set(write_status_table(output)["state"]) == {"done"}


@pytest.mark.parametrize("weights", [[], ["--encoder-weights", "/nowhere"]])
def test_an_encoder_that_cannot_be_loaded_is_refused_before_the_first_recording(exact_demo, tmp_path, weights):
    for dry in ([], ["--dry-run"]):
        found = run_app(exact_demo[0], tmp_path / "out", *WORDS, "--encoder", "fbert", *weights, *dry)
        assert found.code == 2
        assert "No recording can be embedded." in found.err
        assert not (tmp_path / "out" / "sub-01").exists()
