"""Outputs of the participant level that were damaged later, met by the group level through the command."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from fcpower_bids.outputs.tables import read_matrix, read_table, write_array, write_json
from tests.command import main
from tests.planting.participant_outputs import make_outputs


@pytest.fixture
def start(tmp_path, capsys):
    settings = make_outputs(tmp_path, people=8)

    def group(*options):
        places = [str(settings.bids_dir), str(settings.output_dir), "group", "-w", str(tmp_path / "w")]
        code = main([*places, "--min-time", "60", "--quiet", "--analyses", *options])
        return code, capsys.readouterr().err

    return settings.output_dir, group


def series(out, name):
    (path,) = out.rglob(f"{name}_*_timeseries.tsv")
    return path


def as_array(path):
    values, names = read_matrix(path)
    path.unlink()
    write_json(path.with_suffix(".json"), {"Columns": names})
    return write_array(path.with_suffix(".npy"), values.astype(np.float32))


def test_a_series_that_is_cut_short_leaves_its_recording_out_by_name(start):
    out, group = start
    in_a_number, in_a_row, empty = (series(out, f"sub-0{n}_ses-a") for n in (1, 2, 3))
    in_a_number.write_text(in_a_number.read_text()[:-9])
    in_a_row.write_text("\t".join(in_a_row.read_text().split("\t")[:-3]) + "\n")
    empty.write_text("")
    array, without_header, garbled, _whole = (as_array(series(out, f"sub-0{n}_ses-b")) for n in (1, 2, 3, 4))
    array.write_bytes(array.read_bytes()[:-4])
    without_header.write_bytes(without_header.read_bytes()[:40])
    garbled.write_bytes(garbled.read_bytes()[:10] + b"\xff" * 30 + garbled.read_bytes()[40:])
    code, err = group("fingerprinting")
    assert code == 0, err
    told = read_table(out / "group" / "excluded.tsv")
    rows = told[told["what"] == "recording"]
    damaged = {path.name for path in (in_a_number, in_a_row, empty, array, without_header, garbled)}
    assert {
        f"{reason.partition(': ')[2].partition(' is cut short: remove ')[0]}" for reason in rows["reason"]
    } == damaged
    assert len(rows) == len(damaged)
    assert len(read_table(out / "group" / "scans.tsv")) == 10


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text.replace("\t0.", "\tx.", 1), "is not a numeric table (it holds words)"),
        (lambda text: "".join(text.splitlines(keepends=True)[:30]), "has 29 of the 40 volumes"),
    ],
)
def test_a_series_with_words_in_it_or_without_its_last_rows_is_named(start, damage, words):
    out, group = start
    path = series(out, "sub-01_ses-a")
    path.write_text(damage(path.read_text()))
    write_json(path.with_suffix(".json"), {"NumberOfVolumesUsed": 40})
    code, err = group("learning_curves", "--targets", "age", "--folds", "3", "--inner-folds", "2", "--repeats", "1")
    assert code == 3
    assert f"{path} {words}" in err
    assert "Remove it and run participant level" in err


def test_an_input_folder_that_is_not_there_is_no_cohort_without_phenotypes(start, tmp_path):
    out, group = start
    (tmp_path / "bids").rename(tmp_path / "moved")
    code, err = group("fingerprinting")
    assert code == 3
    assert f"The input folder {tmp_path / 'bids'} does not exist" in err
    assert not (out / "group").exists()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text.replace("LH_b\t", "LH_b\t\t"), "has 4 fields in line 3 where its header has 3"),
        (lambda text: text[: text.index("LH_f") + 2], "has 2 fields in line 7 where its header has 3"),
        (lambda text: text.encode("utf-32").decode("latin-1"), "is encoded as UTF-32"),
        (lambda text: text.replace("network", "net"), "has no column 'network'"),
        (lambda text: text.replace("LH_b", "LH_a"), "has the parcel LH_a twice"),
        (lambda text: text.split()[1] + "\n", "has no column 'network'"),
    ],
)
def test_a_damaged_atlas_table_is_a_plain_sentence(start, damage, words):
    out, group = start
    (path,) = out.rglob("*_dseg.tsv")
    path.write_text(damage(path.read_text()), encoding="latin-1")
    code, err = group("fingerprinting")
    assert code == 3
    assert f"{path} {words}. Remove it and run the participant level again." in err


def test_pipes_in_the_place_of_files_are_not_waited_for(start):
    out, group = start
    fc = next(out.rglob("sub-01_ses-a_*correlation_relmat.tsv"))
    for path in (fc, out / "logs" / "settings.toml"):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    (out / "logs" / "status" / "._sub-01_ses-a.json").write_bytes(b"\0\5\26\7")  # as macOS leaves them
    code, err = group("fingerprinting")
    assert code == 0, err
    told = read_table(out / "group" / "excluded.tsv")
    assert f"{fc.name} is a folder, a pipe or a device" in " ".join(told["reason"])
    assert main([str(out.parent / "bids"), str(out), "group", "--reports-only"]) == 0
    shutil.rmtree(out)  # nobody may wait for the pipes later
