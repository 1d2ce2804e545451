"""What can be wrong with the input: a sentence with file and remedy, the others go on; a dry run says the same."""

from __future__ import annotations

import gzip
import json
import os
import re
import resource
import shutil

import nibabel
import numpy as np
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.demo.signals import BOX
from fcpower_bids.imaging.atlas import builtin_atlas
from fcpower_bids.outputs.tables import read_matrix
from fcpower_bids.settings.options import STRATEGIES
from tests.planting.damages import damage_people, voxels
from tests.planting.trees import copy_builtin, nifti, put, zipped
from tests.running import PATIENCE, PLAIN, Finished, run_app, start_app
from tests.telling import telling

ATLAS = ("--atlas", "builtin")


def no_mask(files):
    files.mask.unlink()


def retold(change):
    """A damage of the text of the confounds table."""
    return lambda files: files.rewrite_table(change)


def holding(part, content):
    """Another content of one of its files."""
    return lambda files: put(getattr(files, part), content)


def truncated(files):
    files.bold.write_bytes(files.bold.read_bytes()[:-5000])


def other_space(files):
    for path in list(files.folder.glob("*space-*")):
        path.rename(path.with_name(path.name.replace("MNI152NLin2009cAsym", "MNIPediatricAsym")))


def piped_mask(files):
    files.mask.unlink()
    os.mkfifo(files.mask)


def mask_of_one_parcel(files):
    image = nibabel.load(files.mask)
    labels = np.asarray(nibabel.load(builtin_atlas("MNI152NLin2009cAsym", files.root.parent / "atlas").image).dataobj)
    nibabel.save(nibabel.Nifti1Image((labels[BOX] == 1).astype(np.uint8), image.affine), files.mask)


a_volume_of_nan = voxels(lambda data: data[..., 40].fill(np.nan))
short_confounds = retold(lambda text: "\n".join(text.splitlines()[:-7]) + "\n")
saved_by_a_spreadsheet = retold(lambda text: re.sub(r"([^\t\n]+)", r'"\1"', text))
a_column_twice = retold(lambda text: "".join(f"{line}\t{line.split()[0]}\n" for line in text.splitlines()))


def replaced(old, new):
    return retold(lambda text: text.replace(old, new))


def wrong_checksum(part):
    """One bit of the stored checksum; every voxel can still be read."""

    def damage(files):
        path = getattr(files, part)
        content = bytearray(path.read_bytes())
        content[-8] ^= 1
        path.write_bytes(content)

    return damage


def rewritten(change, part="mask"):
    """A damage of the bytes of an image, inflated."""

    def damage(files):
        path = getattr(files, part)
        content = bytearray(gzip.decompress(path.read_bytes()))
        change(content)
        path.write_bytes(gzip.compress(bytes(content), 1))

    return damage


longer, longer_bold = (rewritten(lambda content: content.extend(bytes(16)), part) for part in ("mask", "bold"))
data_within_the_header = rewritten(lambda content: content.__setitem__(slice(108, 112), bytes(4)))
no_orientation = rewritten(lambda content: content.__setitem__(slice(252, 256), bytes(4)))
BROKEN = {
    "02": (no_mask, "inputs", "mask", "run fMRIPrep again"),
    "04": (short_confounds, "inputs", "table", "has 73 rows, but"),
    "06": (holding("json", {"RepetitionTime": 0.8}), "inputs", "json", "0.8 s but the header"),
    "07": (truncated, "parcellate", "bold", "truncated or damaged"),
    "08": (other_space, "inputs", "folder", "only in MNIPediatricAsym. Run fMRIPrep with --output-spaces MNI"),
    "09": (a_volume_of_nan, "parcellate", "bold", "has a voxel with signal"),
    "10": (holding("mask", zipped(0)), "inputs", "mask", "different grids"),
    "03": (piped_mask, "inputs", "mask", "is a folder, a pipe or a device"),
    "05": (saved_by_a_spreadsheet, "inputs", "table", "copy the table of fMRIPrep again"),
    "12": (a_column_twice, "inputs", "table", " twice: remove or rename"),
    "13": (wrong_checksum("mask"), "parcellate", "mask", "damaged"),
    "18": (longer_bold, "parcellate", "bold", "more data follow than its header declares"),
    "17": (wrong_checksum("bold"), "parcellate", "bold", "truncated or damaged"),
    "14": (longer, "parcellate", "mask", "header declares"),
    "15": (data_within_the_header, "inputs", "mask", "within the header"),
    "19": (replaced("\t", ","), "inputs", "table", "has commas between its columns"),
    "20": (replaced("\n", "\r"), "inputs", "table", "end with a carriage return alone"),
    "21": (replaced(".", ","), "inputs", "table", "has decimal commas"),
    "22": (mask_of_one_parcel, "bandpass", "bold", "fewer than 2 parcels have a signal, so there is no connection"),
    "16": (no_orientation, "inputs", "mask", "does not say where its voxels are"),
    "23": (holding("bold", nifti()), "inputs", "bold", "is not gzip although its name says so"),
    "24": (holding("bold", b"/annex/objects/MD5E-s1--a.nii.gz\n"), "inputs", "bold", "stands for content that is no"),
    "25": (holding("bold", gzip.compress(b"no image at all")), "inputs", "bold", "cannot be read as an image"),
    "26": (holding("bold", zipped(0)), "inputs", "bold", "four dimensions"),
    "27": (holding("bold", zipped(1)), "inputs", "bold", "has a single volume"),
    "28": (holding("json", "{"), "inputs", "json", "is not valid JSON"),
    "29": (holding("json", {"RepetitionTime": 2000}), "inputs", "json", "of 2000, which cannot be seconds"),
    "30": (holding("json", '{"RepetitionTime": NaN}'), "inputs", "json", "cannot be seconds"),
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Some participants are broken; 01 is sound, and 11 has a parcel without variance."""
    root = tmp_path_factory.mktemp("broken") / "in"
    make_dataset(root, DemoDesign.tiny(subjects=1, sessions=1, volumes=80, noise=0, nuisance=0))
    atlas = builtin_atlas("MNI152NLin2009cAsym", root.parent / "atlas").image

    def flatten(data):
        data[np.asarray(nibabel.load(atlas).dataobj)[BOX] == 7] = 10_000.0

    files = damage_people(root, {"11": voxels(flatten)} | {label: damage for label, (damage, *_) in BROKEN.items()})
    own = shutil.copy(STRATEGIES / "none.yml", root.parent / "own.yml")
    given = ("--atlas", atlas, *PLAIN, "--strategy", own)
    dry = run_app(root, root.parent / "out", *given, "--dry-run", "--verbose")
    return files, run_app(root, root.parent / "out", *given), dry


def test_the_others_are_finished_and_the_exit_code_is_4(broken):
    _, found, _ = broken
    assert found.code == 4
    states = {name[4:6]: state for name, state in found.states().items()}
    assert states == {**dict.fromkeys(BROKEN, "failed"), "01": "done", "11": "done"}


@pytest.mark.parametrize("label", BROKEN)
def test_the_sentence_names_the_file_and_the_remedy(broken, label):
    files, found, _ = broken
    damage, stage, named, words = BROKEN[label]
    row = next(row for name, row in found.status().iterrows() if name.startswith(f"sub-{label}_ses-a_task-rest_run-1"))
    # A missing file is named by what lacks it, too few parcels by their atlas.
    others = {no_mask: files[label].bold, mask_of_one_parcel: "atlas-fcpowerbuiltin_scale-60"}
    name = others.get(damage, getattr(files[label], named))
    assert row["stage"] == stage
    assert str(name) in row["reason"]
    assert words in row["reason"]
    assert "Error" not in row["reason"]
    assert row["reason"] in found.err


def test_no_page_and_no_table_tells_where_the_files_at_fault_lie(broken):
    _, found, _ = broken
    assert not telling(found.output, [str(found.output.parent)], "logs", "work")


def test_a_parcel_without_variance_is_missing_and_named(broken):
    _, found, _ = broken
    coverage, _ = read_matrix(found.file("sub-11", "stat-coverage_bold.tsv"))
    fc, names = read_matrix(found.file("sub-11", "stat-pearsoncorrelation_relmat.tsv"))
    assert np.isnan(fc[6]).all()
    assert np.isfinite(np.delete(np.delete(fc, 6, 0), 6, 1)).all()
    sidecar = json.loads(found.file("sub-11", "stat-pearsoncorrelation_relmat.json").read_text())
    assert sidecar["UncoveredNodes"] + sidecar["FlatNodes"] == [names[6]]
    assert coverage[6, 0] == 0


def test_a_disk_without_room_is_a_sentence_and_leaves_nothing_half_written(exact_demo, tmp_path):
    """No file may grow beyond a limit: a connectome cannot be written."""
    options = (*ATLAS, "--participant-label", "01", "--session-label", "a")

    def set_limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))

    process = start_app(exact_demo[0], tmp_path / "out", *options, preexec_fn=set_limit)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 5, err
    assert "File too large" in err
    assert "make room" in err
    assert "Traceback" not in err
    assert not list((tmp_path / "out").rglob("*_relmat.tsv"))
    assert not list((tmp_path / "out").rglob("*.part"))
    assert run_app(exact_demo[0], tmp_path / "out", *options).code == 0


def test_two_atlases_of_one_name_are_refused_and_one_given_twice_is_one(exact_demo, tmp_path):
    one, two = (copy_builtin(tmp_path / folder / "atlas-Own_dseg") for folder in ("one", "two"))
    found = run_app(exact_demo[0], tmp_path / "out", "--atlas", one, two, code=2)
    assert all(words in found.err for words in ("would write the same files", str(one), str(two)))
    assert "Traceback" not in found.err
    assert not list((tmp_path / "out").glob("sub-*"))
    session = ("--session-label", "a", "--transforms", "power", "power")
    assert run_app(exact_demo[0], tmp_path / "out", *ATLAS, *ATLAS, *session).code == 0


LINE = re.compile(r"(failed|skipped|excluded): (\S+) at (\S+): (.*)")


def foreseen(dry: Finished) -> dict[str, tuple[str, str]]:
    """State and reason of every recording, as the dry run prints them."""
    rows = {name: (state, reason) for state, name, _, reason in map(re.Match.groups, LINE.finditer(dry.out))}
    done = re.findall(r"^(\S+): \d+ volumes every", dry.out, re.MULTILINE)
    return rows | dict.fromkeys(done, ("done", ""))


def test_a_dry_run_says_what_the_run_says_of_all_that_can_be_known_before(broken):
    _, found, dry = broken
    late = tuple(f"sub-{label}" for label, (_, stage, *_) in BROKEN.items() if stage != "inputs")
    assert "Traceback" not in dry.err + found.err
    assert dry.code == found.code
    assert f"Exit code {dry.code}:" in dry.out
    wrote = {str(name): (row.state, row.reason.removeprefix("n/a")) for name, row in found.status().iterrows()}
    both = [{name: row for name, row in rows.items() if not name.startswith(late)} for rows in (foreseen(dry), wrote)]
    assert both[0] == both[1]


REQUESTS = """
--strategy no-such
--atlas nowhere.nii.gz
--low-pass 0.012
--dummy-scans 179
--min-time 1e6
--participant-label 01 09
--space MNI152NLin6Asym
--derivatives nowhere
--encoder fbert --encoder-weights nowhere
OTHER
"""


@pytest.mark.parametrize("request_line", REQUESTS.split("\n")[1:-1])
def test_a_dry_run_ends_as_the_run_and_writes_nothing(exact_demo, tmp_path, request_line):
    out, words = tmp_path / "out", request_line.split()
    if words == ["OTHER"]:  # outputs of another program
        out.mkdir()
        (out / "dataset_description.json").write_text('{"GeneratedBy": [{"Name": "XCP-D"}]}')
        words = []
    before = sorted(tmp_path.rglob("*"))
    dry = run_app(exact_demo[0], out, *ATLAS, *words, "--dry-run", "--verbose")
    assert sorted(tmp_path.rglob("*")) == before
    run = run_app(exact_demo[0], out, *ATLAS, *words)
    assert dry.code == run.code != 0
    assert "Traceback" not in dry.err + run.err
    if dry.out:
        wrote = {str(name): (row.state, row.reason.removeprefix("n/a")) for name, row in run.status().iterrows()}
        assert foreseen(dry) == wrote
    else:
        assert dry.err == run.err
        assert not (out / "logs" / "status").exists()
