"""What a case leaves behind: memory that it did not give back, processes that still run."""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench_lib.errors import CudaGainsError
from bench_lib.processes.guard import descendants

if TYPE_CHECKING:
    from bench_lib.device.gpu import Gpu

# A library that is loaded, a workspace that is made at the first call are no leak: they are smaller.
_HOST_NBYTES = 512 << 20
_DEVICE_NBYTES = 512 << 20
_HELPERS = (b"multiprocessing.forkserver", b"multiprocessing.resource_tracker", b"compile_worker")
_END_SECONDS = 5.0


@dataclass(frozen=True)
class Memory:
    """Bytes in use: anonymous memory of this process, and memory of the device by anyone."""

    host_nbytes: int = 0
    device_nbytes: int = 0

    @classmethod
    def now(cls, gpu: "Gpu | None") -> "Memory":
        """What is in use now; 0 where it cannot be told."""
        return cls(_anonymous_nbytes(), _device_nbytes(gpu))

    def grown(self, before: "Memory") -> "Memory":
        """How much more it is than `before`."""
        return Memory(self.host_nbytes - before.host_nbytes, self.device_nbytes - before.device_nbytes)

    def sentences(self) -> list[str]:
        """What of it, as growth over a case, is worth a warning."""
        told = []
        if self.host_nbytes >= _HOST_NBYTES:
            told.append(f"it left {self.host_nbytes / 2**30:.1f} GiB of host memory allocated")
        if self.device_nbytes >= _DEVICE_NBYTES:
            told.append(f"it left {self.device_nbytes / 2**30:.1f} GiB of device memory allocated")
        return told


def _anonymous_nbytes() -> int:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return 0


def _device_nbytes(gpu: "Gpu | None") -> int:
    if gpu is None:
        return 0
    try:
        free, total = gpu.context.memory_info()
    except CudaGainsError:  # a dead context
        return 0
    return total - free


def children() -> set[int]:
    """Processes that this one has started itself and that still run, without helpers of libraries."""
    return {pid for pid in _direct() if not _is_helper(pid) and _command_line(pid)}


def _direct() -> set[int]:
    """Children of every thread; where the kernel keeps no list of them, all of /proc is looked at."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").glob("*"):
        try:
            found |= set(map(int, (thread / "children").read_text().split()))
        except FileNotFoundError:
            if thread.exists():
                return {pid for pid in descendants(os.getpid()) if _parent(pid) == os.getpid()}
    return found


def end_forks(pids: set[int]) -> list[str]:
    """End what has been forked off this process and never became another program; sentences on all.

    Others are told of and left alone, as are those of multiprocessing: somebody may still ask them.
    """
    owned = {process.pid for process in multiprocessing.active_children()}
    own = _command_line(os.getpid())
    forks = {pid for pid in pids - owned if _command_line(pid) == own}
    for pid in forks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in forks:
        _reap(pid)
    others = pids - owned - forks
    return [
        *([f"it left {len(forks)} forked processes running, which were ended"] if forks else []),
        *(f"it left process {pid} running ({_name(pid)})" for pid in sorted(others)),
    ]


def end_all(pids: set[int]) -> None:
    """End processes and all that they have started."""
    below = [below for pid in pids for below in descendants(pid)]
    for pid in (*pids, *below):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in pids:
        _reap(pid)


def _reap(pid: int) -> None:
    deadline = time.monotonic() + _END_SECONDS
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.002)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_helper(pid: int) -> bool:
    return any(name in _command_line(pid) for name in _HELPERS)


def _name(pid: int) -> str:
    """The program alone: an argument may be a secret."""
    return os.fsdecode(_command_line(pid).partition(b"\0")[0]) or sys.platform
