"""The errors that a user is meant to read: one plain sentence with the file and the remedy."""

from __future__ import annotations

import errno

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Numbers of the errors of the system when nothing more can be written: full, over quota, too large, read-only."""


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


class RecordingExcluded(FcPowerError):
    """One recording is sound but does not pass the quality limits that the user set."""

    exit_code = 6


class NotInCohort(ValueError):
    """A cohort lacks what an analysis needs: phenotypes, a second session, motion. Another analysis may go on."""
