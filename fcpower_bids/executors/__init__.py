"""Workers of both levels: this process, processes of this machine, Dask, or a plugin of nipype.

A task is a function of one item that touches nothing else, so what it returns does not depend on who calls it: every
executor gives the same numbers to the last bit.
"""

from fcpower_bids.executors.contract import Executor, WorkersLost
from fcpower_bids.executors.select import executing, map_tasks, processes

__all__ = ["Executor", "WorkersLost", "executing", "map_tasks", "processes"]
