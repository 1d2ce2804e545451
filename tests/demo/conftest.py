import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.demo.signals import load_head


@pytest.fixture(scope="session")
def head():
    return load_head()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Folder and truth of a tiny dataset with noise and nuisance."""
    folder = tmp_path_factory.mktemp("demo") / "tiny"
    return folder, make_dataset(folder, DemoDesign.tiny())


@pytest.fixture(scope="session")
def exact(tmp_path_factory):
    """The same without noise and nuisance: the voxels hold the clean series."""
    folder = tmp_path_factory.mktemp("demo") / "exact"
    return folder, make_dataset(folder, DemoDesign.tiny(noise=0, nuisance=0))


@pytest.fixture(scope="session")
def troubled(tmp_path_factory):
    """Four participants with every trouble."""
    folder = tmp_path_factory.mktemp("demo") / "troubled"
    return folder, make_dataset(folder, DemoDesign.tiny(subjects=4, troubles=True))
