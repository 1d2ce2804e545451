"""Files that other processes may read or write at the same moment."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, content: bytes) -> Path:
    """Write a file as a whole or not at all: temporary beside it, then rename.

    Parameters
    ----------
    path : Path
        Its folder is made if missing.
    content : bytes
        All of it.

    Returns
    -------
    Path
        The same path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        # mkstemp makes files that only their owner can read; an atlas in a shared folder is for everybody.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
