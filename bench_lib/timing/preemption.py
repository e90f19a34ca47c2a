"""Whether the host thread lost its core inside a sample, for so long that the sample is in doubt."""

import os
import threading
from functools import cache
from typing import NamedTuple

from bench_lib.device.telemetry import involuntary_switches

# What a switch can cost at most, where the kernel does not tell: about one slice of the scheduler.
_SLICE_SECONDS = 0.004
_DOUBTED_SHARE = 0.01


class Preemptions(NamedTuple):
    """How often this thread has lost its core so far, and how long it has waited for one, where told."""

    switches: int
    waited_seconds: float | None = None


def preemptions() -> Preemptions:
    """The count now; the wait is the kernel's run delay (/proc/.../schedstat, its second number)."""
    return Preemptions(involuntary_switches(), _waited_seconds(os.getpid(), threading.get_native_id()))


def doubted(before: Preemptions, after: Preemptions, wall_seconds: float) -> bool:
    """Whether more than 1 % of the time between was lost: in long samples a few switches are ordinary
    and cost nothing that can be seen. A wait without a switch is of a thread that went to sleep itself.
    """
    switches = after.switches - before.switches
    lost_seconds = switches * _SLICE_SECONDS
    if before.waited_seconds is not None and after.waited_seconds is not None:
        lost_seconds = after.waited_seconds - before.waited_seconds
    return switches > 0 and lost_seconds > _DOUBTED_SHARE * wall_seconds


def _waited_seconds(process: int, thread: int) -> float | None:
    opened = _schedstat(process, thread)
    return None if opened is None else int(os.pread(opened, 100, 0).split()[1]) / 1e9


@cache
def _schedstat(process: int, thread: int) -> int | None:
    """A descriptor kept for the thread's life, as it is read around every sample; None without one."""
    try:
        return os.open(f"/proc/{process}/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
