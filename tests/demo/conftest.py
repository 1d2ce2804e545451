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
