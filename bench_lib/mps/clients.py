"""The clients of one way of sharing, from the session's side: started, asked all at once, let go."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from bench_lib.errors import HARMLESS, Crashed, retold
from bench_lib.mps.lines import Child

MODULE = "bench_lib.mps.client"
_START_SECONDS = 60.0  # a context on a busy machine
_PREPARE_SECONDS = 60.0
_SLACK_SECONDS = 30.0  # beyond a window; a client that has not answered then hangs
_LEAD_SECONDS = 0.05  # from telling all clients to the moment at which they start
_LATE_SHARE = 0.05  # of the window
_GOODBYE_SECONDS = 20.0

Start = Callable[[], Child]


@dataclass(frozen=True)
class Window:
    """One window: of each client the seconds of its requests, and those from its first to its last."""

    requests: tuple[tuple[float, ...], ...]
    elapsed: tuple[float, ...]
    late: bool  # whether some client began so late that the others had the GPU for themselves for a while

    @property
    def per_request(self) -> float:
        """Seconds in which one request of any client is done: the inverse of the sum of their rates."""
        pairs = zip(self.requests, self.elapsed, strict=True)
        return 1.0 / sum(len(each) / elapsed for each, elapsed in pairs)

    @property
    def latency(self) -> float:
        """Seconds of a request for its client: the median over the clients of their medians."""
        return median(self.by_client)

    @property
    def latency_p99(self) -> float:
        """The 99th percentile over the requests of all clients."""
        return float(np.percentile([one for each in self.requests for one in each], 99))

    @property
    def by_client(self) -> list[float]:
        """The median latency of each client."""
        return [median(each) for each in self.requests]


class Clients:
    """Some client processes that share the GPU in one way.

    A client that has died or failed is replaced before it is asked again: its case alone is lost.
    """

    def __init__(self, how: str, environment: Mapping[str, str], count: int) -> None:
        self._how, self._environment = how, dict(environment)
        self._children = [self._start() for _ in range(count)]
        self._spoilt: set[int] = set()
        try:
            self._gather(self._children, _START_SECONDS)
        except BaseException:
            self.close()
            raise

    def prepare(self, count: int, asked: Mapping[str, Any]) -> None:
        """Make work ready in the first `count` clients."""
        self._renew()
        self._ask(count, {"prepare": dict(asked)}, _PREPARE_SECONDS)

    def window(self, count: int, work: str, seconds: float) -> Window:
        """One window in the first `count` clients, which all begin at the same moment."""
        start = time.monotonic() + _LEAD_SECONDS
        told = {"window": {"work": work, "start": start, "seconds": seconds}}
        answers = self._ask(count, told, seconds + _SLACK_SECONDS)
        return Window(
            requests=tuple(tuple(one["seconds"]) for one in answers),
            elapsed=tuple(one["ended"] - one["began"] for one in answers),
            late=max(one["began"] for one in answers) > start + _LATE_SHARE * seconds,
        )

    def close(self) -> None:
        """Let all clients go: each ends with no work in flight. Only one that hangs is ended."""
        for child in self._children:
            child.dismiss()
        deadline = time.monotonic() + _GOODBYE_SECONDS
        for child in self._children:
            if not child.ended(max(0.0, deadline - time.monotonic())):
                child.end_hung()
        self._children = []

    def _start(self) -> Child:
        return Child(MODULE, [], self._environment)

    def _ask(self, count: int, request: Mapping[str, Any], seconds: float) -> list[dict[str, Any]]:
        asked = self._children[:count]
        for child in asked:
            child.send(request)
        return self._gather(asked, seconds)

    def _gather(self, asked: Sequence[Child], seconds: float) -> list[dict[str, Any]]:
        """The answer of each; when one fails, what it raised, once all have answered."""
        deadline = time.monotonic() + seconds
        answers, errors = [], []
        for number, child in enumerate(asked, start=1):
            try:
                answers.append(child.answer(max(0.1, deadline - time.monotonic())))
            except Exception as error:
                errors.append(self._named(error, number, len(asked), child))
                if not isinstance(error, HARMLESS):
                    self._spoilt.add(child.pid)
        if errors:
            raise errors[0]
        return answers

    def _named(self, error: Exception, number: int, count: int, child: Child) -> Exception:
        """The error as one of the case, saying of which client it is."""
        client = f"client {number} of {count} ({self._how})"
        if isinstance(error, EOFError):
            return Crashed(f"{client} died: {child.last_words()}")
        return retold(error, f"{client}: {error}")

    def _renew(self) -> None:
        """Replace clients that have died, failed or hung."""
        for place, child in enumerate(self._children):
            if child.alive and child.pid not in self._spoilt:
                continue
            child.dismiss()
            if not child.ended(_GOODBYE_SECONDS):
                child.end_hung()
            self._children[place] = self._start()
            self._gather([self._children[place]], _START_SECONDS)
