"""One empty kernel through one raw API, as addresses and integers for the native loops."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from bench_lib.device.kernels import ARGUMENT_NBYTES, EMPTY
from bench_lib.device.native import Call

if TYPE_CHECKING:
    from bench_lib.device.cudart import Runtime
    from bench_lib.device.gpu import Gpu
    from bench_lib.device.kernels import Cubin

KERNELS = (EMPTY, *(f"args_{nbytes}" for nbytes in ARGUMENT_NBYTES))


class Arguments:
    """Kernel parameters kept alive: an array with the address of one by-value block."""

    def __init__(self) -> None:
        self._block = (ctypes.c_ubyte * max(ARGUMENT_NBYTES))(*([0x5A] * max(ARGUMENT_NBYTES)))
        self._pointers = (ctypes.c_void_p * 1)(ctypes.addressof(self._block))
        self.address = ctypes.addressof(self._pointers)  # to hand over as `void** args`


class CudartApi:
    """`cudaLaunchKernel` of one libcudart."""

    def __init__(self, runtime: Runtime, cubin: Cubin, gpu: Gpu, kernels: tuple[str, ...] = KERNELS) -> None:
        self._keys = runtime.register(cubin, kernels)
        self._address = runtime.address("cudaLaunchKernel")
        self._arguments = Arguments()
        self._stream = gpu.stream

    def launch(self, kernel: str) -> Call:
        """cudaLaunchKernel(func, grid xy, grid z, block xy, block z, args, shared, stream).

        A dim3 by value is two integer registers: x | y << 32, and z.
        """
        one = 1 | 1 << 32
        return Call(
            self._address,
            (self._keys[kernel], one, 1, one, 1, self._arguments.address, 0, self._stream),
        )


class DriverApi:
    """`cuLaunchKernel`: the control, no CUDA runtime involved."""

    def __init__(self, cubin: Cubin, gpu: Gpu) -> None:
        context = gpu.context
        module = context.load(cubin.data)
        self._functions = {name: context.function(module, name) for name in KERNELS}
        self._address = context.driver.address("cuLaunchKernel")
        self._arguments = Arguments()
        self._stream = gpu.stream

    def launch(self, kernel: str) -> Call:
        """cuLaunchKernel(f, grid x, y, z, block x, y, z, shared, stream, params, extra)."""
        return Call(
            self._address,
            (self._functions[kernel], 1, 1, 1, 1, 1, 1, 0, self._stream, self._arguments.address, 0),
        )


def synchronize_call(gpu: Gpu) -> Call:
    """cuStreamSynchronize on the suite's stream."""
    return Call(gpu.context.driver.address("cuStreamSynchronize"), (gpu.stream,))
