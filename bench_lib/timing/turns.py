"""Several arms measured in turns: in each turn a block of steps of every arm, in random order.

A step is a few parts in order (forward, backward, optimizer), each timed inside the block that
times the step. Whatever the machine does in a turn, it does to all arms.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple, Protocol

import numpy as np

from bench_lib.device.telemetry import CLOCKS_SET, Reader, Reading
from bench_lib.model import HOST_BOUND, Flag, Policy, Series, Timing, join_flags
from bench_lib.timing.measure import LOW_CLOCK, checked, collector_off

Parts = Mapping[str, Callable[[], object]]  # the parts of one step, in order
Seconds = dict[str, float]  # by metric: `step` and each part

STEP = "step"
STEPS = 10  # in a block: long enough that its edges are nothing, short enough to share the weather
_HOST_BOUND = 0.95


class Clock(Protocol):
    """What times a block: a stream with its events (bench_lib.device.gpu.Gpu), or the host's clock."""

    def synchronize(self) -> None:
        """Wait until all work is done."""
        ...

    def record(self) -> Any:
        """A mark at this place of the work."""
        ...

    def elapsed(self, start: Any, end: Any) -> float:
        """Seconds between two marks that were passed."""
        ...


class HostClock:
    """The clock of work that is done when its call returns."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def record(self) -> float:
        """The time now."""
        return time.perf_counter()

    def elapsed(self, start: float, end: float) -> float:
        """Seconds between two times."""
        return end - start


class Block(NamedTuple):
    """What one block took: seconds a step, by metric, and the share of it in which the host queued it."""

    seconds: Seconds
    host_share: float  # near 1 the device waited for the host


def block(parts: Parts, clock: Clock, steps: int = STEPS) -> Block:
    """Run `steps` steps back to back; seconds a step, and by part where there are several.

    The parts of a step leave out what lies between them: two marks for each, as a mark serves once.
    """
    apart = len(parts) > 1
    pairs: dict[str, list[tuple[Any, Any]]] = {name: [] for name in parts} if apart else {}
    clock.synchronize()
    host_begin = time.perf_counter()
    begin = clock.record()
    for _ in range(steps):
        for name, part in parts.items():
            if apart:
                start = clock.record()
                part()
                pairs[name].append((start, clock.record()))
            else:
                part()
    end = clock.record()
    host_seconds = time.perf_counter() - host_begin
    clock.synchronize()
    by_part = {name: sum(clock.elapsed(*pair) for pair in marks) / steps for name, marks in pairs.items()}
    seconds = clock.elapsed(begin, end)
    return Block({STEP: seconds / steps, **by_part}, host_seconds / seconds if seconds > 0 else 1.0)


def in_turns(
    arms: Mapping[str, Parts],
    clock: Clock,
    policy: Policy,
    turns: str,
    seed: int = 0,
    timing: Timing = Timing.BATCH,
    telemetry: Reader | None = None,
    steps: int = STEPS,
    queued: bool = False,
) -> dict[str, dict[str, Series]]:
    """Measure all arms in turns; the series by arm and metric, sample i of each from turn i.

    `queued` says that a part only queues its work on a device: then a step tells whether the host
    kept ahead of it (`host_share`, and HOST_BOUND where it did not).

    A turn is one block of every arm, their order drawn anew from `seed`. The policy's budget is for
    all arms together: the arms of one set are one measurement. `turns` names the set in its series.
    NVML is read between turns only.
    """
    rng = np.random.default_rng(seed)
    names = list(arms)

    def turn() -> dict[str, Block]:
        return {names[i]: block(arms[names[i]], clock, steps) for i in rng.permutation(len(names))}

    with collector_off():
        warmed = _until(turn, policy.max_warmup_seconds, 1, None, lambda: None)
        looks: list[Reading] = []
        taken = _until(
            turn,
            policy.budget_seconds,
            policy.min_samples,
            policy.samples,
            lambda: None if telemetry is None else looks.append(telemetry.read()),
        )
    flags = _flags(looks, len(taken), None if telemetry is None else telemetry.max_sm_clock_mhz)
    common = Series((), flags, timing, calls=steps, turns=turns, warmup_calls=len(warmed) * steps)
    return {name: _series(common, [t[name] for t in taken], queued) for name in names}


def _series(common: Series, blocks: Sequence[Block], queued: bool) -> dict[str, Series]:
    found = {
        metric: replace(common, seconds=checked(tuple(one.seconds[metric] for one in blocks)))
        for metric in blocks[0].seconds
    }
    if queued:
        share = median(one.host_share for one in blocks)
        said = (HOST_BOUND,) if share > _HOST_BOUND else ()
        found[STEP] = replace(found[STEP], quantities={"host_share": share}, warnings=said)
    return found


def _until(
    turn: Callable[[], dict[str, Block]],
    seconds: float,
    at_least: int,
    at_most: int | None,
    look: Callable[[], None],
) -> list[dict[str, Block]]:
    """Turns until the time is over or there are enough; a look before each and after the last."""
    begin = time.perf_counter()
    taken: list[dict[str, Block]] = []
    while len(taken) != at_most and (len(taken) < at_least or time.perf_counter() - begin < seconds):
        look()
        taken.append(turn())
    look()
    return taken


def _flags(looks: Sequence[Reading], turns: int, max_mhz: float | None) -> tuple[str, ...]:
    """The flags of each turn, from the looks on both of its sides; () when there are none.

    The look after a turn comes right out of device work, so its clock is the clock under load.
    """
    flags = []
    for before, after in pairwise(looks):
        found = []
        if before.throttled or after.throttled:
            found.append(Flag.THROTTLED)
        if max_mhz and after.sm_clock_mhz is not None and CLOCKS_SET not in after.throttle_reasons:
            found += [Flag.CLOCK_LOW] if after.sm_clock_mhz < LOW_CLOCK * max_mhz else []
        flags.append(join_flags(found))
    return tuple(flags) if len(flags) == turns and any(flags) else ()
