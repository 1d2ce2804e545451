from __future__ import annotations

import pytest

from fcpower_bids.outputs.status import DONE, EXCLUDED, FAILED, RUNNING, SKIPPED, Status
from fcpower_bids.reports.accounts import STAGES, Account, judge, minutes_kept, read_accounts
from fcpower_bids.settings import Settings


def account(state, stage="write", reason="", name="sub-01_task-rest"):
    return Account(Status(name, state, stage, reason), {}, [])


@pytest.mark.parametrize(
    ("states", "level", "headline"),
    [
        ([DONE], "ok", "The recording can be used."),
        ([DONE, DONE], "ok", "Both recordings can be used."),
        ([DONE, DONE, DONE], "ok", "All 3 recordings can be used."),
        ([FAILED, FAILED], "stop", "Neither of the 2 recordings can be used."),
        ([DONE, EXCLUDED], "caution", "1 of 2 recordings can be used."),
        ([FAILED], "stop", "The recording cannot be used."),
        ([FAILED, EXCLUDED, RUNNING], "stop", "None of the 3 recordings can be used."),
        ([DONE, SKIPPED], "caution", "The recording can be used."),
        ([], "stop", "There is no recording."),
    ],
)
def test_the_headline_counts_what_can_be_used(states, level, headline):
    verdict = judge([account(state) for state in states], [], "hash")
    assert (verdict.level, verdict.headline) == (level, headline)


def test_a_failure_tells_where_and_why_in_plain_words():
    (problem,) = judge([account(FAILED, "parcellate", "The file is cut off.")], [], "").problems
    assert problem.state == "failed while averaging the voxels of each parcel"
    assert problem.reason == "The file is cut off."


def test_what_was_interrupted_says_what_to_do():
    (problem,) = judge([account(RUNNING, "bandpass")], [], "").problems
    assert problem.state == "not finished while cleaning the series"
    assert "same command again" in problem.reason


def test_a_failed_embedding_is_a_caution_and_the_recording_is_used():
    verdict = judge([account(DONE)], [Status("x_embedding", FAILED, "embed", "No weights.")], "")
    assert verdict.level == "caution"
    assert verdict.problems[0].state == "embedding failed"


def test_the_facts_are_those_of_the_tables(written):
    settings, _ = written
    accounts, embeddings = read_accounts(settings.output_dir, "01")
    verdict = judge(accounts, embeddings, settings.configuration_hash())
    facts = dict(verdict.facts)
    assert facts["Recordings"] == "2 used, 1 excluded, 1 failed"
    kept = sum(minutes_kept(one)[0] for one in accounts if one.status.state == DONE)
    assert kept == pytest.approx(2 * (200 - 5) * 2.0 / 60)
    assert facts["Minutes kept"] == f"{kept:.1f} of {3 * 200 * 2 / 60:.1f}"  # the excluded scan counts, too
    assert facts["Parcels without a value"] == "up to 1 of 24 (toy 24)"
    assert any("LH_region_023" in problem.reason for problem in verdict.problems)


def test_results_of_other_choices_are_pointed_out(written):
    settings, _ = written
    accounts, _ = read_accounts(settings.output_dir, "01")
    problems = judge(accounts, [], "other").problems
    assert sum(problem.state == "made with other choices" for problem in problems) == 3


def test_every_step_of_the_workflow_has_words(tmp_path):
    from fcpower_bids.workflows.recording import init_recording_wf

    workflow = init_recording_wf(Settings(tmp_path, tmp_path, "participant", encoder="random-init"), tmp_path, {}, "x")
    steps = set(workflow.list_node_names()) - {"inputnode", "outputnode"}
    assert len(steps) >= 6
    assert steps <= STAGES.keys()
