"""Timing loops without Python in them: addresses of C functions in, seconds per call out.

One prototype serves every function: eleven unsigned 64-bit integers in, a 32-bit status out. A
function with fewer parameters never looks at the rest: by the C calling conventions of x86-64
(System V) and AArch64 the caller lays parameters out from the left and cleans up after itself.
Addresses are plain integers, so nothing is compiled anew for another function or runtime.
"""

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench_lib import extras
from bench_lib.errors import CudaError, Unavailable, UsageError

try:
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import njit, types
    from numba.extending import intrinsic
except ImportError:
    raise Unavailable(
        f"numba is not installed and the native timing loops need it; {extras.cure('measure')}"
    ) from None

PARAMETERS = 11  # of cuLaunchKernel, which has most

# Not slewed by NTP. Its own cost, about 20 ns, is paid once a sample.
_CLOCK = time.CLOCK_MONOTONIC_RAW


@dataclass(frozen=True)
class Call:
    """A C function and its arguments; memory they point to is the caller's to keep alive."""

    address: int
    arguments: tuple[int, ...] = ()
    name: str = "a native call"  # for errors

    @cached_property
    def words(self) -> NDArray[np.uint64]:
        """The address, then the arguments, then zeros: what the loops take."""
        if len(self.arguments) > PARAMETERS:
            raise UsageError(f"{self.name} has {len(self.arguments)} arguments; at most {PARAMETERS} fit")
        words = np.zeros(1 + PARAMETERS, dtype=np.uint64)
        words[: 1 + len(self.arguments)] = (self.address, *self.arguments)
        return words


def submit(call: Call, calls: int, sync: Call) -> float:
    """Seconds a call of `calls` calls back to back; `sync` before and after, untimed.

    Raises CudaError when a call returns anything but 0, as all loops here do.
    """
    return _checked(_burst(_clock_address(), call.words, calls, sync.words, False), call, sync)


def launch_sync(call: Call, sync: Call, calls: int) -> float:
    """Seconds a pair of `call` and `sync`, over `calls` pairs; one `sync` before, untimed."""
    return _checked(_pairs(_clock_address(), call.words, calls, sync.words), call, sync)


def total(call: Call, calls: int, sync: Call) -> float:
    """Seconds a call of `calls` calls and the one `sync` behind them; one more before, untimed."""
    return _checked(_burst(_clock_address(), call.words, calls, sync.words, True), call, sync)


def enqueue(call: Call) -> None:
    """Call once; raises CudaError when it returns anything but 0."""
    if status := _once(call.words):
        raise CudaError(call.name, int(status))


def in_turns(calls: Sequence[Call], order: NDArray[np.int64], burst: int, sync: Call) -> NDArray[np.float64]:
    """Seconds a call of several functions measured in turns: array [function, turn].

    In turn t every function gets one burst of `burst` calls, in the order of `order[t]` (indices
    into `calls`, each once; array [turns, functions]). Before each burst, untimed: one call and
    `sync`, so that what is timed does not depend on whose code the caches hold from the burst before.
    """
    table = np.stack([call.words for call in calls])
    rows = np.ascontiguousarray(order, dtype=np.int64)
    each_once = np.tile(np.arange(len(calls)), (len(rows), 1))
    if not np.array_equal(np.sort(rows, axis=1), each_once):
        raise UsageError(f"the order of turns must hold each of the {len(calls)} functions once a turn")
    seconds = np.empty((len(rows), len(calls)))
    clock = _clock_address()
    for turn, row in enumerate(rows):  # one compiled loop a turn: between turns Ctrl-C gets through
        status, at = _turn(clock, table, row, burst, sync.words, seconds[turn])
        if status:
            raise CudaError(sync.name if at < 0 else calls[at].name, int(status))
    enqueue(sync)
    return seconds.T.copy()


def spin_cpu(iterations: int) -> float:
    """Seconds of a fixed chain of dependent integer operations on one core."""
    return float(_spin(_clock_address(), iterations))


def overhead() -> float:
    """Seconds a call that the loops add themselves: the median over a function that does nothing.

    The function is libc's `abs` of 0, which returns 0 at once.
    """
    nothing = Call(_libc_address("abs"), (0,), "abs")
    return median(submit(nothing, 10_000, nothing) for _ in range(31))


def clock_resolution() -> float:
    """The smallest step the clock was seen to make, in seconds."""
    return float(_smallest_step(_clock_address(), 10_000))


def _checked(outcome: tuple[float, int, bool], call: Call, sync: Call) -> float:
    seconds, status, in_sync = outcome
    if status:
        raise CudaError(sync.name if in_sync else call.name, int(status))
    return float(seconds)


def _libc_address(name: str) -> int:
    return ctypes.cast(ctypes.CDLL(None)[name], ctypes.c_void_p).value or 0


def _clock_address() -> np.uint64:
    return np.uint64(_libc_address("clock_gettime"))


# fmt: off
@intrinsic
def _jump(
    _typing: Any, address: Any,
    a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, i: Any, j: Any, k: Any,
) -> Any:
    # fmt: on
    """Call the function at an address: status = ((int32_t (*)(uint64_t, ...))address)(a, ..., k)."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        prototype = ir.FunctionType(ir.IntType(32), [ir.IntType(64)] * PARAMETERS)
        return builder.call(builder.inttoptr(values[0], prototype.as_pointer()), values[1:])

    return types.int32(*(types.uint64,) * (1 + PARAMETERS)), generate


@njit(cache=True, nogil=True)
def _once(w: Any) -> Any:
    return _jump(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11])  # type: ignore[call-arg]


@njit(cache=True, nogil=True)
def _now(clock: Any, stamp: Any) -> Any:
    """Nanoseconds; `stamp` is an int64 array of two, a struct timespec for clock_gettime to fill."""
    _jump(clock, _CLOCK, stamp.ctypes.data, 0, 0, 0, 0, 0, 0, 0, 0, 0)  # type: ignore[call-arg]
    return stamp[0] * 1_000_000_000 + stamp[1]


@njit(cache=True, nogil=True)
def _burst(clock: Any, call: Any, calls: Any, sync: Any, through_sync: Any) -> Any:
    """(seconds a call, status, whether it was `sync` that gave the status)."""
    stamp = np.zeros(2, np.int64)
    end = 0
    status = _once(sync)
    if status != 0:
        return 0.0, status, True
    start = _now(clock, stamp)
    for _ in range(calls):
        status = _once(call)
        if status != 0:
            return 0.0, status, False
    if not through_sync:
        end = _now(clock, stamp)
    status = _once(sync)
    if through_sync:
        end = _now(clock, stamp)
    return (end - start) * 1e-9 / calls, status, True


@njit(cache=True, nogil=True)
def _pairs(clock: Any, call: Any, calls: Any, sync: Any) -> Any:
    """As `_burst`, with `sync` after each call."""
    stamp = np.zeros(2, np.int64)
    status = _once(sync)
    if status != 0:
        return 0.0, status, True
    start = _now(clock, stamp)
    for _ in range(calls):
        status = _once(call)
        if status != 0:
            return 0.0, status, False
        status = _once(sync)
        if status != 0:
            return 0.0, status, True
    return (_now(clock, stamp) - start) * 1e-9 / calls, status, True


@njit(cache=True, nogil=True)
def _turn(clock: Any, table: Any, order: Any, burst: Any, sync: Any, seconds: Any) -> Any:
    """One turn into `seconds` [function]; (status, which function failed, -1 for `sync`)."""
    stamp = np.zeros(2, np.int64)
    for function in order:
        call = table[function]
        status = _once(sync)
        if status != 0:
            return status, -1
        status = _once(call)
        if status != 0:
            return status, function
        status = _once(sync)
        if status != 0:
            return status, -1
        start = _now(clock, stamp)
        for _ in range(burst):
            status = _once(call)
            if status != 0:
                return status, function
        seconds[function] = (_now(clock, stamp) - start) * 1e-9 / burst
    return status, -1


@njit(cache=True, nogil=True)
def _spin(clock: Any, iterations: Any) -> Any:
    """Marsaglia's xorshift64: each step needs the one before, and no compiler merges steps.

    Passing the state through `stamp`, which the clock call may read and write, keeps the compiler
    from moving the loop out of the timed region or dropping it.
    """
    stamp = np.zeros(2, np.int64)
    start = _now(clock, stamp)
    state = np.uint64(stamp[1]) | np.uint64(1)
    for _ in range(iterations):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
    stamp[0] = np.int64(state)
    return (_now(clock, stamp) - start) * 1e-9


@njit(cache=True, nogil=True)
def _smallest_step(clock: Any, reads: Any) -> Any:
    stamp = np.zeros(2, np.int64)
    smallest = 1_000_000_000
    last = _now(clock, stamp)
    for _ in range(reads):
        now = _now(clock, stamp)
        if 0 < now - last < smallest:
            smallest = now - last
        last = now
    return smallest * 1e-9
