"""A process that keeps one MPS daemon: started with it, and quitting it when our standard input ends.

`python -m bench_lib.mps.keeper BINARY FOLDER GPU-UUID` says `ready`, or a sentence on what went wrong.
The other end of its input is the session's: it closes when the session is done, has failed, was
interrupted or was killed, and in each of these cases the daemon is asked to quit. Nothing is killed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench_lib.mps.control import Control, last_words, processes

READY = "ready"
START_SECONDS = 20.0
CLIENTS_SECONDS = 15.0  # for clients to leave by themselves, before the daemon is asked to quit
QUIT_SECONDS = 20.0
_POLL_SECONDS = 0.05
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def folders(folder: Path) -> tuple[Path, Path]:
    """Where below the daemon's folder its pipes and its logs lie."""
    return folder / "pipe", folder / "log"


def start(control: Control, uuid: str) -> str:
    """Start the daemon for one GPU; "" or a sentence on why it did not start.

    Its output goes to a file: a daemon that kept a pipe of ours open would never let us go on.
    """
    control.pipes.mkdir()
    control.logs.mkdir()
    said = control.logs / "start"
    with said.open("w") as stream:
        try:
            code = subprocess.run(
                [control.binary, "-d"],
                env={**control.environment, "CUDA_VISIBLE_DEVICES": uuid},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                timeout=START_SECONDS,
                check=False,
            ).returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{control.binary} -d did not start a daemon: {error}"
    if code == 0 and _until(lambda: _serves(control), START_SECONDS):
        return ""
    how = "does not answer" if code == 0 else f"was not started ({control.binary} -d ended with {code})"
    return f"the MPS daemon {how}: {last_words(control.logs)}"


def end(control: Control) -> str:
    """Let clients leave, ask the daemon to quit and wait; "" or a sentence on what still runs."""
    _until(lambda: control.no_client_left() or not _ours(control), CLIENTS_SECONDS)
    control.ask("quit")
    if _until(lambda: not _ours(control), QUIT_SECONDS):
        return ""
    pids = " and ".join(map(str, _ours(control)))
    return (
        f"the MPS daemon was asked to quit and still runs after {QUIT_SECONDS:.0f} s (process {pids}); end "
        f"it with `echo quit | CUDA_MPS_PIPE_DIRECTORY={control.pipes} {control.binary}`"
    )


def _serves(control: Control) -> bool:
    """Whether the daemon is up: it answers, or its process is there beside its pipe."""
    there = bool(_ours(control)) and (control.pipes / "control").exists()
    return there or control.ask("get_server_list") is not None


def _ours(control: Control) -> list[int]:
    return sorted(pid for pid, pipes in processes().items() if pipes == str(control.pipes))


def adopt() -> None:
    """Become the parent of what loses its own: in a container nobody else would reap a daemon."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reap() -> None:
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether something came to hold within that time."""
    deadline = time.monotonic() + seconds
    while not (done := holds()) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return done


def main() -> int:
    """Keep the daemon until standard input ends, or SIGTERM asks this process to end."""
    for number in (signal.SIGINT, signal.SIGHUP):  # Ctrl-C is for the session; it lets us go
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    adopt()
    folder = Path(sys.argv[2])
    control = Control(sys.argv[1], *folders(folder))
    trouble = ""
    try:
        print(start(control, sys.argv[3]) or READY, flush=True)  # noqa: T201
        sys.stdin.read()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending already
        trouble = end(control)
        _reap()
        if not trouble:
            shutil.rmtree(folder, ignore_errors=True)
    if trouble:
        print(trouble, flush=True)  # noqa: T201
    return int(bool(trouble))


if __name__ == "__main__":
    sys.exit(main())
