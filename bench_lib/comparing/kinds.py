"""What kind of time a metric is: that of the whole, of a part of it, or one that a process pays once."""

from collections.abc import Sequence

from bench_lib.comparing.changes import CaseChange

ONCE = frozenset({"first", "init", "tuning", "first_cold", "first_warm", "first_walk"})  # in a process
PARTS = frozenset({"forward", "backward", "optimizer", "exchange", "communication"})  # of a step
STEP = "step"


def is_whole(row: CaseChange) -> bool:
    """Whether it is a time that comes again and is no part of another one."""
    return row.metric not in ONCE and row.metric not in PARTS


def steps_and_calls(cases: Sequence[CaseChange]) -> tuple[list[CaseChange], list[CaseChange]]:
    """Whole steps and whole single calls; parts of a step and what is paid once are neither."""
    whole = [row for row in cases if is_whole(row)]
    return [row for row in whole if row.metric == STEP], [row for row in whole if row.metric != STEP]
