"""A child process that answers one line of JSON with another; it ends when its input does."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from bench_lib.errors import CaseTimeout, CudaGainsError, Hung, NotApplicable, Unavailable, WrongResult
from bench_lib.processes.ended import how_it_ended

_KINDS = {kind.__name__: kind for kind in (CaseTimeout, NotApplicable, Unavailable, WrongResult, MemoryError)}
_TERM_SECONDS = 5.0


class Child:
    """A Python module running as a process of its own session: a Ctrl-C at the terminal does not reach it."""

    def __init__(self, module: str, arguments: list[str], environment: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  it is as long-lived as the child
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=dict(environment),
            start_new_session=True,
        )
        self._unread = b""

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def send(self, request: Mapping[str, Any]) -> None:
        """Send a line; to one that has died nothing, which receiving tells."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def line(self, seconds: float) -> str | None:
        """Its next line, "" once it has none left. None where no line came within `seconds`."""
        assert self._process.stdout is not None
        descriptor, deadline = self._process.stdout.fileno(), time.monotonic() + seconds
        while b"\n" not in self._unread:
            readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                return None
            if not (data := os.read(descriptor, 1 << 16)):
                return ""
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace")

    def answer(self, seconds: float) -> dict[str, Any]:
        """Its answer; what it raised is raised here.

        Raises Hung where none came in time, EOFError where it has died.
        """
        line = self.line(seconds)
        if line is None:
            raise Hung(f"no answer within {seconds:g} s")
        if not line:
            raise EOFError
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise _KINDS.get(answer["kind"], CudaGainsError)(answer["error"])
        return answer

    def last_words(self) -> str:
        """How it ended and the last line of its error output."""
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"{self._how()}: {said[-1]}" if said else self._how()

    def _how(self) -> str:
        try:
            return f"it {how_it_ended(self._process.wait(_TERM_SECONDS))}"
        except subprocess.TimeoutExpired:
            return "it closed its output and still runs"

    def dismiss(self) -> None:
        """Let it end by itself: its input ends here."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def ended(self, seconds: float) -> bool:
        """Whether it has ended within `seconds`."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()
        return True

    def end_hung(self) -> None:
        """Only for one that hangs: SIGTERM, and SIGKILL where that changes nothing."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._process.send_signal(number)
            if self.ended(_TERM_SECONDS):
                return
