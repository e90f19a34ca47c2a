"""The ways to take one sample: a callable in, seconds per call out, with the doubts about it.

`Cold`, `Batch` and `Graph` take device time from a start/stop pair of events on one stream; `Host`
takes host time around calls; `Native` lets a compiled loop time itself; `Fake` plays given numbers;
`Prepared` does something untimed before each sample of another. Every event is used in one pair
only: against a single reference event the float milliseconds lose their precision within seconds.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from bench_lib.errors import UsageError
from bench_lib.model import Flag, Timing
from bench_lib.timing.preemption import Preemptions, doubted, preemptions

Fn = Callable[[], object]

# Launches queue on a held stream until it is released; the queue takes about a thousand, and then
# the host would wait for a stream that waits for the host.
MAX_QUEUED_CALLS = 512


class Hold(Protocol):
    """A stream that was held until all work was queued."""

    @property
    def timed_out(self) -> bool:
        """Whether the hold gave up first; known once the stream was synchronised."""
        ...


class Device(Protocol):
    """What the timers need of a device: one stream with its events."""

    def synchronize(self) -> None:
        """Wait until the stream is empty."""
        ...

    def record(self) -> Any:
        """Put a new event on the stream."""
        ...

    def elapsed(self, start: Any, end: Any) -> float:
        """Seconds between two events that both have passed."""
        ...

    def flush(self) -> None:
        """Queue a write of at least twice the L2, so that the next kernel finds it cold."""
        ...

    def hold(self) -> AbstractContextManager[Hold]:
        """Keep the stream from starting new work until the block is left, bounded in time."""
        ...


class Sample(NamedTuple):
    """Seconds per call of one sample, and the doubts about it."""

    seconds: float
    flags: tuple[Flag, ...] = ()


class Timer(Protocol):
    """A way to take samples; `calls` calls make one sample."""

    timing: Timing
    calls: int

    def prepare(self, fn: Fn) -> int:
        """Get everything loaded and set up, untimed and unheld; how often fn was called for it."""
        ...

    def sample(self, fn: Fn) -> Sample:
        """Take one sample."""
        ...


class Cold:
    """Device time of one call on a cold L2, without the gaps of its submission."""

    timing = Timing.COLD
    calls = 1

    def __init__(self, device: Device) -> None:
        self._device = device

    def prepare(self, fn: Fn) -> int:
        """One free call: modules load lazily, and a load under a hold would wait for its end."""
        return _run_free(self._device, fn)

    def sample(self, fn: Fn) -> Sample:
        """Flush, hold, start, call, stop, release, wait."""
        self._device.flush()
        return _between_events(self._device, fn, 1)


class Batch:
    """Device time per call of `calls` calls queued back to back: the period, caches warm."""

    timing = Timing.BATCH

    def __init__(self, device: Device, calls: int) -> None:
        self._device = device
        self.calls = _checked(calls, MAX_QUEUED_CALLS)

    def prepare(self, fn: Fn) -> int:
        """One free call, as for `Cold`."""
        return _run_free(self._device, fn)

    def sample(self, fn: Fn) -> Sample:
        """Hold, start, the calls, stop, release, wait."""
        return _between_events(self._device, fn, self.calls)


class Graph:
    """Device time per call of one graph that holds `calls` calls.

    `capture(fn, calls)` makes the graph and returns what launches it.
    """

    timing = Timing.GRAPH

    def __init__(self, device: Device, capture: Callable[[Fn, int], Fn], calls: int) -> None:
        self._device = device
        self._capture = capture
        self.calls = _checked(calls)
        self._launch: Fn | None = None

    def prepare(self, fn: Fn) -> int:
        """Free calls first, because a library that initialises itself spoils a capture."""
        called = sum(_run_free(self._device, fn) for _ in range(3))
        self._launch = self._capture(fn, self.calls)
        _run_free(self._device, self._launch)
        return called

    def sample(self, fn: Fn) -> Sample:
        """Hold, start, launch the graph, stop, release, wait."""
        if self._launch is None:
            self.prepare(fn)
        assert self._launch is not None
        seconds, flags = _between_events(self._device, self._launch, 1)
        return Sample(seconds / self.calls, flags)


class Host:
    """Host time per call of `calls` calls.

    With `synchronize`, nothing queued before leaks in; `drain` says whether the wait for the
    device at the end counts (the whole work) or not (the submission alone).
    """

    timing = Timing.HOST

    def __init__(
        self,
        calls: int = 1,
        synchronize: Fn | None = None,
        drain: bool = False,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        counted: Callable[[], Preemptions] = preemptions,
    ) -> None:
        self.calls = _checked(calls)
        self._wait = synchronize or nothing
        self._drain = drain
        self._clock_ns = clock_ns
        self._counted = counted

    def prepare(self, fn: Fn) -> int:
        """One free call."""
        fn()
        self._wait()
        return 1

    def sample(self, fn: Fn) -> Sample:
        """Wait, start, the calls, (wait,) stop, wait."""
        calls, clock_ns, wait = range(self.calls), self._clock_ns, self._wait
        at_end = wait if self._drain else nothing
        wait()
        before = self._counted()
        start = clock_ns()
        for _ in calls:
            fn()
        at_end()
        seconds = (clock_ns() - start) / 1e9
        after = self._counted()
        wait()
        return Sample(seconds / self.calls, _preempted(before, after, seconds))


class Native:
    """Seconds per call as a compiled loop of `calls` calls gives them."""

    timing = Timing.NATIVE

    def __init__(
        self,
        loop: Callable[[], float],
        calls: int,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        counted: Callable[[], Preemptions] = preemptions,
    ) -> None:
        self._loop = loop
        self.calls = _checked(calls)
        self._clock_ns = clock_ns
        self._counted = counted

    def prepare(self, _fn: Fn) -> int:
        """One free turn of the loop: it may have to be compiled. UsageError where it gives no number."""
        seconds: object = self._loop()
        try:
            float(seconds)  # type: ignore[arg-type]
        except (TypeError, ValueError, RuntimeError):  # RuntimeError: of a tensor of several
            found = type(seconds).__name__
            raise UsageError(f"the loop returned a {found}; expected seconds per call, a number") from None
        return self.calls

    def sample(self, _fn: Fn) -> Sample:
        """One turn of the loop; it is the work itself, so `_fn` is not called."""
        before = self._counted()
        start = self._clock_ns()
        seconds = self._loop()
        wall_seconds = (self._clock_ns() - start) / 1e9
        return Sample(float(seconds), _preempted(before, self._counted(), wall_seconds))


class Prepared:
    """Another timer, each sample of which, one call, comes after an untimed act."""

    def __init__(self, timer: Timer, before: Fn) -> None:
        if timer.calls != 1:
            raise UsageError(f"calls = {timer.calls}: with an act before each sample, calls must be 1")
        self.timing, self.calls = timer.timing, timer.calls
        self._timer, self._before = timer, before

    def prepare(self, fn: Fn) -> int:
        """The act, then what the timer does."""
        self._before()
        return self._timer.prepare(fn)

    def sample(self, fn: Fn) -> Sample:
        """The act, then the sample."""
        self._before()
        return self._timer.sample(fn)


class Fake:
    """Given seconds in their order, for tests and for scalars measured elsewhere."""

    timing = Timing.FAKE
    calls = 1

    def __init__(self, seconds: Iterable[float]) -> None:
        self._seconds = iter(seconds)

    def prepare(self, fn: Fn) -> int:
        """Nothing to prepare."""
        return 0

    def sample(self, fn: Fn) -> Sample:
        """Call fn, answer the next number."""
        fn()
        return Sample(next(self._seconds))


def _between_events(device: Device, fn: Fn, calls: int) -> Sample:
    with device.hold() as hold:
        start = device.record()
        for _ in range(calls):
            fn()
        stop = device.record()
    device.synchronize()
    flags = (Flag.HOLD_TIMED_OUT,) if hold.timed_out else ()
    return Sample(device.elapsed(start, stop) / calls, flags)


def _run_free(device: Device, fn: Fn) -> int:
    fn()
    device.synchronize()
    return 1


def _preempted(before: Preemptions, after: Preemptions, wall_seconds: float) -> tuple[Flag, ...]:
    return (Flag.PREEMPTED,) if doubted(before, after, wall_seconds) else ()


def _checked(calls: int, limit: int | None = None) -> int:
    if calls < 1 or (limit is not None and calls > limit):
        upto = "" if limit is None else f" to {limit}, which a queue holds"
        raise UsageError(f"calls = {calls}: a sample has 1 call or more{upto}; change calls=")
    return calls


def nothing() -> None:
    """What is called where there is nothing to wait for, and where others do the work."""
