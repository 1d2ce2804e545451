import re

import pytest

from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.strategies import load_strategy, strategy_names

COUNTS = {"24P": 24, "27P": 27, "36P": 36, "simple": 26, "gsr_only": 1, "none": 0, "acompcor": 12, "acompcor_gsr": 13}


def write(folder, text, name="own.yml"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", strategy_names())
def test_shipped_strategies_are_sound(name):
    strategy = load_strategy(name)
    assert strategy.name == name
    assert strategy.methods.endswith(".")
    assert hash(strategy) == hash(load_strategy(name))
    assert all(re.fullmatch(r"10\.\d{4,}/\S+", doi) for doi in strategy.references)
    if name in COUNTS:
        assert len(strategy.columns) == COUNTS[name]
    assert strategy.acompcor == (5 if name.startswith("acompcor") else 0)


def test_own_strategy_from_a_file(tmp_path):
    path = write(tmp_path, "methods: Two\n  columns.\ncolumns: [csf, '^cosine\\d+$']\nacompcor: 3\n")
    strategy = load_strategy(path)
    assert strategy.name == "own"
    assert strategy.methods == "Two columns."
    assert strategy.columns == ("csf", r"^cosine\d+$")
    assert strategy.acompcor == 3
    assert load_strategy(str(path)) == strategy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- csf\n", "must have the keys"),
        ("columns: [csf]\n", "'methods' is missing"),
        ("methods: A.\n", "'columns' is missing"),
        ("methods: A.\ncolumns: [csf]\ncolums: []\n", "'colums' is not known"),
        ("methods: A.\ncolumns: csf\n", "must be a list of names"),
        ("methods: A.\ncolumns: [1]\n", "must be a list of names"),
        ("methods: ''\ncolumns: []\n", "'methods' must be text"),
        ("name: 3\nmethods: A.\ncolumns: []\n", "'name' must be text"),
        ("methods: A.\ncolumns: []\nacompcor: true\n", "number of components"),
        ("methods: A.\ncolumns: []\nacompcor: -1\n", "number of components"),
        ("methods: A.\ncolumns: ['^csf']\n", "end with"),
        ("methods: A.\ncolumns: ['csf$']\n", "begin with"),
        ("methods: A.\ncolumns: ['^(csf$']\n", "not a regular expression"),
        ("methods: A.\ncolumns: !!python/object/apply:os.getcwd []\n", "cannot be read as YAML"),
        ("methods: [\n", "cannot be read as YAML"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence_with_its_name(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(UsageError, match=message) as caught:
        load_strategy(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
