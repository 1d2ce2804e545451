import re

import pytest

from fcpower_bids.demo.design import FMRIPREP_VERSIONS, DemoDesign
from fcpower_bids.demo.layout import describe_files, encode_table, name_files, name_recording

ORDER = [
    "sub",
    "ses",
    "task",
    "acq",
    "ce",
    "rec",
    "dir",
    "run",
    "echo",
    "part",
    "space",
    "cohort",
    "atlas",
    "seg",
    "scale",
    "res",
    "den",
    "desc",
]
NAME = re.compile(r"(?:[a-z]+-[A-Za-z0-9]+_)+(bold|mask|timeseries|regressors)")


@pytest.mark.parametrize("version", FMRIPREP_VERSIONS)
def test_names_keep_the_order_of_the_specification(version):
    names = name_files(name_recording("01", "a", 2), DemoDesign(fmriprep_version=version))
    for name in names.values():
        assert NAME.fullmatch(name)
        keys = [part.split("-")[0] for part in name.split("_")[:-1]]
        assert keys == sorted(keys, key=ORDER.index)
        assert name.startswith("sub-01_ses-a_task-rest_run-2_")
    assert len(set(names.values())) == 3


def test_names_of_two_generations():
    def names(version):
        return name_files("sub-01_ses-a_task-rest_run-1", DemoDesign(fmriprep_version=version))

    scan = "sub-01_ses-a_task-rest_run-1"
    assert names("25.1.0")["confounds"] == f"{scan}_desc-confounds_timeseries"
    assert names("1.4.0")["confounds"] == f"{scan}_desc-confounds_regressors"
    assert names("25.1.0")["bold"] == f"{scan}_space-MNI152NLin2009cAsym_res-2_desc-preproc_bold"


def test_sidecars_say_the_repetition_time():
    assert describe_files(DemoDesign(repetition_time=1.5))["bold"]["RepetitionTime"] == 1.5


def test_tables_need_columns_of_one_length():
    assert encode_table({"a": [1, 2], "b": ["x", "n/a"]}) == "a\tb\n1\tx\n2\tn/a\n"
    with pytest.raises(ValueError, match="shorter"):
        encode_table({"a": [1, 2], "b": [1]})
