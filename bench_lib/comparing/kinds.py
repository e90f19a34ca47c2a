"""What kind of time a metric is: that of the whole, of a part of it, or one that a process pays once."""

from bench_lib.comparing.changes import CaseChange

ONCE = frozenset({"first", "init", "tuning", "first_cold", "first_warm", "first_walk"})  # in a process
PARTS = frozenset({"forward", "backward", "optimizer", "exchange", "communication"})  # of a step
STEP = "step"


def is_whole(row: CaseChange) -> bool:
    """Whether it is a time that comes again and is no part of another one."""
    return row.metric not in ONCE and row.metric not in PARTS
