"""An MPS daemon of our own, for one GPU, as the user we are: started, asked, and asked to quit."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from bench_lib.errors import Unavailable
from bench_lib.mps import keeper
from bench_lib.mps.control import LOGS, PIPES, Control, without_mps
from bench_lib.mps.lines import Child

# Under these variables a process finds no daemon, also where one of somebody else's is serving.
APART = {PIPES: "/nonexistent/cuda-gains"}
_PREFIX = "cuda-gains-mps-"
_LONGEST = 60  # bytes: the daemon adds names of up to 30 to it, and a socket's path has 107
_UP_SECONDS = 2 * keeper.START_SECONDS + 10.0
_END_SECONDS = keeper.CLIENTS_SECONDS + keeper.QUIT_SECONDS + 10.0


class Daemon:
    """One daemon and the process that keeps it; `environment` is what its clients need."""

    def __init__(self, control: Control, keeping: Child) -> None:
        self._control, self._keeper = control, keeping

    @classmethod
    def start(cls, binary: str, uuid: str) -> Self:
        """Start a daemon for the GPU with that UUID. Raises Unavailable with the daemon's last words."""
        folder = short_folder()
        control = Control(binary, *keeper.folders(folder))
        keeping = Child("bench_lib.mps.keeper", [binary, str(folder), uuid], without_mps())
        daemon = cls(control, keeping)
        try:
            if (line := keeping.line(_UP_SECONDS)) != keeper.READY:
                why = line or f"the process that starts it: {keeping.last_words()}"
                raise Unavailable(f"{why}; without it nothing can be measured under MPS")
        except BaseException:
            daemon.close()
            raise
        return daemon

    @property
    def environment(self) -> dict[str, str]:
        """The variables under which a process becomes a client."""
        return {PIPES: str(self._control.pipes), LOGS: str(self._control.logs)}

    def clients(self) -> list[int]:
        """The processes that are its clients now."""
        return self._control.clients()

    def told(self) -> str:
        """What it says of itself, for somebody who has to find out why something is not."""
        return self._control.told()

    def close(self) -> str:
        """Have it quit once its clients have left; "" or a sentence on what still runs."""
        self._keeper.dismiss()
        trouble = self._keeper.line(_END_SECONDS)
        if trouble is None:
            return f"the process that ends the MPS daemon (process {self._keeper.pid}) did not answer"
        self._keeper.ended(1.0)
        return trouble


def short_folder() -> Path:
    """A new folder of ours alone whose path is short enough for the sockets in it."""
    for place in _places():
        try:
            made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        except OSError:
            continue
        if len(os.fsencode(made)) <= _LONGEST:
            return made
        made.rmdir()
    raise Unavailable(
        f"no folder for the pipes of an MPS daemon: {', '.join(_places())} cannot be written or have paths "
        f"of more than {_LONGEST} bytes; set TMPDIR to a short one"
    )


def _places() -> Iterator[str]:
    yield tempfile.gettempdir()
    yield from ("/tmp", "/run", "/dev/shm")  # noqa: S108
