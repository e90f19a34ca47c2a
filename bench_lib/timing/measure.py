"""A callable, a timer and a policy in; a series of samples out, each with its flags.

Warm up by time until the times are stable (bounded), then sample with the garbage collector off.
NVML is read between samples, never inside one. No sample is dropped.
"""

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from bench_lib.device.telemetry import CLOCKS_SET, Reader, Reading
from bench_lib.errors import CaseTimeout, CudaGainsError
from bench_lib.model import Flag, Policy, Series, Timing, Work, join_flags
from bench_lib.timing.timer import Fn, Sample, Timer

_READ_EVERY_SECONDS = 0.2
_WINDOW = 5  # samples in each half of the stability test
_STABLE = 0.03  # two windows whose medians differ by less are stable
_DRIFT = 0.03
_SCATTER = 3.0
LOW_CLOCK = 0.75  # of the clock there should be: less casts doubt on a sample
_UNDER_LOAD_SECONDS = 1e-3
_ON_DEVICE = frozenset({Timing.COLD, Timing.BATCH, Timing.GRAPH})


class Warn(StrEnum):
    """A doubt about a whole series; stored with it and shown in the report."""

    NOT_WARM = "the warm-up ended before the times were stable"
    FEW = "the time budget ended the sampling early"
    DRIFTING = "the last third of the samples differs from the first by more than 3 %"
    SCATTERED = "the mean is more than three times the smallest sample"


class _Look(NamedTuple):
    """One reading: how many samples there were, and whether it came right out of device work."""

    samples: int
    reading: Reading
    under_load: bool


def measure(
    fn: Fn,
    timer: Timer,
    policy: Policy,
    telemetry: Reader | None = None,
    work: Work = Work(),  # noqa: B008 - frozen
    budget_seconds: float = math.inf,
    spent_seconds: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Series:
    """Measure `fn` (for `Native`, its loop) and return its series, in seconds per call.

    `budget_seconds` bounds the case, `spent_seconds` of it are gone before this begins: CaseTimeout is
    raised between two calls once it has passed.
    A call that never returns is for the watchdog of a campaign. Raises CudaGainsError for a sample
    that is no time (NaN, infinite, zero or less).
    """
    limit = _Limit(clock, budget_seconds, spent_seconds)
    calls = timer.prepare(fn)
    with collector_off():
        warmed, warm = _warm_up(fn, timer, policy, limit)
        samples, looks = _sample(fn, timer, policy, telemetry, limit)
    maximum = None if telemetry is None else telemetry.max_sm_clock_mhz
    flags = [
        (*s.flags, *extra) for s, extra in zip(samples, _flags(looks, len(samples), maximum), strict=True)
    ]
    seconds = checked(tuple(float(s.seconds) for s in samples))
    return Series(
        seconds=seconds,
        flags=tuple(join_flags(f) for f in flags) if any(flags) else (),
        timing=timer.timing,
        calls=timer.calls,
        work=work,
        warmup_calls=calls + warmed * timer.calls,
        warnings=tuple(_warnings(seconds, policy, warm)),
    )


@contextmanager
def collector_off() -> Iterator[None]:
    """No garbage collection inside, and afterwards the state there was before."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def checked(seconds: tuple[float, ...]) -> tuple[float, ...]:
    """The samples, if each is a time; else CudaGainsError naming the first that is not."""
    if not seconds:
        raise CudaGainsError("the series has no sample; a case gives at least one")
    for number, value in enumerate(seconds, start=1):
        if not (math.isfinite(value) and value > 0):
            raise CudaGainsError(
                f"sample {number} of {len(seconds)} is {value!r}; a time is a finite number above 0"
            )
    return seconds


class _Limit:
    """The case's own budget, looked at between calls."""

    def __init__(self, clock: Callable[[], float], seconds: float, spent_seconds: float) -> None:
        self.clock = clock
        self._seconds = seconds
        self._end = clock() + seconds - spent_seconds

    def check(self, samples: int = 0) -> None:
        if self.clock() > self._end:
            raise CaseTimeout(
                f"passed its budget of {self._seconds:g} s with {samples} samples taken; "
                "give the case more with @pytest.mark.budget(seconds)"
            )


def _warm_up(fn: Fn, timer: Timer, policy: Policy, limit: _Limit) -> tuple[int, bool]:
    """How many samples the warm-up took, and whether it ended because the times were stable."""
    begin = limit.clock()
    seconds: list[float] = []
    while (passed := limit.clock() - begin) < policy.max_warmup_seconds:
        if passed >= policy.warmup_seconds and _stable(seconds):
            return len(seconds), True
        limit.check()
        seconds.append(timer.sample(fn).seconds)
    return len(seconds), _stable(seconds)


def _stable(seconds: Sequence[float]) -> bool:
    """Whether the last five samples and the five before have the same median, within 3 %."""
    if len(seconds) < 2 * _WINDOW:
        return False
    before = statistics.median(seconds[-2 * _WINDOW : -_WINDOW])
    now = statistics.median(seconds[-_WINDOW:])
    return abs(now - before) <= _STABLE * before


def _sample(
    fn: Fn, timer: Timer, policy: Policy, telemetry: Reader | None, limit: _Limit
) -> tuple[list[Sample], list[_Look]]:
    samples: list[Sample] = []
    looks: list[_Look] = []
    begin = last_look = limit.clock()

    def look() -> None:
        if telemetry is not None:
            looks.append(_Look(len(samples), telemetry.read(), _under_load(samples, timer)))

    look()
    while len(samples) < policy.samples:
        now = limit.clock()
        if len(samples) >= policy.min_samples and now - begin >= policy.budget_seconds:
            break
        limit.check(len(samples))
        samples.append(timer.sample(fn))
        if limit.clock() - last_look >= _READ_EVERY_SECONDS:
            look()
            last_look = limit.clock()
    look()
    return samples, looks


def _under_load(samples: Sequence[Sample], timer: Timer) -> bool:
    """Whether the device has just worked for so long that its clock is the clock under load."""
    if not samples or timer.timing not in _ON_DEVICE:
        return False
    return samples[-1].seconds * timer.calls > _UNDER_LOAD_SECONDS


def _flags(looks: Sequence[_Look], n: int, max_mhz: float | None) -> list[list[Flag]]:
    """The flags that the readings give each of n samples.

    A throttle reason casts doubt on the samples on both sides of its reading. A low clock does on
    the samples before it, and only against a fair measure: the median of the case's readings, or
    the device's maximum if the reading came right out of device work (an idle clock says nothing)
    and nobody has set a lower clock.
    """
    flags: list[list[Flag]] = [[] for _ in range(n)]
    clocks = [look.reading.sm_clock_mhz for look in looks if look.reading.sm_clock_mhz is not None]
    typical = statistics.median(clocks) if len(clocks) > 2 else None
    for before, after in pairwise(looks):
        found = []
        if before.reading.throttled or after.reading.throttled:
            found.append(Flag.THROTTLED)
        if _low(after, typical, max_mhz):
            found.append(Flag.CLOCK_LOW)
        for sample in range(before.samples, after.samples):
            flags[sample] += found
    return flags


def _low(look: _Look, typical_mhz: float | None, max_mhz: float | None) -> bool:
    mhz = look.reading.sm_clock_mhz
    if mhz is None:
        return False
    fair_maximum = look.under_load and CLOCKS_SET not in look.reading.throttle_reasons
    expected = [typical_mhz, max_mhz if fair_maximum else None]
    return any(value is not None and mhz < LOW_CLOCK * value for value in expected)


def _warnings(seconds: Sequence[float], policy: Policy, warm: bool) -> Iterator[Warn]:
    if not warm:
        yield Warn.NOT_WARM
    if len(seconds) < policy.samples:
        yield Warn.FEW
    third = len(seconds) // 3
    if third >= _WINDOW:
        first, last = statistics.median(seconds[:third]), statistics.median(seconds[-third:])
        if abs(last - first) > _DRIFT * first:
            yield Warn.DRIFTING
    if statistics.fmean(seconds) > _SCATTER * min(seconds):
        yield Warn.SCATTERED
