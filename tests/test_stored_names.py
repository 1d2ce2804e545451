"""Names that a file states lead nowhere out of its folder: planted in what is read, and sought in the source."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.cli.commands import CHECKSUMS, fetch_weights
from fcpower_bids.clinic.fit import CARD, REFERENCE, load_model, save_model
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.group import FinishedAnalyses
from fcpower_bids.outputs.status import write_status_table
from fcpower_bids.store import digest_of, stored_path
from tests.running import run_app

PACKAGE = Path(__file__).resolve().parents[1] / "fcpower_bids"
WORD = "the diary of the user"
"""Of the files that a name leads to: no output may hold it, and no command may remove it."""


@pytest.fixture
def outputs(exact_run, tmp_path):
    """Outputs beside a file of the user."""
    (tmp_path / "diary.tsv").write_text(f"{WORD}\n")
    (tmp_path / "diary.json").write_text(json.dumps({WORD: WORD}))
    return shutil.copytree(exact_run.output, tmp_path / "out", ignore=shutil.ignore_patterns("work"))


def absolute(output):
    return str(output.parent / "diary.tsv")


def climbing(output):
    return "sub-01/../../diary.tsv"


def linked(output):
    (output / "sub-01" / "diary.tsv").symlink_to(output.parent / "diary.tsv")
    return "sub-01/diary.tsv"


PLANTS = (absolute, climbing, linked)


def plant(output, name):
    """Name a file of the user among the outputs of a recording."""
    status = sorted((output / "logs" / "status").glob("sub-01*.json"))[0]
    facts = json.loads(status.read_text())
    status.write_text(json.dumps({**facts, "outputs": [*facts["outputs"], name]}))
    return status.stem


@pytest.mark.parametrize("kind", PLANTS)
def test_a_status_removes_no_file_of_the_user(exact_demo, outputs, tmp_path, kind):
    name = kind(outputs)
    recording = plant(outputs, name)
    found = run_app(
        exact_demo[0], outputs, "--atlas", "builtin", "--min-time", "90000", "--participant-label", "01", "--replace"
    )
    assert found.states()[recording] == "excluded"
    assert (tmp_path / "diary.tsv").read_text() == f"{WORD}\n"


@pytest.mark.parametrize("kind", PLANTS)
def test_a_status_leads_to_no_file_of_the_user(outputs, kind):
    name = kind(outputs)
    recording = plant(outputs, name)
    table = write_status_table(outputs).set_index("recording")
    if kind is not linked:
        assert table["state"][recording] == "failed"


def test_a_status_under_the_name_of_another_recording_is_none(outputs):
    one, other = sorted((outputs / "logs" / "status").glob("*.json"))[:2]
    shutil.copy(other, one)
    table = write_status_table(outputs).set_index("recording")
    assert "cannot be read" in table["reason"][one.stem]


def test_an_atlas_of_a_sidecar_leads_nowhere(exact_demo, outputs):
    for sidecar in outputs.glob("sub-01/**/func/*.json"):
        facts = json.loads(sidecar.read_text())
        if "Atlas" in facts:
            sidecar.write_text(json.dumps({**facts, "Atlas": {**facts["Atlas"], "Space": "../../../../diary"}}))
    found = run_app(exact_demo[0], outputs, "--atlas", "builtin", "--reports-only", "--participant-label", "01")
    assert found.code == 4
    assert "Traceback" not in found.err
    assert "leads out of that folder" in found.err
    assert WORD not in (outputs / "sub-01.html").read_text()


@pytest.mark.parametrize("name", ["../diary.tsv", "{0}/diary.tsv"])
def test_results_and_models_name_only_their_own(tmp_path, name):
    folder, diary, name = tmp_path / "own", tmp_path / "diary.tsv", name.format(tmp_path)
    folder.mkdir()
    diary.write_text(WORD)
    digest = FinishedAnalyses(folder)
    digest._entries = {"check": {"key": "k", "files": {name: "x"}}}
    (folder / "analyses.json").write_text(json.dumps(digest._entries))
    assert FinishedAnalyses(folder).names == []

    (folder / CHECKSUMS).write_text(f"file\tsha256\n{name}\t{digest_of(diary)}\n")
    with pytest.raises(DatasetError, match="leads out"):
        fetch_weights("fbert-1m", folder)

    nothing = pd.DataFrame(columns=list(REFERENCE.columns))
    card = json.loads((save_model(folder / "m", {"a": np.zeros(2)}, {}, nothing) / CARD).read_text())
    card["Digests"][name] = digest_of(diary)
    (folder / "m" / CARD).write_text(json.dumps(card))
    with pytest.raises(DatasetError, match="leads out"):
        load_model(folder / "m")
    assert diary.read_text() == WORD


def test_the_annex_of_a_dataset_is_no_place_outside(tmp_path):
    kept = tmp_path / ".git" / "annex" / "objects" / "x"
    kept.parent.mkdir(parents=True)
    kept.write_text("x")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x.tsv").symlink_to(kept)
    assert stored_path(tmp_path / "out", "x.tsv").read_text() == "x"


PLACE = re.compile(r"self\.(folder|path|image|settings)|.*(dir|folder|root|results|work|source|target|path|files|S)\b")
READERS = {
    "read_json",
    "load_json",
    "loads",
    "parse_json",
    "read_table",
    "read_toml",
    "DictReader",
    "ZipFile",
    "load_bundle",
    "load_values",
    "made_by",
    "program_names",
}
KNOWN = {
    # names of recordings and of runs, which are words
    "demo/dataset.py": ("folder / atlas", "folder / name", "source / name"),
    "outputs/status.py": (
        "output_dir / name",
        "output_dir / LOCKS / path.name",
        "output_dir / STATUSES / f'{recording}.json'",
        "output_dir / 'logs' / 'crashes' / f'{name}.txt'",
    ),
    # words of the command line
    "cli/commands.py": ("options.folder / 'weights' / name.rpartition('/')[2]", "source / file", "target / file.name"),
    "reports/person.py": ("settings.output_dir / f'{title}.html'", "output_dir / f'{page}.html'"),
    "cohort/recordings.py": ("output_dir / LOCKS / path.name",),
    "clinic/predict.py": ("output_dir / 'group' / 'predicted' / f'{name}.tsv'",),
    # names that a folder lists, and labels of such names
    "cohort/inclusion.py": ("folder / name",),
    "cohort/phenotypes.py": ("settings.bids_dir / person / f'{person}_sessions.tsv'", "settings.bids_dir / person"),
    "cohort/scans.py": (
        "output_dir / 'sourcedata' / 'atlases' / template / f'{template}_{connectome.atlas_name}_dseg.tsv'",
        "output_dir / 'sourcedata' / 'atlases' / template",
    ),
    "elsewhere/layouts.py": ("root / name", "LAYOUTS / f'{name}.yml'", "Path(folder) / name"),
    "inputs/sources.py": (
        *("results / name", "results / f'{results.name}{end}.nii.gz'"),  # of folders that are there
        "results / f'{results.name}_Atlas{kind}{end}.dtseries.nii'",
        *("root / f'sub-{label}'", "root / level"),
        "database_dir / f'{root.name}-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}'",
    ),
    # names that are ours, and numbers
    "encoders/checkpoints.py": ("target / PLAIN_MODEL.name",),
    "encoders/published/parcel_orders.py": ("files('fcpower_bids') / 'data' / 'parcel_orders' / f'{table}.tsv'",),
    "imaging/atlas_files.py": ("folder / name", "folder.parent / name"),
    "imaging/atlas.py": ("folder / f'{atlas.name}_{hashlib.sha256(content).hexdigest()[:16]}.json'",),
    "imaging/templateflow.py": (
        "folder / 'tpl-fsLR' / address.rpartition('/')[2]",
        "folder / below / name",
        "folder / below",
        "folder / name",
    ),
    "outputs/group.py": (
        *("self.folder / file", "folder / table_file(name, table.n_rows)"),
        *("folder / f'{name}.json'", "folder / f'{name}{ending}'"),
    ),
    "clinic/fit.py": ("folder / f'{stem}{digest}_model'",),
    "pretrain/packing.py": ("folder / name",),
    "pretrain/corpus.py": ("folder / name", "folder / f'{kind}-{int(shard):05d}.safetensors'"),
    # the one way, stored_path itself, and locks by the names of files of ours
    "store.py": ("folder / name", "output_dir / LOCKS / name", "output_dir / LOCKS / path.name"),
    "pretrain/train.py": ("self.path / 'checkpoints' / f'step-{step:07d}'",),
    "reports/cohort/tables.py": ("self.settings.results / f'{name}.json'",),
    "reports/methods.py": ("folder / f'CITATION{ending}'",),
    "workflows/group.py": ("settings.output_dir / LOCKS / f'group_{settings.group.name}'",),  # of the command line
    # the atlases of this run, by their entities; links to inputs lead out on purpose
    "interfaces/nodes.py": (
        "folder / f'parcels_{atlas.name}.npz'",
        "folder / f\"series_{facts['atlas']}.npz\"",
        "folder / f\"{FC}_{facts['atlas']}.npz\"",
        "folder / f\"{name}_{facts['atlas']}.npz\"",
    ),
    "interfaces/embedding.py": ("folder / f\"{facts['atlas']}.npz\"",),
    "outputs/dataset.py": (
        "output_dir / LOCKS / target.name",
        "output_dir / 'sourcedata' / 'atlases' / f'tpl-{atlas.space}'",
        "folder / f'tpl-{atlas.space}_{atlas.name}_dseg.tsv'",
        "folder / f'tpl-{atlas.space}_{atlas.name}_dseg{extension}'",
        "output_dir / unquote(link.path)",
        "output_dir / 'logs' / f'command_{of}.txt'",
        "output_dir / 'sourcedata' / 'atlases' / name",
    ),
}
"""Paths of modules that read files, made of a name that no file states, and where that is from."""


def paths_of_names(path):
    """Paths that a module makes of a folder and of something that is not written in the source."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            is_fixed = isinstance(node.right, (ast.Constant, ast.BinOp)) or (
                isinstance(node.right, ast.Name) and node.right.id.isupper()
            )
            if not is_fixed and PLACE.match(ast.unparse(node.left)):
                yield ast.unparse(node)


def reads(path):
    return any(
        getattr(node.func, "attr", getattr(node.func, "id", "")) in READERS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    )


def test_no_path_is_made_of_a_name_that_is_not_checked():
    found = {
        (path.relative_to(PACKAGE).as_posix(), made)
        for path in PACKAGE.rglob("*.py")
        if reads(path)
        for made in paths_of_names(path)
    }
    assert found == {(module, made) for module, each in KNOWN.items() if (PACKAGE / module).is_file() for made in each}
