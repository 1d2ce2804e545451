import pytest

from fcpower_bids.demo import __main__ as command
from fcpower_bids.demo.dataset import DemoTruth
from fcpower_bids.demo.signals import DemoDesign


def test_options_reach_the_design(monkeypatch, tmp_path, capsys):
    asked = []

    def remember(folder, design):
        asked.append((folder, design))
        return DemoTruth(("x",) * 6, (), (), *[None] * 5)

    monkeypatch.setattr(command, "make_dataset", remember)
    line = "--subjects 3 --sessions 2 --seed 5 --noise 0 --nuisance 0.5 --repetition-time 1"
    options = line.split()
    assert command.main([str(tmp_path / "d"), *options, "--space", "MNI152NLin6Asym"]) == 0
    expected = DemoDesign(subjects=3, seed=5, noise=0, nuisance=0.5, repetition_time=1, space="MNI152NLin6Asym")
    assert asked == [(tmp_path / "d", expected)]
    line = capsys.readouterr().out
    assert line.startswith("Wrote 6 recordings of 3 participants")
    assert f"fcpower_bids {tmp_path / 'd'} {tmp_path / 'd_out'} participant" in line


@pytest.mark.parametrize("options", [["--volumes", "5"], ["--subjects", "0"]])
def test_a_wrong_wish_is_one_line_and_exit_code_2(options, tmp_path, capsys):
    assert command.main([str(tmp_path / "d"), *options]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not (tmp_path / "d").exists()
