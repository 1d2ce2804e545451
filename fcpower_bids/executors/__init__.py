"""Workers of both levels; a task touches nothing else, so every executor gives the same numbers to the last bit."""

from fcpower_bids.executors.contract import Executor, WorkersLost
from fcpower_bids.executors.select import executing, map_tasks, processes

__all__ = ["Executor", "WorkersLost", "executing", "map_tasks", "processes"]
