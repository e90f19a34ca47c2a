"""A measuring process and its watchdog: start it, follow its journal, end it when it hangs."""

import contextlib
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bench_lib.faults import output, seals
from bench_lib.journaling.journal_rows import Row
from bench_lib.processes import guard

_LAST_LINES = 12
_POLL_SECONDS = 0.1
_GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL
_END_SECONDS = 15.0  # for the guard to end what the process has started

Child = subprocess.Popen[bytes]


def start(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Child:
    """Start a command in its own process group, its output in `log`.

    It dies when we die, and so does everything that it has started: see `bench_lib.processes.guard`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    guarded = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *command]
    with log.open("ab") as stream:  # appended to, so that it can be cut while it is written
        return subprocess.Popen(
            guarded,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )


@contextlib.contextmanager
def ends_as_interrupts() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt here, as Ctrl-C does; under nohup SIGHUP stays ignored."""
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        numbers = []  # only the main thread may say what a signal does
    for number in numbers:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


class Watchdog:
    """Follows a journal: each line sets the time by which the next one must be there.

    Of a line that is damaged only its being there counts. `log` is kept from growing without end.
    """

    def __init__(
        self, journal: Path, slack_seconds: float, idle_seconds: float, log: Path | None = None
    ) -> None:
        self._path = journal
        self._log = log
        self._slack = slack_seconds
        self._idle = idle_seconds  # at most, while no case runs: imports, collection, shutdown
        self._read = 0
        self._allowed = idle_seconds
        self._deadline = time.monotonic() + idle_seconds
        self.cases = 0  # finished so far

    def overdue(self) -> str:
        """Why the process counts as hung by now, "" while it does not."""
        if self._log is not None:
            output.cut(self._log)
        for event in self._new_events():
            self._allowed = self._allowed_after(event)
            self._deadline = time.monotonic() + self._allowed
            self.cases += event.get("event") == "case"
        if time.monotonic() < self._deadline:
            return ""
        return f"no new line in the journal for {self._allowed:.0f} s"

    def _allowed_after(self, event: Row) -> float:
        budget = event.get("budget_seconds") if event.get("event") == "start" else None
        known = isinstance(budget, int | float) and 0 < budget < math.inf
        return float(budget) + self._slack if known and budget is not None else self._idle

    def _new_events(self) -> list[Row]:
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._read)
                whole, newline, _ = stream.read().rpartition(b"\n")
        except OSError:  # not begun yet, already turned into Parquet, or gone for a moment
            return []
        self._read += len(whole) + len(newline)
        return [_event(line) for line in whole.split(b"\n")] if newline else []


def _event(line: bytes) -> Row:
    try:
        return seals.record(line, sealed=False)
    except (ValueError, RecursionError):
        return {}


def wait(child: Child, watchdog: Watchdog, on_cases: Callable[[int], None]) -> str:
    """Wait for a process to end, and end it when it hangs; "" or why it was ended.

    `on_cases` hears how many cases are finished. When it or a signal raises, the process still runs.
    """
    while child.poll() is None:
        if reason := watchdog.overdue():
            stop(child, signal.SIGTERM, _GRACE_SECONDS)
            return reason
        on_cases(watchdog.cases)
        time.sleep(_POLL_SECONDS)
    _signal_group(child, signal.SIGKILL)  # processes it left behind may still hold the GPU
    return ""


def stop(child: Child, first: signal.Signals, patience_seconds: float) -> None:
    """End a process and all that it started: `first`, then SIGKILL. An impatient Ctrl-C kills at once."""
    _signal_group(child, first)
    with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        child.wait(patience_seconds)
    if child.poll() is None:
        child.send_signal(guard.END_ALL)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            child.wait(_END_SECONDS)
    _signal_group(child, signal.SIGKILL)
    child.wait()


def _signal_group(child: Child, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def last_lines(log: Path) -> str:
    """What a process said last; where pytest says ERROR, only that."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return "\n".join([*(errors or lines)[-_LAST_LINES:], f"(its whole output: {log})"])
