"""`python -m bench_lib.containers.inside LOCK COMMAND...`: the first process of a container.

Runs the command and hands signals on to it. An engine leaves a container running when whoever started it
is killed; so this one waits for the lock on the file LOCK, which the kernel frees when its owner ends,
however it ends, and then ends too, with all that it has started. LOCK may be "".
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from bench_lib.processes import guard

_HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_with(lock: Path) -> None:
    """Wait until nobody holds the lock any more, then end this process and all below it."""
    with contextlib.suppress(OSError), lock.open("rb") as stream:  # some shared file systems have no locks
        fcntl.flock(stream, fcntl.LOCK_SH)
        guard.end_all_below()
        os._exit(1)


def main() -> None:
    """Run the command to its end; the exit code is its own, 128 and more for a signal."""
    lock, *command = sys.argv[1:]
    child = subprocess.Popen([sys.executable, *command], process_group=0)

    def hand_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)

    for number in _HANDED_ON:
        signal.signal(number, hand_on)
    if lock:
        threading.Thread(target=end_with, args=(Path(lock),), daemon=True).start()
    code = child.wait()
    guard.end_all_below()
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
