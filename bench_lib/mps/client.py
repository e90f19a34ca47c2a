"""The child: a client that opens a context, and then does requests in windows that it is told.

A line of JSON in, a line out. `{"prepare": {...}}` makes some work ready; `{"window": {"work",
"start", "seconds"}}` does its requests one after the other from a moment of the monotonic clock on,
which all clients are told, until the window has passed. It ends when its input does, with no work in
flight.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from typing import Any

from bench_lib.device.driver import Context, Driver
from bench_lib.mps.work import Work, make
from bench_lib.processes.worker import told

_WARM_UP = 3
_SPIN_SECONDS = 2e-3  # before the start: a sleep may last longer than it was asked to


class Client:
    """One context with one stream, and the work that was made ready on it."""

    def __init__(self, context: Context) -> None:
        self._context, self._stream = context, context.stream()
        self._works: dict[str, Work] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Serve one request."""
        if asked := request.get("prepare"):
            self._prepare(asked)
            return {}
        return self._window(**request["window"])

    def close(self) -> None:
        """End with no work in flight."""
        self._context.synchronize(self._stream)
        self._context.close()

    def _prepare(self, asked: dict[str, Any]) -> None:
        """Make it, once, and do it a few times: what is loaded lazily is then there."""
        if asked["work"] in self._works:
            return
        work = make(self._context, self._stream, asked)
        for _ in range(_WARM_UP):
            work.request()
        work.check()
        self._works[asked["work"]] = work

    def _window(self, work: str, start: float, seconds: float) -> dict[str, Any]:
        """Seconds of each request, when the first began and when the last ended."""
        made = self._works[work]
        each: list[float] = []
        made.spoil()
        time.sleep(max(0.0, start - _SPIN_SECONDS - time.monotonic()))
        while time.monotonic() < start:
            pass
        began = time.monotonic()
        while time.monotonic() < start + seconds or not each:
            each.append(made.request())
        ended = time.monotonic()
        made.check()
        return {"seconds": each, "began": began, "ended": ended}


def main() -> None:
    """Open a context and say so; then answer, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the session; it lets us go
    try:
        client = Client(Driver.load().open())
    except Exception as error:  # whatever it is, the session gets it as its reason
        _say(_failure(error))
        return
    _say({})
    for line in sys.stdin:
        try:
            answer = client.answer(json.loads(line))
        except Exception as error:  # as above
            answer = _failure(error)
        _say(answer)
    client.close()


def _failure(error: Exception) -> dict[str, Any]:
    plain = told(error)
    return {"error": str(plain), "kind": type(plain).__name__}


def _say(answer: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the session is gone: our input ends next
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
