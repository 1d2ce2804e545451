"""The errors that a user is meant to read: one plain sentence with the file and the remedy."""

from __future__ import annotations

import errno
from tokenize import TokenError

DAMAGED_ARRAY = (ValueError, EOFError, SyntaxError, TokenError)
"""Exceptions of numpy for an array file with a damaged header or missing content."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Numbers of the errors of the system when nothing more can be written: full, over quota, too large, read-only."""

CLOSED = (errno.EACCES, errno.EPERM)
"""Those when a place may not be entered or written to."""


class FcPowerError(Exception):
    """An error whose message is written for the person at the keyboard; it is shown without a traceback."""

    exit_code = 1


class UsageError(FcPowerError):
    """The command line or the configuration file asks for something impossible."""

    exit_code = 2


class DatasetError(FcPowerError):
    """The input dataset as a whole cannot be used (missing, unreadable, ambiguous)."""

    exit_code = 3


class RecordingError(FcPowerError):
    """One recording cannot be processed; the others go on."""

    exit_code = 4


class Incomplete(FcPowerError):
    """A part of the request failed, or all of it; finished parts are kept."""

    def __init__(self, message: str, everything: bool = False) -> None:
        super().__init__(message)
        self.exit_code = 5 if everything else 4


class Unproven(FcPowerError):
    """A model was trained and written, and is not proven to be better than random weights."""

    exit_code = 7


class Unfit(FcPowerError, ValueError):
    """Well-formed arguments whose values do not allow the computation: too few people, a constant parcel.

    The check that knows raises it, in `core` too, where it is one of the documented ``ValueError``. Above, it becomes
    the reason why a recording is excluded or an analysis left out. Any other ``ValueError`` is a mistake of ours.
    """

    exit_code = 3


class NotInCohort(Unfit):
    """A cohort lacks what an analysis needs: phenotypes, a second session, motion. Another analysis may go on."""
