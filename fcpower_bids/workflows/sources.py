"""Sources that the group level reads besides the outputs of the participant level: whatever slices bring."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fcpower_bids import plugins
from fcpower_bids.errors import FcPowerError, UsageError
from fcpower_bids.settings import Settings


@dataclass(frozen=True)
class Source:
    """A kind of sources: whether ``--derivatives`` names any, and what brings them into the output folder."""

    is_named: Callable[[Settings], bool]
    bring: Callable[[Settings], None]


def import_sources(settings: Settings) -> None:
    """Bring what ``--derivatives`` names into the output folder, as far as it is not there unchanged.

    Raises UsageError, DatasetError.
    """
    if settings.derivatives and not plugins.places("sources"):
        raise UsageError("This installation has nothing that reads --derivatives at group level. Leave the option out.")
    for source in plugins.load("sources"):
        source.bring(settings)


@contextmanager
def untouched(settings: Settings) -> Iterator[Settings]:
    """Give the settings an output folder that may be written to and goes away: what is there now, and what comes in.

    Without sources nothing comes in, and the settings stay as they are.

    Raises FcPowerError.
    """
    if not any(source.is_named(settings) for source in plugins.load("sources")):
        yield settings
        return
    with TemporaryDirectory(prefix="fcpower_bids-") as folder:
        copy = Path(folder, "out")
        if settings.output_dir.is_dir():  # links are replaced by what is written, not written through
            without = shutil.ignore_patterns("work", "group", "claims")
            shutil.copytree(settings.output_dir.absolute(), copy, ignore=without, copy_function=os.symlink)
        try:
            yield replace(settings, output_dir=copy, work_dir=Path(folder, "work"))
        except FcPowerError as error:
            raise type(error)(str(error).replace(str(copy), str(settings.output_dir))) from error
