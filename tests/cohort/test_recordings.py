"""The one door: which recordings take part, by what lies in an output folder."""

from __future__ import annotations

import pytest

from fcpower_bids.cohort.features import list_connectomes
from fcpower_bids.cohort.recordings import LeftOut, selected, selected_of, tabulate_recordings
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.status import DONE, EXCLUDED, FAILED, RUNNING, Status, status_path, write_status
from fcpower_bids.settings import Settings
from tests.planting.participant_outputs import add_output, other_atlas, recording, series_of


def tree(out, *names: str):
    for number, name in enumerate(names):
        add_output(out, name, series_of(number))
    return list_connectomes(out)


def taking_part(out) -> list[str]:
    return [one.recording.partition("_task")[0] for one in selected(out).connectomes]


def test_older_files_of_a_recording_that_is_excluded_now_do_not_take_part(tmp_path):
    tree(tmp_path, "sub-01", "sub-02", "sub-03")
    write_status(tmp_path, Status(recording("sub-01").name, EXCLUDED, "clean", "Too short."))
    write_status(tmp_path, Status(recording("sub-02").name, RUNNING))
    write_status(tmp_path, Status(recording("sub-04_ses-b").name, FAILED, "parcellate", "No mask."))
    write_status(tmp_path, Status("sub-05", FAILED, "inputs", "No series."))
    write_status(tmp_path, Status(recording("sub-03").name + "_toy_embedding", FAILED, "embed", "No weights."))
    assert taking_part(tmp_path) == ["sub-03"]
    rows = [one.row() for one in selected(tmp_path).left_out]
    assert [(row.participant_id, row.session, row.what) for row in rows] == [
        ("sub-01", "n/a", "recording"),
        ("sub-02", "n/a", "recording"),
        ("sub-04", "ses-b", "recording"),
        ("sub-05", "n/a", "person"),
    ]
    assert "excluded at participant level: Too short." in rows[0].reason
    assert "run it again" in rows[1].reason


def test_a_damaged_status_and_a_lost_file_are_told(tmp_path):
    found = tree(tmp_path, "sub-01", "sub-02", "sub-03")
    for one in found:
        write_status(tmp_path, Status(one.recording, DONE, outputs=(str(one.path.relative_to(tmp_path)),)))
    status_path(tmp_path, found[0].recording).write_text('{"state": ')
    for path in found[1].path.parent.glob("*"):
        path.unlink()
    assert taking_part(tmp_path) == ["sub-03"]
    rows = [one.row() for one in selected(tmp_path).left_out]
    assert [row.participant_id for row in rows] == ["sub-01", "sub-02"]
    assert f"logs/status/{found[0].recording}.json cannot be read; run" in rows[0].reason
    assert f"{found[1].path.name} is gone: run" in rows[1].reason


def test_a_file_that_is_gone_under_one_atlas_says_nothing_of_another(tmp_path):
    for atlas in (other_atlas(), None):
        add_output(tmp_path, "sub-01", series_of(0), **({"atlas": atlas} if atlas else {}))
    one, other = list_connectomes(tmp_path)
    outputs = tuple(str(each.path.relative_to(tmp_path)) for each in (one, other))
    write_status(tmp_path, Status(one.recording, DONE, outputs=outputs))
    for path in one.path.parent.glob(f"{one.path.stem}.*"):
        path.unlink()
    assert [each.atlas_name for each in selected(tmp_path).connectomes] == [other.atlas_name]
    assert [each.atlas for each in selected(tmp_path).left_out] == [one.atlas_name]
    table = tabulate_recordings(tmp_path).set_index("atlas")["state"].to_dict()
    assert table == {one.atlas_name: "failed", other.atlas_name: "done"}


@pytest.mark.parametrize("folder", ["", "missing"])
def test_no_connectome_at_all_is_told_with_the_remedy(tmp_path, folder):
    with pytest.raises(DatasetError, match=r"has no FC files .* Run the participant level"):
        selected_of(Settings(tmp_path, tmp_path / folder, "group"))


def test_what_is_left_out_at_a_site_is_called_as_its_scans_would_be():
    """So that --participant-label means both."""
    one = LeftOut((("sub", "01"), ("task", "rest")), "", EXCLUDED, "Too short.", site="north")
    assert (one.participant, one.labels["sub"], one.session) == ("sub-north+01", "north+01", "n/a")
