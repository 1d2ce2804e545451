import pytest

from fcpower_bids.demo import DemoDesign
from fcpower_bids.errors import UsageError


def test_default_troubles_touch_the_first_four_participants_only():
    design = DemoDesign()
    assert len(design.list_recordings()) == 24 * 2 + 1
    assert design.list_recordings()[:3] == [(0, "a", 1), (0, "a", 2), (0, "b", 1)]
    assert [person for person in range(24) if design.is_incomplete(person)] == [1]
    shares = {(person, session): design.share_of_spikes(person, session) for person in range(24) for session in "ab"}
    assert {place for place, share in shares.items() if share > 0.1} == {(2, "a"), (2, "b"), (3, "b")}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"subjects": 0}, "participant"),
        ({"sessions": 27}, "lettered"),
        ({"volumes": 10}, "at least 40"),
        ({"repetition_time": 9.0}, "repetition time"),
        ({"noise": -1.0}, "noise"),
        ({"space": "fsLR"}, "MNI152NLin6Asym"),
        ({"seed": -1}, "seed"),
        ({"seed": -1, "runs": 0}, "run; the seed"),
    ],
)
def test_impossible_designs_are_refused_in_one_sentence(changes, words):
    with pytest.raises(UsageError, match=words):
        DemoDesign(**changes)
