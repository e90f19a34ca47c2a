"""What a client does again and again: a request is some kernels and the wait for their end.

`small_kernels`: kernels of a few microseconds that fill 64 KiB, launched one by one through the
driver by a compiled loop. `gemm`: products of two 1024 x 1024 matrices in fp32 through cuBLAS, each
on about half of a large GPU. Each result is spoilt before a window and checked after it.
"""

from __future__ import annotations

import ctypes
from ctypes import c_uint32, c_uint64, c_void_p
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bench_lib.cublas.library import Cublas, CublasLibraries
from bench_lib.cublas.product import Product
from bench_lib.device import kernels
from bench_lib.errors import WrongResult

if TYPE_CHECKING:
    from bench_lib.device.driver import Context

SMALL, GEMM, ONE_THREAD = "small_kernels", "gemm", "one_thread"
LAUNCHES = {SMALL: 20, GEMM: 10, ONE_THREAD: 20}  # kernels, or products, a request
ROWS = 1024  # of a matrix
_WORDS = 16384
_GRID, _BLOCK = (16, 1, 1), (256, 1, 1)
_SPIN_CYCLES = 100_000  # some 50 microseconds


class Work(Protocol):
    """One kind of request on one stream."""

    def request(self) -> float:
        """Do it; seconds from its first launch until the device is done."""
        ...

    def spoil(self) -> None:
        """Take away the result that is there."""
        ...

    def check(self) -> None:
        """Raise WrongResult unless the last request has left the right result."""
        ...


def make(context: Context, stream: int, asked: dict[str, Any]) -> Work:
    """The work that a request of the session names: its kind and the files it needs."""
    if asked["work"] == GEMM:
        found = CublasLibraries(Path(asked["cublas"]), Path(asked["cublaslt"]))
        return Gemm(context, stream, found, asked.get("rows", ROWS))
    cubin = kernels.cubin(context, Path(asked["folder"]))
    return (SmallKernels if asked["work"] == SMALL else OneThread)(context, stream, cubin.data)


class Launches:
    """One kernel by the driver, launched in a row by a loop without Python in it."""

    def __init__(
        self,
        context: Context,
        stream: int,
        function: int,
        shape: tuple[tuple[int, int, int], tuple[int, int, int]],
        arguments: list[Any],
        times: int,
    ) -> None:
        from bench_lib.device import native  # numba; a client of gemm needs none

        self._native, self._times, self._arguments = native, times, arguments
        self._pointers = (c_void_p * len(arguments))(*(ctypes.addressof(one) for one in arguments))
        grid, block = shape
        parameters = ctypes.addressof(self._pointers)
        address = context.driver.address("cuLaunchKernel")
        self._call = native.Call(address, (function, *grid, *block, 0, stream, parameters, 0))
        self._sync = native.Call(context.driver.address("cuStreamSynchronize"), (stream,))

    def run(self) -> float:
        """Seconds of all launches and the wait for their end."""
        return self._times * self._native.total(self._call, self._times, self._sync)


class SmallKernels:
    """Kernels that write 64 KiB each."""

    def __init__(self, context: Context, stream: int, cubin: bytes) -> None:
        self._context, self._stream, self._seed = context, stream, 1
        self._buffer = context.alloc(4 * _WORDS)
        arguments = [c_uint64(self._buffer), c_uint64(_WORDS), c_uint32(self._seed)]
        function = context.function(context.load(cubin), "fill")
        self._launches = Launches(context, stream, function, (_GRID, _BLOCK), arguments, LAUNCHES[SMALL])

    def request(self) -> float:
        """Launch them and wait."""
        return self._launches.run()

    def spoil(self) -> None:
        """Zeros, which the kernel never writes."""
        self._context.set_async(self._buffer, 0, _WORDS, self._stream)
        self._context.synchronize(self._stream)

    def check(self) -> None:
        """Each word is the one that the kernel writes."""
        got = np.frombuffer(self._context.download(self._buffer, 4 * _WORDS), np.uint32)
        if wrong := int((got != kernels.filled(_WORDS, self._seed)).sum()):
            raise WrongResult(f"{wrong} of {_WORDS} words that the small kernels wrote are wrong")


class OneThread:
    """Kernels of one thread that keep one multiprocessor of all busy for a while: a control."""

    def __init__(self, context: Context, stream: int, cubin: bytes) -> None:
        function, one = context.function(context.load(cubin), "spin"), (1, 1, 1)
        arguments = [c_uint64(_SPIN_CYCLES)]
        self._launches = Launches(context, stream, function, (one, one), arguments, LAUNCHES[ONE_THREAD])

    def request(self) -> float:
        """Launch them and wait."""
        return self._launches.run()

    def spoil(self) -> None:
        """Nothing is left behind."""

    def check(self) -> None:
        """Nothing is left behind."""


class Gemm:
    """Matrix products."""

    def __init__(self, context: Context, stream: int, found: CublasLibraries, rows: int) -> None:
        self._context, self._stream = context, stream
        self._product = Product(Cublas.load(found, stream), context, rows)

    def request(self) -> float:
        """Queue them and wait."""
        begin = monotonic()
        for _ in range(LAUNCHES[GEMM]):
            self._product.run()
        self._context.synchronize(self._stream)
        return monotonic() - begin

    def spoil(self) -> None:
        """NaN."""
        self._product.spoil()

    def check(self) -> None:
        """Against fp64."""
        self._product.check()


def flop(work: str, rows: int = ROWS) -> float | None:
    """What a request is counted as doing, None where it is no arithmetic."""
    return LAUNCHES[GEMM] * 2.0 * rows**3 if work == GEMM else None
