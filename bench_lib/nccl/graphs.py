"""CUDA graphs of the driver: calls captured on a stream, replayed by one launch. No runtime, no torch."""

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_uint64, c_void_p
from typing import Any

from bench_lib.device.c_library import Library
from bench_lib.device.driver import Driver
from bench_lib.device.native import Call
from bench_lib.errors import CudaError, Unavailable

_RELAXED = 2  # NCCL may allocate and register while it is captured

# cuda.h, from 11.4 on
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, c_void_p),
    "cuGraphInstantiateWithFlags": (c_void_p, c_void_p, c_uint64),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphDestroy": (c_void_p,),
    "cuGraphExecDestroy": (c_void_p,),
}


class Graphs:
    """The driver's functions for graphs."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        try:
            self._library = Library("libcuda.so.1", _SIGNATURES)
        except OSError:
            raise Unavailable("libcuda.so.1 not found: no NVIDIA driver here") from None

    def capture(self, enqueue: Callable[[], None], calls: int, stream: int) -> int:
        """An executable graph of `calls` calls of `enqueue`, each after the other. Raises CudaError."""
        self._call("cuStreamBeginCapture_v2", stream, _RELAXED)
        graph = c_void_p()
        try:
            for _ in range(calls):
                enqueue()
        finally:
            self._call("cuStreamEndCapture", stream, ctypes.byref(graph))
        made = c_void_p()
        self._call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, 0)
        self._call("cuGraphDestroy", graph)
        return made.value or 0

    def launch(self, executable: int, stream: int) -> Call:
        """The call that replays a graph, for the native loops."""
        return Call(self._library.address("cuGraphLaunch"), (executable, stream), "cuGraphLaunch")

    def destroy(self, executable: int) -> None:
        """Give an executable graph back."""
        self._call("cuGraphExecDestroy", executable)

    def _call(self, name: str, *arguments: Any) -> None:
        if code := self._library.function(name)(*arguments):
            raise CudaError(name, code, self._driver.error_name(code))
