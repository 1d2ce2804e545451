import pytest

from fcpower_bids.demo import DemoDesign
from fcpower_bids.errors import UsageError


def test_every_combination_is_one_recording():
    design = DemoDesign(subjects=3, sessions=2, runs=2, troubles=False)
    recordings = design.list_recordings()
    assert len(recordings) == len(set(recordings)) == 12
    assert recordings == sorted(recordings)


def test_default_troubles_touch_the_first_four_participants_only():
    design = DemoDesign()
    assert len(design.list_recordings()) == 24 * 2 + 1
    assert design.list_recordings()[:3] == [(0, "a", 1), (0, "a", 2), (0, "b", 1)]
    assert [person for person in range(24) if design.is_incomplete(person)] == [1]
    shares = {(person, session): design.share_of_spikes(person, session) for person in range(24) for session in "ab"}
    assert {place for place, share in shares.items() if share > 0.1} == {(2, "a"), (2, "b"), (3, "b")}


def test_tiny_takes_changes():
    assert DemoDesign.tiny(noise=0.0, subjects=3) == DemoDesign(subjects=3, volumes=80, troubles=False, noise=0.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"subjects": 0}, "participant"),
        ({"sessions": 27}, "lettered"),
        ({"volumes": 10}, "at least 40"),
        ({"repetition_time": 9.0}, "repetition time"),
        ({"noise": -1.0}, "noise"),
        ({"space": "fsLR"}, "MNI152NLin6Asym"),
        ({"fmriprep_version": "7"}, "25.1.0"),
        ({"seed": -1}, "seed"),
        ({"seed": -1, "runs": 0}, "run; the seed"),
    ],
)
def test_impossible_designs_are_refused_in_one_sentence(changes, words):
    with pytest.raises(UsageError, match=words):
        DemoDesign(**changes)
