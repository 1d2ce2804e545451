"""``fcpower_bids combine``: outputs of single jobs become those of one run, or nothing is written."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile

import pytest

from fcpower_bids.cli.run import main

ALL = ("logs/status.tsv", "logs/combined.tsv", "index.html", "dataset_description.json")


def contents(folder):
    """Files of outputs by place, but those that tell of all recordings and what a job keeps for itself."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes()
        for name, path in files.items()
        if not name.startswith(("work/", "logs/claims/", "logs/asked/", "logs/command_")) and name not in ALL
    }


def part(outputs, folder, word):
    """Outputs of one job: files that name what it processed, and those that every job writes."""
    for name, content in contents(outputs).items():
        if word in name or not (name.startswith("sub-") or "/status/" in name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    return folder


def packed(folder, zipped, root="fcpower/"):
    with zipfile.ZipFile(zipped, "w") as archive:
        for name, content in contents(folder).items():
            archive.writestr(f"{root}{name}", content)
    return zipped


def no_older_than_its_table(array):
    """Else the group level would read the text to be sure."""
    return array.stat().st_mtime_ns >= array.with_suffix(".tsv").stat().st_mtime_ns


@pytest.fixture(scope="module")
def people(exact_run):
    return sorted(path.name for path in exact_run.output.glob("sub-*") if path.is_dir())


@pytest.fixture
def jobs(exact_run, people, tmp_path):
    """A folder with a zip for every participant but the last, whose outputs are a folder, and something else."""
    merged = tmp_path / "merged"
    for person in people[:-1]:
        packed(part(exact_run.output, tmp_path / person, person), merged.parent / f"{person}.zip")
    merged.mkdir()
    for zipped in tmp_path.glob("*.zip"):
        zipped.rename(merged / zipped.name)
    part(exact_run.output, merged / "last", people[-1])
    (merged / "code").mkdir()
    (merged / "last" / "logs" / "status" / "._x.json").write_bytes(b"\0\5\26\7")  # as macOS leaves them
    return merged


def test_jobs_of_single_people_become_the_outputs_of_one_run(exact_run, jobs, tmp_path, capsys):
    out = tmp_path / "out"
    first = next(jobs.glob("*.zip"))
    for sources in ([first], [jobs]):  # some of them, then all
        assert main(["combine", str(out), *map(str, sources)]) == 0
    assert contents(out) == contents(exact_run.output)
    assert (out / "logs" / "status.tsv").read_bytes() == (exact_run.output / "logs" / "status.tsv").read_bytes()
    assert (out / "index.html").is_file()
    assert "no page" not in capsys.readouterr().out
    assert all(no_older_than_its_table(array) for array in out.rglob("*_relmat.npy"))


def test_choices_of_the_group_level_of_a_source_stay_there(exact_run, tmp_path):
    job = shutil.copytree(exact_run.output, tmp_path / "job", ignore=shutil.ignore_patterns("work"))
    for name in ("settings_group.toml", "settings_group_dose.toml", "command_group.txt"):
        (job / "logs" / name).write_text('targets = ["age"]\n')
    assert main(["combine", str(tmp_path / "out"), str(job)]) == 0
    assert not [
        path for path in (tmp_path / "out" / "logs").iterdir() if path.name.startswith(("settings_", "command_"))
    ]


def test_sessions_that_came_apart_get_no_page_that_lacks_one(exact_run, people, tmp_path, capsys):
    sessions = sorted(path.name for path in (exact_run.output / people[0]).glob("ses-*"))
    assert len(sessions) > 1
    parts = [part(exact_run.output, tmp_path / session, f"{people[0]}_{session}") for session in sessions]
    for folder in parts:
        (folder / f"{people[0]}.html").write_text("one session")
    assert main(["combine", str(tmp_path / "out"), *map(str, parts)]) == 0
    assert f"no page: 1 participant whose sessions came apart ({people[0]})" in capsys.readouterr().out
    assert not (tmp_path / "out" / f"{people[0]}.html").exists()
    assert len(list((tmp_path / "out" / "logs" / "status").iterdir())) == len(sessions)


@pytest.mark.parametrize("site", ["", "siteA="])
def test_a_folder_of_jobs_gives_all_of_them(exact_run, people, tmp_path, site):
    jobs = tmp_path / "jobs"
    halves = [part(exact_run.output, jobs / name, word) for name, word in zip(("j1", "j2"), people, strict=False)]
    for again in (False, True):  # the second time the jobs are zips: one for all, with a folder for each
        if again:
            with zipfile.ZipFile(jobs / "all.zip", "w") as archive:
                for folder in halves:
                    for name, content in contents(folder).items():
                        archive.writestr(f"{folder.name}/{name}", content)
            for folder in halves:
                shutil.rmtree(folder)
        out = jobs / f"out{again}"
        for _ in range(2):  # the outputs of all lie among the jobs, and are none of them
            assert main(["combine", str(out), f"{site}{jobs}"]) == 0
            assert sorted(path.name for path in out.glob("sub-*") if path.is_dir()) == people[:2]
        assert str(out) not in (out / "logs" / "combined.tsv").read_text()
        shutil.rmtree(out)


def status_of(folder):
    return next((folder / "logs" / "status").iterdir())


def change(folder, **values):
    path = status_of(folder)
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def damaged(one, other):
    zipped = packed(other, other.parent / "other.zip")
    zipped.write_bytes(zipped.read_bytes()[:-2000])
    return zipped, "cannot be read"


def outside(one, other):
    with zipfile.ZipFile(packed(other, other.parent / "other.zip"), "a") as archive:
        archive.writestr("fcpower/../../x", "x")
    return other.parent / "other.zip", "outside of the outputs"


def file_and_folder(one, other):
    with zipfile.ZipFile(packed(other, other.parent / "other.zip"), "a") as archive:
        for name in ("evil", "evil/x.txt"):
            archive.writestr(f"fcpower/sub-01/{name}", "x")
    return other.parent / "other.zip", "sub-01/evil is a file in"


def file_of_one_that_is_a_folder_of_the_other(one, other):
    for place in (one / "code", other / "code" / "x"):
        place.parent.mkdir(exist_ok=True)
        place.write_text("x")
    return other, f"code is a file in {one} and a folder in {other}."


def empty(one, other):
    shutil.rmtree(other / "logs")
    return other, "holds no outputs"


def two_ends(one, other):
    shutil.copy(status_of(one), other / "logs" / "status")
    path = other / "logs" / "status" / status_of(one).name
    path.write_text(json.dumps(json.loads(path.read_text()) | {"state": "failed"}))
    return other, "otherwise"


def other_content(one, other):
    shutil.copytree(one, other, dirs_exist_ok=True)
    table = next(path for path in sorted(other.rglob("*_relmat.tsv")) if path.name in {p.name for p in one.rglob("*")})
    table.write_bytes(table.read_bytes()[:-100])
    return other, f"{table.name} is in {one} and, with other content, in"


def other_atlas(one, other):
    (table,) = other.glob("sourcedata/atlases/*/*_dseg.tsv")
    table.write_text(table.read_text().rpartition("\n60\t")[0] + "\n")
    return other, "the atlas was changed between them. Process all with one."


def not_there(one, other):
    return other.parent / "nowhere", "There is no"


def other_choices(one, other):
    change(other, fingerprint="0.0.1;another;0")
    return other, "other versions or with other choices"


def no_status(one, other):
    status_of(other).write_text("[1, 2]")
    return other, "is no status"


@pytest.mark.parametrize(
    "fault",
    [
        *(damaged, no_status, outside, empty, two_ends, other_content, other_choices, other_atlas, not_there),
        *(file_and_folder, file_of_one_that_is_a_folder_of_the_other),
    ],
)
def test_what_cannot_be_combined_is_told_and_nothing_is_written(exact_run, people, tmp_path, capsys, fault):
    one, other = (part(exact_run.output, tmp_path / person, person) for person in people[:2])
    source, words = fault(one, other)
    assert main(["combine", str(tmp_path / "out"), str(one), str(source)]) == 3
    said = capsys.readouterr().err
    assert words in said
    assert str(source) in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["dataset_description.json", "exclude.tsv", "logs/settings.toml", "descriptions.tsv"])
@pytest.mark.parametrize("zipped", [False, True])
def test_a_damaged_file_is_named_as_the_source_has_it(exact_run, people, tmp_path, capsys, name, zipped):
    folder = part(exact_run.output, tmp_path / "job", people[0])
    (folder / name).write_bytes(b"\xff{")
    source, inside = (tmp_path / "job.zip", "fcpower/") if zipped else (folder, "")
    if zipped:
        with zipfile.ZipFile(packed(folder, source), "a") as archive:
            if name in ALL:  # what `packed` leaves out
                archive.write(folder / name, f"fcpower/{name}")
    assert main(["combine", str(tmp_path / "out"), str(source)]) == 3
    told = capsys.readouterr().err
    assert f"{source}/{inside}{name} " in told
    assert ".part" not in told
    assert not (tmp_path / "out").exists()


def test_what_a_killed_combination_left_is_swept_by_the_next(exact_run, tmp_path):
    """Killed while it stages, and while it writes the tables that it alone writes."""
    script = (
        "import os, signal, sys\n"
        "from fcpower_bids.cli.run import main\n"
        "from fcpower_bids.slices.sharing import merge\n"
        "def killed(*words, **more):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "setattr(merge, sys.argv[1], killed)\n"
        "main(['combine', *sys.argv[2:]])\n"
    )
    for name in ("merge_shared", "_take"):
        words = [sys.executable, "-c", script, name, str(tmp_path / "all"), str(exact_run.output)]
        assert subprocess.run(words, check=False).returncode == -9
        assert list(tmp_path.glob(".all.*.part")), name
    (tmp_path / ".another.0123456789abcdef.part").mkdir()
    (tmp_path / "all" / f".participants.tsv.{'0' * 16}.part").write_text("x")
    assert main(["combine", str(tmp_path / "all"), str(exact_run.output)]) == 0
    assert [path.name for path in tmp_path.glob(".*")] == [".another.0123456789abcdef.part"]
    assert not list((tmp_path / "all").rglob(".*.part"))
    assert not (tmp_path / "all" / "logs" / "claims").exists()


def test_a_zip_with_a_wrong_checksum_and_a_link_out_of_a_source_are_refused_before_anything_is_written(
    exact_run, people, tmp_path, capsys
):
    source = part(exact_run.output, tmp_path / "job", people[0])
    zipped = packed(source, tmp_path / "job.zip")
    with zipfile.ZipFile(zipped) as archive:
        last = max(archive.infolist(), key=lambda one: one.header_offset)
    content = bytearray(zipped.read_bytes())
    content[last.header_offset + 30 + len(last.filename) + last.compress_size // 2] ^= 1
    zipped.write_bytes(content)
    secret = tmp_path / "secret.tsv"
    secret.write_text("x")
    (source / "sub-secret.tsv").symlink_to(secret)
    for place, said in ((zipped, "cannot be read to its end"), (source, "leads out of that folder")):
        assert main(["combine", str(tmp_path / "all"), str(place)]) == 3
        assert said in capsys.readouterr().err
        assert sorted(path.name for path in tmp_path.iterdir()) == ["job", "job.zip", "secret.tsv"]


def test_a_file_in_the_place_of_the_folder_is_named(exact_run, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("mine")
    for place in (file, file / "out"):
        assert main(["combine", str(place), str(exact_run.output)]) == 2
        assert f"{file} is a file" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_a_folder_within_what_is_combined_is_refused(exact_run, capsys):
    place = exact_run.output / "all"
    assert main(["combine", str(place), str(exact_run.output)]) == 2
    assert f"{place} lies in {exact_run.output}" in capsys.readouterr().err
    assert not place.exists()
