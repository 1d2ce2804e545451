"""nipype interfaces: load, call one function, save.

Worker processes import this folder before they run a step, so it also passes on how much nipype may log: its own
configuration stays behind in the parent process.
"""

import logging
import os

LOG_LEVEL_VARIABLE = "FCPOWER_NIPYPE_LOG_LEVEL"

if LOG_LEVEL_VARIABLE in os.environ:
    import nipype  # noqa: F401  (its import sets the levels that are replaced here)

    for name in ("nipype.workflow", "nipype.interface", "nipype.utils"):
        logging.getLogger(name).setLevel(os.environ[LOG_LEVEL_VARIABLE])
