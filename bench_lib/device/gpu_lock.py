"""One measuring process a GPU: a lock on a file named by the device's UUID."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from bench_lib.errors import Refused

FOLDER_VARIABLE = "CUDA_GAINS_LOCK_DIR"  # one folder for all that share a GPU, containers too


class Lock:
    """A held lock. The kernel releases it when this process ends, however it ends."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def release(self) -> None:
        """Let others measure; harmless a second time. The file stays: removing it would race."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def lock(uuid: str) -> Lock:
    """Take the lock of a GPU; raises Refused, naming the holder, when another process has it."""
    path = Path(os.environ.get(FOLDER_VARIABLE) or tempfile.gettempdir()) / f"cuda-gains-{uuid}.lock"
    try:
        descriptor = _open(path)
    except OSError as error:
        raise Refused(
            f"the lock {path} of GPU {uuid} cannot be opened ({error.strerror}), so another run could "
            f"measure on it too; set {FOLDER_VARIABLE} to a folder that every user of the GPU can write"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise Refused(
            f"process {holder} is measuring on GPU {uuid} (lock {path}); two runs at once would disturb "
            "each other: wait until it has ended"
        ) from None
    with contextlib.suppress(OSError):  # opened for reading only: the lock holds without a pid in it
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return Lock(path, descriptor)


def _open(path: Path) -> int:
    """Open the lock file, whoever made it; a new one is open to every user."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for flags in _ways():
        try:
            descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except (FileNotFoundError, FileExistsError, PermissionError) as error:
            failure = error
            continue
        if flags & os.O_CREAT:
            os.fchmod(descriptor, 0o666)  # past the umask
        return descriptor
    raise failure


def _ways() -> Iterator[int]:
    # No plain O_CREAT: in a sticky folder such as /tmp Linux then refuses files of other users
    # (fs.protected_regular). The second O_RDWR is for a file that appeared in between.
    yield from (os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR, os.O_RDONLY)
