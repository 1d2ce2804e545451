"""The table of what runs again, by counting: nodes that are executed and volumes that are read, through the command."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.imaging import streaming
from fcpower_bids.imaging.atlas import builtin_atlas
from fcpower_bids.interfaces.nodes import Step, Transform
from fcpower_bids.outputs import status
from fcpower_bids.settings import METHOD_SECTIONS, Method
from fcpower_bids.workflows import participant
from tests.running import run_app

SESSIONS, VOLUMES = 2, 90
READ = 1 + VOLUMES
"""Volumes of one pass, and the look at the first that comes before it."""
WITHIN = ("--atlas", "builtin", "--strategy", "none", "--transforms", "power", "log_euclidean")
WITHIN += ("--eigenvalue-floor", "0.001")
EMBEDDED = ("--encoder", "random-init")
WITHOUT_ENCODER = {"parcellate", "bandpass", "connectivity", "power", "transforms", "sink"}


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """Run the command with all nodes in this process and without pages; return how often what was done."""
    done: Counter[str] = Counter()
    fill, run_interface = streaming.fill, Step._run_interface

    def count_volume(stream, values):
        done["volumes"] += 1
        return fill(stream, values)

    def count_node(self, runtime):
        done["transforms" if type(self) is Transform else type(self).__name__.lower()] += 1
        return run_interface(self, runtime)

    monkeypatch.setattr(streaming, "fill", count_volume)
    monkeypatch.setattr(Step, "_run_interface", count_node)
    monkeypatch.setattr(participant, "_report", lambda *_, **__: None)
    (here := tmp_path / "here.yml").write_text("plugin: Linear\n")

    def run(*arguments):
        done.clear()
        found = run_app(*arguments, "--use-plugin", here)
        assert found.code == 0, found.err
        assert set(found.states().values()) == {"done"}, found.err
        return dict(done)

    return run


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """One participant with a few sessions of tiny images."""
    folder = tmp_path_factory.mktemp("dataset") / "in"
    make_dataset(folder, DemoDesign.tiny(subjects=1, sessions=SESSIONS, volumes=VOLUMES))
    return folder


def test_what_is_finished_is_not_read_again(dataset, tmp_path, counted):
    out, once = tmp_path / "out", {**dict.fromkeys(WITHOUT_ENCODER, SESSIONS), "volumes": SESSIONS * READ}
    assert counted(dataset, out, *WITHIN) == once
    assert counted(dataset, out, *WITHIN) == {}
    assert counted(dataset, out, *WITHIN, "--alpha", "0.5") == once
    assert counted(dataset, out, *WITHIN, *EMBEDDED) == {**once, "embed": SESSIONS}


def replaced(pattern: str) -> Callable[[Path, pytest.MonkeyPatch], tuple[str, ...]]:
    """Another file of the same content."""

    def write_again(folder: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
        (path,) = (folder / "in").rglob(f"sub-01_ses-a_{pattern}")
        path.write_bytes(path.read_bytes())
        return ()

    return write_again


def one_more_atlas(folder: Path, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The same label image under another name."""
    image = builtin_atlas("MNI152NLin2009cAsym", folder / "atlases").image
    shutil.copy(image, folder / "mine.nii.gz")
    shutil.copy(image.with_name(image.name.replace(".nii.gz", ".tsv")), folder / "mine.tsv")
    return ("--atlas", str(folder / "mine.nii.gz"))


def another_version(_: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    for module in (participant, status):
        patch.setattr(module, "__version__", "9.9")
    return ()


CHANGES: dict[str, tuple[str, ...] | Callable[[Path, pytest.MonkeyPatch], tuple[str, ...]]] = {
    "nothing": (),
    "--alpha": ("--alpha", "0.5"),
    "--transforms": ("--transforms", "fisher_z"),
    "--dataset-name": ("--dataset-name", "another"),
    "--strategy": ("--strategy", "simple"),
    "--min-time": ("--min-time", "100"),
    "another confounds table": replaced("*_timeseries.tsv"),
    "--atlas": one_more_atlas,
    "a replaced series": replaced("*_bold.nii.gz"),
    "a replaced mask": replaced("*_mask.nii.gz"),
    "another version": another_version,
}


NODES = {*WITHOUT_ENCODER, "embed"}
AGAIN: dict[str, set[str]] = {
    "nothing": set(),
    "--alpha": {"power", "sink"},
    "--transforms": {"transforms", "sink"},
    "--dataset-name": {"embed", "sink"},
}
"""What runs again; of all other changes everything but the reading of the volumes."""
READ_AGAIN = {"--atlas", "a replaced series", "a replaced mask", "another version"}
"""Changes after which the volumes are read again."""


@pytest.fixture(scope="module")
def finished(dataset, tmp_path_factory):
    """A function that gives one recording, and the nodes that a run of it has left."""
    folder = tmp_path_factory.mktemp("finished")
    for path in (*dataset.rglob("*ses-a_*"), *dataset.rglob("dataset_description.json")):
        (copy := folder / "run" / "in" / path.relative_to(dataset)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    options = (*WITHIN, *EMBEDDED, "--debug", "--nprocs", "1")
    assert run_app(folder / "run" / "in", folder / "run" / "nodes", *options).code == 0
    shutil.copytree(folder / "run", folder / "kept")

    def restore() -> Path:
        shutil.rmtree(folder / "run")
        return shutil.copytree(folder / "kept", folder / "run")  # times are kept, and so are the paths

    return restore


@pytest.mark.parametrize("change", CHANGES)
def test_what_runs_again_is_what_the_table_says(finished, counted, monkeypatch, change):
    volumes = change in READ_AGAIN
    runs = NODES if volumes else AGAIN.get(change, NODES - {"parcellate"})
    folder, options = finished(), CHANGES[change]
    given = options(folder, monkeypatch) if callable(options) else options
    expected = {"volumes": READ} if volumes else {}
    nodes = counted(folder / "in", folder / "nodes", *WITHIN, *EMBEDDED, "--debug", "--replace", *given)
    assert nodes == {**dict.fromkeys(runs, 1), **expected}


CHOSEN = [field.name for field in fields(Method) if field.metadata.get("section") in METHOD_SECTIONS]


@pytest.mark.parametrize("name", CHOSEN)
def test_every_choice_of_the_method_is_in_the_fingerprint_of_a_recording(name):
    plain = Method()
    value = getattr(plain, name)
    other = (not value) if isinstance(value, bool) else (Path("x"),) if isinstance(value, tuple) else f"{value}1"
    assert replace(plain, **{name: other}).configuration_hash() != plain.configuration_hash()
