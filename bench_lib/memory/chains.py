"""Chains of addresses in memory that one GPU thread follows: each hop waits for the one before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bench_lib.errors import WrongResult
from bench_lib.memory.migration import BLOCK_NBYTES, Block, MemoryKernels

if TYPE_CHECKING:
    from bench_lib.memory.managed import Managed

_SEED = 20240131


def cycle(slots: int, order: str = "random") -> NDArray[np.uint32]:
    """Successors that make one cycle of all slots: in turn, or at random, so that nothing is foreseen."""
    numbers = np.arange(slots, dtype=np.uint32)
    if order == "random":
        numbers = np.random.default_rng(_SEED).permutation(numbers)
    successor = np.empty_like(numbers)
    successor[numbers] = np.roll(numbers, -1)
    return successor


class FaultChain:
    """One word in each 2 MiB block of managed memory, holding the address of another block's."""

    def __init__(self, block: Block, kernels: MemoryKernels, order: str) -> None:
        self._block = block
        self._kernels = kernels
        self.slots = block.nbytes // BLOCK_NBYTES
        self._successor = cycle(self.slots, order)
        words = block.words.view(np.uint64)[:: BLOCK_NBYTES // 8]
        words[:] = block.address + self._successor.astype(np.uint64) * BLOCK_NBYTES

    def follow(self, hops: int) -> float:
        """Device seconds of that many hops from the first block; WrongResult when they lead elsewhere."""
        seconds = self._kernels.chase(self._block.address, hops)
        slot = 0
        for _ in range(hops):
            slot = int(self._successor[slot])
        _expect(self._kernels, self._block.address + slot * BLOCK_NBYTES)
        return seconds


def reach(kernels: MemoryKernels, address: int, nbytes: int, step: int) -> Callable[[], float]:
    """A chase through memory with one address every `step` bytes, once around: device seconds a hop.

    Raises WrongResult when it does not come back to where it began.
    """
    slots = nbytes // step
    kernels.chain(address, cycle(slots), step)
    kernels.chase(address, slots)
    _expect(kernels, address)
    return lambda: kernels.chase(address, slots) / slots


def on_gpu(managed: Managed, kernels: MemoryKernels, address: int, nbytes: int) -> None:
    """Let the pages of managed memory come into being, or move, on the GPU."""
    managed.prefetch_to_gpu(address, nbytes, kernels.gpu.stream)
    kernels.gpu.synchronize()


def _expect(kernels: MemoryKernels, address: int) -> None:
    _, found = kernels.chased()
    if found != address:
        raise WrongResult(f"the chase came to address {found:#x}; its chain leads to {address:#x}")
