"""The copy kernels of copy_ptx on the suite's stream, between two buffers whose bytes are checked."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_uint64
from typing import TYPE_CHECKING

import numpy as np

from bench_lib.errors import WrongResult
from bench_lib.tma import code, copy_ptx

if TYPE_CHECKING:
    from bench_lib.device.gpu import Gpu
    from bench_lib.device.kernels import Cubin

_MULTIPROCESSORS = 16  # cuda.h: CUdevice_attribute
# Blocks that fit an SM: 2048 threads, or 228 KB of shared memory. Further ones would wait for their turn.
_BLOCKS = {"plain": 16, "cp_async": 6, "tma": 6}
_SEED = 20240305


class Copies:
    """The kernels, and two buffers of which one is full of random words."""

    def __init__(self, gpu: Gpu, cubin: Cubin) -> None:
        self._gpu, self._cubin = gpu, cubin
        self._module = gpu.context.load(cubin.data)
        self._blocks = gpu.context.attribute(_MULTIPROCESSORS)
        self._words = np.empty(0, dtype=np.uint32)
        self._buffers: tuple[int, ...] = ()

    def by(self, way: str, tile: int, nbytes: int) -> Callable[[], None]:
        """What copies `nbytes` in tiles of `tile` bytes to a buffer that is cleared now."""
        self._hold(nbytes)
        target, source = self._buffers
        context = self._gpu.context
        function = context.function(self._module, copy_ptx.name_of(way, tile))
        arguments = [c_uint64(word) for word in (target, source, nbytes)]
        grid, block = (_BLOCKS[way] * self._blocks, 1, 1), (copy_ptx.THREADS, 1, 1)
        context.set_async(target, 0, nbytes // 4, self._gpu.stream)
        self._gpu.synchronize()
        return lambda: context.launch(function, grid, block, arguments, self._gpu.stream)

    def _hold(self, nbytes: int) -> None:
        """Have two buffers of this size."""
        if self._words.nbytes == nbytes:
            return
        self.close()
        self._words = np.random.default_rng(_SEED).integers(0, 1 << 32, nbytes // 4, dtype=np.uint32)
        self._buffers = self._gpu.context.alloc(nbytes), self._gpu.context.alloc(nbytes)
        self._gpu.context.upload(self._buffers[1], self._words.tobytes())

    def code(self, way: str, tile: int) -> code.Code:
        """What the kernel is made of."""
        return code.of_kernel(copy_ptx.name_of(way, tile), self._cubin.data, copy_ptx.PTX)

    def check(self) -> None:
        """Raise WrongResult unless the second buffer holds what the first does."""
        self._gpu.synchronize()
        bits = self._gpu.context.download(self._buffers[0], self._words.nbytes)
        found = np.frombuffer(bits, dtype=np.uint32)
        wrong = int(np.count_nonzero(found != self._words))
        if wrong:
            raise WrongResult(f"{wrong} of {len(found)} words were not copied; the copy is wrong here")

    def close(self) -> None:
        """Give the memory back."""
        self._gpu.synchronize()
        for address in self._buffers:
            self._gpu.context.free(address)
        self._buffers = ()
