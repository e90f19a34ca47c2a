"""One rank's process seen from outside, on this machine: started, spoken to, ended, its log kept."""

import contextlib
import multiprocessing
import os
import signal
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from bench_lib.processes.ended import how_it_ended
from bench_lib.ranks.life import live
from bench_lib.ranks.member import Spec

_GOODBYE_SECONDS = 10.0
_STACKS_SECONDS = 0.5  # for a process to write its stacks before it is killed
TAIL_LINES = 30


class Lost(Exception):
    """A rank's process is gone; the text says how it ended."""


class Seat(Protocol):
    """A place that one rank's process can be started in, here or on another host."""

    @property
    def connection(self) -> "Connection[Any, Any]":
        """What to wait on for an answer."""
        ...

    def start(self, spec: Spec) -> None:
        """Start a process; its first answer is its Facts."""
        ...

    def say(self, message: Any) -> None:
        """Send a request; raises Lost."""
        ...

    def hear(self) -> tuple[bool, Any]:
        """The next answer: whether it is an error, and it; raises Lost."""
        ...

    def end(self, stacks: bool = False) -> str:
        """End the process and all of its group; the last lines of its log, first its stacks if asked."""
        ...


class LocalSeat:
    """A rank on this machine."""

    def __init__(self) -> None:
        self._process: Any = None
        self._connection: Connection[Any, Any] | None = None
        self._log = Path()

    @property
    def connection(self) -> "Connection[Any, Any]":
        """What to wait on."""
        assert self._connection is not None
        return self._connection

    def start(self, spec: Spec) -> None:
        """Start a process: with torch forked from a server that has imported it, else a clean one.

        A process that loads NCCL by path must not hold torch: its NCCL would lend it symbols.
        """
        context: Any = multiprocessing.get_context("forkserver" if spec.place.backend else "spawn")
        if spec.place.backend:
            context.set_forkserver_preload(["torch"])
        descriptor, name = tempfile.mkstemp(prefix=f"cuda-gains-rank{spec.place.rank}-", suffix=".log")
        os.close(descriptor)
        self._log = Path(name)
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=live, args=(theirs, spec, name), daemon=True)
        self._process.start()
        theirs.close()

    def say(self, message: Any) -> None:
        """Send a request."""
        try:
            self.connection.send(message)
        except OSError:
            raise Lost(self._how()) from None

    def hear(self) -> tuple[bool, Any]:
        """The next answer."""
        try:
            failed, answer = self.connection.recv()
        except (EOFError, OSError):
            raise Lost(self._how()) from None
        return bool(failed), answer

    def end(self, stacks: bool = False) -> str:
        """End it; harmless a second time."""
        if self._process is None:
            return ""
        if stacks and self._process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGUSR1)
            time.sleep(_STACKS_SECONDS)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.join(_GOODBYE_SECONDS)
        self.connection.close()
        self._process = self._connection = None
        lines = self._log.read_text(errors="replace").splitlines()
        self._log.unlink(missing_ok=True)
        return "\n".join([line for line in lines if line.strip()][-TAIL_LINES:])

    def _how(self) -> str:
        self._process.join(_GOODBYE_SECONDS)
        code = self._process.exitcode
        return "let go of its connection" if code is None else how_it_ended(code)
