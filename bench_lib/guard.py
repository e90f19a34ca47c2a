"""Run as a script, `guard.py PID COMMAND...` becomes a command that is killed when process PID dies.

kill -9 of a campaign must not leave its measuring process on the GPU. It is a script of its own
because setting this between fork and exec is not safe in a parent with threads.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h; stays set over exec


def become(parent: int, command: list[str]) -> None:
    """Replace this process by `command`; it gets SIGKILL when its parent `parent` ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before prctl could see it
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606  no shell is wanted


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
