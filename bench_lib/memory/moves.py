"""The ways to move a block of managed memory: what comes before a repetition, the move, its check."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_uint8
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench_lib.errors import WrongResult
from bench_lib.memory.managed import Advice, Managed
from bench_lib.memory.migration import Block, MemoryKernels, page_order

if TYPE_CHECKING:
    from bench_lib.device.driver import Context

TO_GPU, TO_CPU = "to_gpu", "to_cpu"
ADVICE = {
    "preferred_location": Advice.PREFERRED_LOCATION,
    "read_mostly": Advice.READ_MOSTLY,
    "accessed_by": Advice.ACCESSED_BY,
}
# The driver takes a page that both sides touch within 500 us, three times running, for thrashing and
# leaves it where it is (uvm_perf_thrashing_lapse_usec): a move is never that close to another.
_PAUSE_SECONDS = 1e-3
_MOVED = 3.0  # a touch that makes pages move takes at least so many times one that does not
_BYTE = 0x5A


class Move(NamedTuple):
    """One way to move a block; all three wait for what they queued."""

    before: Callable[[], None]  # untimed, before each repetition; raises WrongResult
    act: Callable[[], None]
    check: Callable[[], None]  # untimed, once: does the act what its name says; raises WrongResult
    nbytes: int | None  # that cross the link; None where only the touched words do, or nothing


class Moves:
    """Moves of one block."""

    def __init__(self, block: Block, managed: Managed, kernels: MemoryKernels, mode: str) -> None:
        self._block = block
        self._managed = managed
        self._kernels = kernels
        self._coherent = mode == "ats"

    def home(self) -> None:
        """Bring the pages to the CPU and check it.

        Over a coherent link a CPU write leaves the page where it is and the page tables do not tell
        where that is: there a prefetch brings it, unchecked.
        """
        time.sleep(_PAUSE_SECONDS)
        if self._coherent:
            self._prefetch_to_cpu()
        self._block.home()
        if not self._coherent:
            self._block.check_home()
        time.sleep(_PAUSE_SECONDS)

    def away(self) -> None:
        """Send the pages to the GPU and check it."""
        time.sleep(_PAUSE_SECONDS)
        if self._coherent:
            self._prefetch_to_gpu()
        self._block.away()
        if not self._coherent:
            self._block.check_away()
        time.sleep(_PAUSE_SECONDS)

    def by(self, direction: str, way: str, order: str, access: str, advise: str = "none") -> Move:
        """The move of that name: `faults`, `prefetch` or `second_touch` (of pages already there)."""
        moves: dict[tuple[str, str], Callable[[str, str, str], Move]] = {
            (TO_GPU, "faults"): self._faults_to_gpu,
            (TO_GPU, "prefetch"): self._prefetched_to_gpu,
            (TO_GPU, "second_touch"): self._second_touch_by_gpu,
            (TO_CPU, "faults"): self._faults_to_cpu,
            (TO_CPU, "prefetch"): self._prefetched_to_cpu,
            (TO_CPU, "second_touch"): self._second_touch_by_cpu,
        }
        return moves[direction, way](order, access, advise)

    @contextmanager
    def advised(self, advise: str) -> Iterator[None]:
        """The block under one advice (`none`, or a key of ADVICE), which is taken back afterwards.

        What SetAccessedBy mapped stays mapped when it is unset, and a GPU that reaches a page where it
        is never makes it move; a page that goes to the GPU loses such a mapping.
        """
        advice = ADVICE.get(advise)
        if advice is None:
            yield
            return
        self._managed.advise(self._block.address, self._block.nbytes, advice)
        try:
            yield
        finally:
            self._managed.unadvise(self._block.address, self._block.nbytes, advice)
            self._prefetch_to_gpu()

    def _home_at_once(self) -> None:
        """Bring pages home that both sides may hold a copy of.

        A CPU write ends such copies page by page, in a second for 256 MiB; a GPU write ends them in
        batches, and then the pages come home as from every other move.
        """
        self.away()
        self.home()

    def _faults_to_gpu(self, order: str, access: str, advise: str) -> Move:
        def act() -> None:
            self._block.touch_by_gpu(order, access)
            self._kernels.gpu.synchronize()

        def check() -> None:
            self.home()
            act()
            if advise in ("none", "preferred_location") and not self._coherent:
                self._block.check_away()
            if access == "write":
                self._block.check_written_by_gpu()

        before = self._home_at_once if advise == "read_mostly" else self.home
        return Move(before, act, check, None if advise == "accessed_by" else self._block.nbytes)

    def _prefetched_to_gpu(self, order: str, access: str, advise: str) -> Move:
        def check() -> None:
            self.home()
            self._prefetch_to_gpu()
            if not self._coherent:
                self._block.check_away()

        return Move(self.home, self._prefetch_to_gpu, check, self._block.nbytes)

    def _second_touch_by_gpu(self, order: str, access: str, advise: str) -> Move:
        move = self._faults_to_gpu(order, access, advise)
        return move._replace(before=self.away, nbytes=None)

    def _faults_to_cpu(self, order: str, access: str, advise: str) -> Move:
        numbers = page_order(self._block.pages, order).astype(int)

        def act() -> None:
            self._block.touch_by_cpu(None if order == "sequential" else numbers)

        def check() -> None:
            self.away()
            act()
            if not self._coherent:
                self._block.check_home()

        return Move(self.away, act, check, self._block.nbytes)

    def _prefetched_to_cpu(self, order: str, access: str, advise: str) -> Move:
        def check() -> None:
            """A GPU touch afterwards must be slow: the CPU's page table need not know of the pages yet."""
            self.away()
            if self._coherent:
                return
            there = min(self._kernels.seconds(self._block.touch_by_gpu) for _ in range(3))
            self._prefetch_to_cpu()
            if self._kernels.seconds(self._block.touch_by_gpu) < _MOVED * there:
                raise WrongResult("after a prefetch to the CPU the GPU's touch is as fast: nothing moved")

        return Move(self.away, self._prefetch_to_cpu, check, self._block.nbytes)

    def _second_touch_by_cpu(self, order: str, access: str, advise: str) -> Move:
        move = self._faults_to_cpu(order, access, advise)
        return move._replace(before=self.home, nbytes=None)

    def _prefetch_to_gpu(self) -> None:
        self._managed.prefetch_to_gpu(self._block.address, self._block.nbytes, self._kernels.gpu.stream)
        self._kernels.gpu.synchronize()

    def _prefetch_to_cpu(self) -> None:
        self._managed.prefetch_to_cpu(self._block.address, self._block.nbytes, self._kernels.gpu.stream)
        self._kernels.gpu.synchronize()


@contextmanager
def host_memory(context: Context, way: str, nbytes: int) -> Iterator[int]:
    """The address of host memory, `pinned` or `pageable`, with all its pages written."""
    if way == "pageable":
        pageable = np.full(nbytes, _BYTE, dtype=np.uint8)
        yield pageable.ctypes.data
        return
    address, _ = context.host_alloc(nbytes)
    try:
        np.ctypeslib.as_array((c_uint8 * nbytes).from_address(address)).fill(_BYTE)
        yield address
    finally:
        context.host_free(address)


class Blocks:
    """Blocks by size, each allocated once: the first touch of new pages costs more than a case."""

    def __init__(self, managed: Managed, kernels: MemoryKernels) -> None:
        self._managed = managed
        self._kernels = kernels
        self._blocks: dict[int, Block] = {}

    def get(self, nbytes: int) -> Block:
        """The block of that size."""
        if nbytes not in self._blocks:
            self._blocks[nbytes] = Block(self._managed.allocate(nbytes), nbytes, self._kernels)
        return self._blocks[nbytes]

    def clear(self) -> None:
        """Give all of them back."""
        self._kernels.gpu.synchronize()
        while self._blocks:
            _, block = self._blocks.popitem()
            self._managed.free(block.address)
