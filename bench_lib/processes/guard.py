"""Run as a script, `guard.py PID COMMAND...` runs a command and leaves no process of it behind.

kill -9 of a campaign must not leave its measuring process on the GPU, nor the processes which that has
started. So this one stands between the two: it adopts what loses its parent, and ends all of it when
the command has ended or process PID is gone. It sleeps meanwhile, and ends as the command did.
It imports nothing of the suite: `python -I -S` runs it, so that it is there at once.
"""

import ctypes
import os
import resource
import signal
import sys
import time

END_ALL = signal.SIGUSR1  # from the kernel when PID ends, and from a watchdog
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_WAITED = {signal.SIGCHLD, END_ALL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_KILL_SECONDS = 10.0  # a process inside a driver may take its time to die


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process `number` when its parent ends; it stays set over exec."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def descendants(root: int) -> list[int]:
    """Every living process below `root`, children before their children."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208  plain names, and fast
        try:
            with open(f"/proc/{name}/stat", "rb") as stream:  # noqa: PTH123
                state, parent = stream.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):  # it has just ended
            continue
        if state != b"Z":
            children.setdefault(int(parent), []).append(int(name))
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def end_all_below() -> None:
    """Kill every process below this one, until none is left: some may be started meanwhile."""
    deadline = time.monotonic() + _KILL_SECONDS
    while (pids := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.005)


def keep(parent: int, command: list[str]) -> int:
    """Run the command to its end, or until `parent` ends; the wait status of the command."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)  # a signal to the group is for the command
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    die_with_parent(END_ALL)
    if os.getppid() != parent:  # it died before prctl could see it
        sys.exit(1)
    child = os.fork()
    if child == 0:
        die_with_parent()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED)
        os.execvp(command[0], command)  # noqa: S606  no shell is wanted
    while (status := _reaped(child)) is None:
        if signal.sigwait(_WAITED) == END_ALL:
            end_all_below()
    end_all_below()
    _reaped(child)  # else they wait for the machine's first process, which in a container may never look
    return status


def _reaped(child: int) -> int | None:
    """Let go of the dead; the status of `child` once it is one of them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        found = status if pid == child else found


def end_as(status: int) -> None:
    """End this process as another one has ended: by the same signal, or with the same code."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core file is enough
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    end_as(keep(int(sys.argv[1]), sys.argv[2:]))
