"""The levels and commands: plan, lock, run, collect statuses; and the nipype workflow of a recording."""
