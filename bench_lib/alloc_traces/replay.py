"""Plays traces to an allocator: what one allocation and its release cost, and what was reserved for them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from bench_lib.alloc_traces.backends import check_peak
from bench_lib.alloc_traces.memory import CudaMemory
from bench_lib.alloc_traces.trace import Event, Trace
from bench_lib.errors import CudaGainsError
from bench_lib.model import Policy, Series, Timing
from bench_lib.timing.measure import checked, collector_off, measure
from bench_lib.timing.timer import Host, Native

FIRST, AGAIN = "first", "again"
_MOST_SAMPLES, _FIRST_SAMPLES = 25, 6
_CALLS = 100  # of one block from the cache, in a sample
_TRANSFERS = 100
_STEP = 0.02  # of the limit, in peaks of the trace, to which the least one is found
_MOST_PEAKS = 4.0
_REPLAYS_AT_LIMIT = 3


class Limited(NamedTuple):
    """How a trace went under a limit: whether it ended, seconds an allocation, cached memory given back."""

    fits: bool
    seconds: float
    retries: int


def shorter(policy: Policy) -> Policy:
    """The run's policy for samples of some thousand allocations: fewer, in less time."""
    samples = min(policy.samples, _MOST_SAMPLES)
    return replace(policy, samples=samples, budget_seconds=0.5, warmup_seconds=0.02, max_warmup_seconds=0.2)


def play(block: Callable[[int], Any], events: Iterable[Event], held: dict[int, Any]) -> None:
    """Allocate and free as the events say; `held` has the blocks."""
    for number, nbytes in events:
        if nbytes:
            held[number] = block(nbytes)
        else:
            del held[number]


def timed(block: Callable[[int], Any], trace: Trace) -> float:
    """Seconds an allocation and its release, of one replay."""
    begin = perf_counter()
    play(block, trace.events, {})
    return (perf_counter() - begin) / trace.account.allocations


def replayed(memory: CudaMemory, trace: Trace, policy: Policy) -> dict[str, Series]:
    """Series by metric: `first` with an empty cache, `again` when the cache has seen the trace.

    Raises WrongResult where the allocator's peak is not the trace's.
    """
    quantities = _checked(memory, trace)

    def first() -> float:
        memory.empty()
        return timed(memory.block, trace)

    def again() -> float:
        memory.synchronize()
        return timed(memory.block, trace)

    bare = min(timed(partial(memory.block, device="meta"), trace) for _ in range(3))
    quantities["bare_tensor_seconds"] = bare
    facts = {**memory.facts, "trace.sha256": trace.sha256}
    allocations = trace.account.allocations
    found = {
        FIRST: _unwarmed(first, allocations, policy),
        AGAIN: measure(again, Native(again, allocations), policy),
    }
    return {name: replace(series, facts=facts, quantities=quantities) for name, series in found.items()}


def _unwarmed(loop: Callable[[], float], calls: int, policy: Policy) -> Series:
    """Samples of what must not be warm."""
    with collector_off():
        seconds = tuple(loop() for _ in range(min(policy.samples, _FIRST_SAMPLES)))
    return Series(checked(seconds), timing=Timing.NATIVE, calls=calls)


def _checked(memory: CudaMemory, trace: Trace) -> dict[str, float]:
    """One replay from an empty cache: held to the trace's account, and what was reserved for it."""
    before = _settled(memory)
    held: dict[int, Any] = {}
    at_peak = trace.account.at_peak
    play(memory.block, trace.events[:at_peak], held)
    there, free = memory.told(), memory.free()
    play(memory.block, trace.events[at_peak:], held)
    after = memory.told()
    check_peak(memory.backend, trace, after.peak_nbytes, after.requested_peak_nbytes)
    found: dict[str, float | None] = {
        "peak_nbytes": after.peak_nbytes,
        "peak_reserved_nbytes": after.peak_reserved_nbytes,
        "unused_nbytes": there.reserved_nbytes - there.allocated_nbytes,
        "fragmentation": 1 - after.peak_nbytes / after.peak_reserved_nbytes,
        "largest_free_nbytes": None if free is None else free.largest_nbytes,
        "segments": after.segments,
        "retries": after.retries - before.retries,
    }
    if after.device_allocs is not None and before.device_allocs is not None:
        found["device_allocs"] = after.device_allocs - before.device_allocs
    return {name: float(value) for name, value in found.items() if value is not None}


def _settled(memory: CudaMemory) -> Any:
    """An empty cache and peaks from here. Raises CudaGainsError where something is still allocated."""
    memory.empty()
    memory.reset_peak()
    before = memory.told()
    if before.allocated_nbytes:
        raise CudaGainsError(f"{before.allocated_nbytes} bytes are allocated before the trace; expected none")
    return before


def single(memory: CudaMemory, nbytes: int, policy: Policy) -> dict[str, Series]:
    """Series by metric of one block: `first` when the driver is asked for it, `again` out of the cache."""

    def first() -> float:
        memory.empty()
        begin = perf_counter()
        block = memory.block(nbytes)
        seconds = perf_counter() - begin
        del block
        return seconds

    def again() -> float:
        begin = perf_counter()
        for _ in range(_CALLS):
            memory.block(nbytes)
        return (perf_counter() - begin) / _CALLS

    found = {FIRST: _unwarmed(first, 1, policy), AGAIN: measure(again, Native(again, _CALLS), policy)}
    return {name: replace(series, facts=memory.facts) for name, series in found.items()}


def transferred(memory: CudaMemory, nbytes: int, policy: Policy) -> dict[str, Series]:
    """Series of `.to("cuda")` of so many bytes; a fact says how many calls asked the driver for memory."""
    source = memory.on_host(nbytes)
    before = _settled(memory).device_allocs
    for _ in range(_TRANSFERS):
        source.to("cuda")
    facts = dict(memory.facts)
    if before is not None:
        asked = (memory.told().device_allocs or 0) - before
        facts["transfer.asked_driver"] = f"{asked} of {_TRANSFERS} calls"
    series = measure(lambda: source.to("cuda"), Host(1, memory.synchronize, drain=True), policy)
    return {"time": replace(series, facts=facts)}


def fitted(memory: CudaMemory, trace: Trace) -> dict[str, Series]:
    """The least memory that a trace can be played in: `needed_peaks` of its own peak, and seconds in it.

    Raises CudaGainsError where four peaks are too little.
    """
    peak = trace.account.peak_nbytes

    def limited(peaks: float) -> Limited:
        return _under(memory, trace, round(peaks * peak))

    if not limited(_MOST_PEAKS).fits:
        raise CudaGainsError(f"{trace.name} does not fit into {_MOST_PEAKS:g} times its peak")
    low, high = 0, round((_MOST_PEAKS - 1) / _STEP)  # steps above one peak; the lower one need not fit
    while low < high:
        middle = (low + high) // 2
        if limited(1 + middle * _STEP).fits:
            high = middle
        else:
            low = middle + 1
    peaks = 1 + high * _STEP
    with collector_off():
        there = [limited(peaks) for _ in range(_REPLAYS_AT_LIMIT)]
    if not all(one.fits for one in there):
        raise CudaGainsError(f"{trace.name} fits into {peaks:.2f} times its peak in some replays only")
    series = Series(
        checked(tuple(one.seconds for one in there)),
        timing=Timing.NATIVE,
        calls=trace.account.allocations,
        quantities={"needed_peaks": peaks, "needed_nbytes": peaks * peak, "retries": there[-1].retries},
        facts={**memory.facts, "trace.sha256": trace.sha256},
    )
    return {"limited": series}


def _under(memory: CudaMemory, trace: Trace, nbytes: int) -> Limited:
    before = _settled(memory).retries
    with memory.limited(nbytes):
        try:
            seconds = timed(memory.block, trace)
        except memory.out_of_memory:
            return Limited(False, 0.0, memory.told().retries - before)
    return Limited(True, seconds, memory.told().retries - before)
