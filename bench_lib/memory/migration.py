"""Blocks of managed memory whose pages are moved on purpose, and whose place is checked.

A block is brought home by a CPU write to each page and sent away by a GPU write to each page. What
moved is then told from the CPU's page table; where the kernel does not show it, from how long a
second touch takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from ctypes import c_float, c_uint32, c_uint64
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bench_lib.errors import WrongResult
from bench_lib.memory import memory_kernels
from bench_lib.memory.residency import PAGE_NBYTES, present_pages

if TYPE_CHECKING:
    from bench_lib.device.gpu import Gpu
    from bench_lib.device.kernels import Cubin

ORDERS = ("sequential", "strided", "random")
BLOCK_NBYTES = 2 << 20  # what the driver manages as one: a fault never moves more (uvm_va_block)
_BLOCK_PAGES = BLOCK_NBYTES // PAGE_NBYTES
_SEED = 20240131

# One warp a thread block, so that the pages touched at one time are near each other in the order.
TOUCH_GRID, TOUCH_THREADS = (64, 1, 1), (32, 1, 1)
_WIDE_GRID, _WIDE_THREADS = (1024, 1, 1), (256, 1, 1)
_ONE = (1, 1, 1)

# The 32-bit word of a page that each side writes; words 0 and 1 may hold an address of a chain.
GPU_WORD, CPU_WORD = 0, 2

_SLOW = 5.0  # a second touch that takes so many times the usual moved pages ...
_SLOW_CHECKS = 3  # ... when it is so in as many checks running


def page_order(pages: int, order: str) -> NDArray[np.uint32]:
    """The order in which pages are touched: all of them, once.

    `strided` takes one page of each 2 MiB block, then the next of each; `random` is seeded.
    """
    numbers = np.arange(pages, dtype=np.uint32)
    if order == "strided" and pages % _BLOCK_PAGES == 0:
        return np.ascontiguousarray(numbers.reshape(-1, _BLOCK_PAGES).T.reshape(-1))
    return np.random.default_rng(_SEED).permutation(numbers) if order == "random" else numbers


class MemoryKernels:
    """The kernels of memory_kernels on the suite's stream; addresses are plain integers."""

    def __init__(self, gpu: Gpu, cubin: Cubin) -> None:
        self.gpu = gpu
        module = gpu.context.load(cubin.data)
        self._functions = {name: gpu.context.function(module, name) for name in memory_kernels.NAMES}
        self._result = gpu.context.alloc(16)
        self._orders: dict[tuple[int, str], int] = {}
        for name in memory_kernels.NAMES:  # over nothing: code that is not loaded yet must not meet a hold
            result_at = 2 if name == "chase" else 4
            parameters = [c_uint64(self._result if i == result_at else 0) for i in range(5)]
            self._launch(name, _ONE, _ONE, parameters)
        gpu.synchronize()

    def touch_write(self, address: int, pages: int, order: str, value: int) -> None:
        """Queue a write of `value` to the first word of each page."""
        self._touch("touch_write", address, pages, order, c_uint32(value))

    def touch_read(self, address: int, pages: int, order: str) -> None:
        """Queue a read of the first word of each page."""
        self._touch("touch_read", address, pages, order, c_uint64(self._result))

    def chain(self, address: int, successor: NDArray[np.uint32], step: int) -> None:
        """Let slot i, `step` bytes apart, hold the address of slot successor[i]; waits for it."""
        table = self.upload(successor)
        words = [c_uint64(word) for word in (address, table, len(successor), step)]
        self._launch("chain", _WIDE_GRID, _WIDE_THREADS, words)
        self.gpu.synchronize()
        self.gpu.context.free(table)

    def chase(self, start: int, hops: int) -> float:
        """Device seconds of following `hops` addresses from `start`, one after the other."""
        words = [c_uint64(word) for word in (start, hops, self._result)]
        return self.seconds(lambda: self._launch("chase", _ONE, _ONE, words))

    def chased(self) -> tuple[int, int]:
        """What the last chase gave: its SM cycles, and the address it came to."""
        cycles, address = np.frombuffer(self.gpu.context.download(self._result, 16), dtype=np.uint64)
        return int(cycles), int(address)

    def gradient(self, address: int, words: int, factor: float, shift: float) -> None:
        """Queue word * factor + shift on all 32-bit floats."""
        arguments = [c_uint64(address), c_uint64(words), c_float(factor), c_float(shift)]
        self._launch("gradient", _WIDE_GRID, _WIDE_THREADS, arguments)

    def seconds(self, launch: Callable[[], None]) -> float:
        """Device seconds of the kernel that `launch` queues, without the gap of its submission."""
        with self.gpu.hold():
            start = self.gpu.record()
            launch()
            stop = self.gpu.record()
        self.gpu.synchronize()
        return self.gpu.elapsed(start, stop)

    def upload(self, numbers: NDArray[np.uint32]) -> int:
        """New device memory holding these numbers."""
        address = self.gpu.context.alloc(numbers.nbytes)
        self.gpu.context.upload(address, numbers.tobytes())
        return address

    def close(self) -> None:
        """Give the device memory back."""
        self.gpu.synchronize()
        for address in (self._result, *self._orders.values()):
            self.gpu.context.free(address)
        self._orders.clear()

    def _touch(self, name: str, address: int, pages: int, order: str, last: Any) -> None:
        if (pages, order) not in self._orders:
            self._orders[pages, order] = self.upload(page_order(pages, order))
        table = self._orders[pages, order]
        words = [c_uint64(word) for word in (address, table, pages, PAGE_NBYTES)]
        self._launch(name, TOUCH_GRID, TOUCH_THREADS, [*words, last])

    def _launch(self, name: str, grid: Any, threads: Any, arguments: list[Any]) -> None:
        self.gpu.context.launch(self._functions[name], grid, threads, arguments, self.gpu.stream)


class Block:
    """Managed memory of whole pages. It begins at home: every page was written by the CPU."""

    def __init__(self, address: int, nbytes: int, kernels: MemoryKernels) -> None:
        self.address = address
        self.nbytes = nbytes
        self.pages = nbytes // PAGE_NBYTES
        self.words: NDArray[np.uint32] = np.ctypeslib.as_array(
            (c_uint32 * (nbytes // 4)).from_address(address)
        )
        self._kernels = kernels
        self._turn = 0
        self._by_speed = {
            "CPU": _SecondTouch(self._timed_by_cpu),
            "GPU": _SecondTouch(self._timed_by_gpu),
        }
        self.home()

    def touch_by_cpu(self, order: NDArray[np.uint32] | None = None) -> None:
        """Write one word of each page from the CPU, front to back or in this order of pages."""
        self._turn += 1
        by_page = self.words.reshape(self.pages, -1)[:, CPU_WORD]
        by_page[slice(None) if order is None else order] = self._turn

    def touch_by_gpu(self, order: str = "sequential", access: str = "write") -> None:
        """Queue a touch of one word of each page from the GPU."""
        if access == "read":
            self._kernels.touch_read(self.address, self.pages, order)
            return
        self._turn += 1
        self._kernels.touch_write(self.address, self.pages, order, self._turn)

    def home(self) -> None:
        """Bring every page to the CPU."""
        self._kernels.gpu.synchronize()
        self.touch_by_cpu()

    def away(self) -> None:
        """Send every page to the GPU."""
        self.touch_by_gpu()
        self._kernels.gpu.synchronize()

    def check_home(self) -> None:
        """Raise WrongResult unless every page is on the CPU."""
        present = self.present()
        if present is None:
            self._by_speed["CPU"].check("CPU")
        elif present < self.pages:
            raise WrongResult(
                f"{self.pages - present} of {self.pages} pages were not on the CPU before a repetition; "
                "its time would not be that of moving them"
            )

    def check_away(self) -> None:
        """Raise WrongResult unless no page is on the CPU."""
        present = self.present()
        if present is None:
            self._by_speed["GPU"].check("GPU")
        elif present > 0:
            raise WrongResult(
                f"{present} of {self.pages} pages were not on the GPU before a repetition; "
                "its time would not be that of moving them"
            )

    def check_written_by_gpu(self) -> None:
        """Raise WrongResult unless the GPU's last write reached every page; brings them home."""
        found = self.words.reshape(self.pages, -1)[:, GPU_WORD]
        missing = int((found != self._turn).sum())
        if missing:
            raise WrongResult(f"the GPU's write did not reach {missing} of {self.pages} pages")

    def present(self) -> int | None:
        """How many pages the CPU has; None where the kernel does not show it."""
        return present_pages(self.address, self.nbytes)

    def _timed_by_cpu(self) -> float:
        start = time.perf_counter()
        self.touch_by_cpu()
        return time.perf_counter() - start

    def _timed_by_gpu(self) -> float:
        return self._kernels.seconds(self.touch_by_gpu)


class _SecondTouch:
    """Tells by its time whether a touch moved pages: where they are already, it moves none."""

    def __init__(self, touch: Callable[[], float]) -> None:
        self._touch = touch
        self._usual: float | None = None
        self._slow = 0

    def check(self, side: str) -> None:
        """Touch again; raise WrongResult when that was slow in three checks running (fewer may be noise)."""
        seconds = self._touch()
        if self._usual is None:
            self._usual = min(self._touch() for _ in range(3))
        self._slow = self._slow + 1 if seconds > _SLOW * self._usual else 0
        if self._slow >= _SLOW_CHECKS:
            raise WrongResult(
                f"a second touch by the {side} took {seconds / self._usual:.0f} times the usual: the pages "
                "were not there, and the time of a repetition would not be that of moving them"
            )
