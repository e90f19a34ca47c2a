"""An allocator under a mix of traces for minutes: does an allocation take longer, is more reserved?

Between the traces some blocks stay, and one of them changes each time: what long-lived tensors do to a
cache. The time is cut into windows; sample i is that of window i.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from time import perf_counter
from typing import NamedTuple

from bench_lib.alloc_traces.made import MIB, adversarial, diffusion, transformer
from bench_lib.alloc_traces.memory import CudaMemory
from bench_lib.alloc_traces.replay import play
from bench_lib.alloc_traces.trace import Trace
from bench_lib.model import Series, Timing
from bench_lib.timing.measure import checked, collector_off

SEED = 7
WINDOWS = 60
_SETTLING = WINDOWS // 10  # windows in which the cache fills: they count for no growth
_SEEDS = 4  # of each made-up trace
_STAYING = 64  # blocks
_LARGEST_STAYING_NBYTES = 32 * MIB

Clock = Callable[[], float]


class Window(NamedTuple):
    """What was seen in one part of the time; bytes are the most in it."""

    seconds: float  # an allocation and its release
    peak_nbytes: int
    reserved_nbytes: int


def soaked(memory: CudaMemory, minutes: float, seed: int, clock: Clock = perf_counter) -> dict[str, Series]:
    """Play traces in random order until the time is over; a sample a window.

    `time_growth` and `reserved_growth` are the last third of the windows over the first one, settled.
    Raises what the allocator raises where the memory does not suffice.
    """
    memory.empty()
    retries = memory.told().retries
    with collector_off():
        seen = list(_windows(memory, 60 * minutes, random.Random(seed), clock))
    early, late = _middle(seen[_SETTLING : WINDOWS // 3]), _middle(seen[-WINDOWS // 3 :])
    series = Series(
        checked(tuple(window.seconds for window in seen)),
        timing=Timing.NATIVE,
        quantities={
            "time_growth": late.seconds / early.seconds,
            "reserved_growth": late.reserved_nbytes / early.reserved_nbytes,
            "peak_reserved_nbytes": float(max(window.reserved_nbytes for window in seen)),
            "fragmentation": 1 - late.peak_nbytes / late.reserved_nbytes,
            "retries": float(memory.told().retries - retries),
        },
        facts={
            **memory.facts,
            "soak.reserved_mib": " ".join(str(round(window.reserved_nbytes / MIB)) for window in seen),
        },
    )
    return {"soak": series}


def _middle(windows: Sequence[Window]) -> Window:
    seconds, peak, reserved = (median(column) for column in zip(*windows, strict=True))
    return Window(seconds, int(peak), int(reserved))


def _windows(memory: CudaMemory, seconds: float, rng: random.Random, clock: Clock) -> Iterator[Window]:
    traces = [transformer(), *(make(seed) for seed in range(_SEEDS) for make in (diffusion, adversarial))]
    staying = [memory.block(_nbytes(rng)) for _ in range(_STAYING)]
    begin = clock()
    for window in range(1, WINDOWS + 1):
        memory.reset_peak()
        spent, allocations = 0.0, 0
        while not allocations or clock() - begin < seconds * window / WINDOWS:
            trace = traces[_index(rng, len(traces))]
            spent += _played(memory, trace, clock)
            allocations += trace.account.allocations
            staying[_index(rng, _STAYING)] = memory.block(_nbytes(rng))
        told = memory.told()
        yield Window(spent / allocations, told.peak_nbytes, told.peak_reserved_nbytes)


def _played(memory: CudaMemory, trace: Trace, clock: Clock) -> float:
    memory.synchronize()
    begin = clock()
    play(memory.block, trace.events, {})
    return clock() - begin


def _index(rng: random.Random, among: int) -> int:
    return int(rng.random() * among)


def _nbytes(rng: random.Random) -> int:
    return 1 + int(rng.random() * _LARGEST_STAYING_NBYTES)
