"""What allocating and freeing device memory costs, one natively timed call at a time."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

from bench_lib.device import native
from bench_lib.device.native import Call

if TYPE_CHECKING:
    from bench_lib.device.cudart import Runtime

METRICS = ("alloc", "free")
_ATTACH_GLOBAL = 1


class Pair(NamedTuple):
    """Host seconds of one allocation and of giving it back."""

    alloc: float
    free: float


class Allocator:
    """One API of a runtime, at one size.

    Between two pairs nothing waits for the stream, so that the pool behind cudaMallocAsync may
    answer from what was freed before, which is what it is for.
    """

    def __init__(self, runtime: Runtime, api: str, nbytes: int, stream: int) -> None:
        self._pointer = ctypes.c_uint64()
        self._stream = (stream,) if api == "cudaMallocAsync" else ()
        free = "cudaFreeAsync" if api == "cudaMallocAsync" else "cudaFree"
        self._free_name, self._free = free, runtime.address(free)
        self._version = ctypes.c_int()
        # Stands where a native loop synchronises: it waits for nothing.
        nothing = "cudaRuntimeGetVersion"
        self._nothing = Call(runtime.address(nothing), (ctypes.addressof(self._version),), nothing)
        last = (_ATTACH_GLOBAL,) if api == "cudaMallocManaged" else self._stream
        arguments = (ctypes.addressof(self._pointer), nbytes, *last)
        self._alloc = Call(runtime.address(api), arguments, api)

    def pair(self) -> Pair:
        """Allocate and free once. Raises CudaError."""
        alloc = native.submit(self._alloc, 1, self._nothing)
        free = Call(self._free, (self._pointer.value, *self._stream), self._free_name)
        return Pair(alloc, native.submit(free, 1, self._nothing))

    def mean(self, metric: str, pairs: int) -> float:
        """Mean host seconds of one metric over that many pairs."""
        return sum(float(getattr(self.pair(), metric)) for _ in range(pairs)) / pairs
