"""A torch whose CUDA allocator is Python: best fit, segments and splitting as in torch's own.

`FakeTorch("native")` has a heap of segments with blocks; `expandable_segments` and `cudaMallocAsync` reserve
what is in use, in pages. `lie_nbytes` is added to what it tells of its peak, `leak` keeps freed blocks.
"""

import functools
from types import SimpleNamespace
from typing import Any

from bench_lib.alloc_traces.children import serving
from bench_lib.alloc_traces.memory import CudaMemory

MIB = 1 << 20


def up(nbytes: int, step: int) -> int:
    return -(-nbytes // step) * step


class OutOfMemoryError(RuntimeError):
    pass


class Pages:
    """Reserves as many pages as the bytes in use fill; empties to none."""

    def __init__(self, page: int) -> None:
        self.page, self.used, self.reserved = page, 0, 0

    def take(self, nbytes: int, limit: int) -> tuple[Any, int]:
        self.used += nbytes
        self.reserved = max(self.reserved, up(self.used, self.page))
        if self.reserved > limit:
            self.used -= nbytes
            raise OutOfMemoryError("CUDA out of memory.")
        return None, nbytes

    def give(self, _: Any, nbytes: int) -> None:
        self.used -= nbytes

    def empty(self) -> None:
        self.reserved = up(self.used, self.page)

    def unused(self) -> list[int]:
        return [self.reserved - self.used]

    retries = asked = 0
    segments = 1


class Heap:
    """Segments of 2 or 20 MiB or of one block, each a list of [nbytes, is free]."""

    def __init__(self) -> None:
        self.pools: dict[bool, list[list[list[Any]]]] = {True: [], False: []}
        self.retries = self.asked = self.reserved = 0

    @property
    def segments(self) -> int:
        return len(self.all())

    def all(self) -> list[list[list[Any]]]:
        return [*self.pools[True], *self.pools[False]]

    def take(self, nbytes: int, limit: int) -> tuple[Any, int]:
        small = nbytes <= MIB
        fitting = [
            (block[0], segment, block)
            for segment in self.pools[small]
            for block in segment
            if block[1] and block[0] >= nbytes
        ]
        if not fitting:
            whole = 2 * MIB if small else 20 * MIB if nbytes < 10 * MIB else up(nbytes, 2 * MIB)
            if self.reserved + whole > limit:
                self.retries += 1
                self.empty()
            if self.reserved + whole > limit:
                raise OutOfMemoryError("CUDA out of memory.")
            self.asked += 1
            self.reserved += whole
            self.pools[small].append([[whole, True]])
            segment = self.pools[small][-1]
            fitting = [(whole, segment, segment[0])]
        found, segment, block = min(fitting, key=lambda one: one[0])
        if found - nbytes >= 512 if small else found - nbytes > MIB:
            segment.insert(_place(segment, block) + 1, [found - nbytes, True])
            block[0] = nbytes
        block[1] = False
        return (segment, block), block[0]

    def give(self, place: Any, _: int) -> None:
        segment, block = place
        block[1] = True
        at = _place(segment, block)
        for neighbour in (at + 1, at - 1):
            if 0 <= neighbour < len(segment) and segment[neighbour][1]:
                block[0] += segment.pop(neighbour)[0]
                at = _place(segment, block)

    def empty(self) -> None:
        for small, pool in self.pools.items():
            self.pools[small] = [segment for segment in pool if not (len(segment) == 1 and segment[0][1])]
        self.reserved = sum(block[0] for segment in self.all() for block in segment)

    def unused(self) -> list[int]:
        return [block[0] for segment in self.all() for block in segment if block[1]]


def _place(segment: list[list[Any]], block: list[Any]) -> int:
    return next(i for i, one in enumerate(segment) if one is block)


class Block:
    """A tensor: it gives its memory back with its last reference."""

    def __init__(self, cuda: "FakeCuda", nbytes: int) -> None:
        self.cuda, self.nbytes = cuda, nbytes
        self.place, self.size = cuda.heap.take(up(nbytes, 512), cuda.limit)
        cuda.count(self.size, nbytes)

    def __del__(self) -> None:
        if hasattr(self, "place") and not self.cuda.leak:
            self.cuda.heap.give(self.place, self.size)
            self.cuda.count(-self.size, -self.nbytes)


class FakeCuda:
    """torch.cuda, as far as it is used."""

    OutOfMemoryError = OutOfMemoryError
    total = 64 << 30

    def __init__(self, backend: str, in_effect: str = "") -> None:
        self.backend, self.in_effect = backend, in_effect or backend
        pages = {"expandable_segments": 2 * MIB, "cudaMallocAsync": 32 * MIB}
        self.heap: Any = Pages(pages[self.in_effect]) if self.in_effect in pages else Heap()
        self.limit, self.lie_nbytes, self.leak = self.total, 0, False
        self.now = self.peak = self.requested = self.requested_peak = self.reserved_peak = 0

    def count(self, nbytes: int, requested: int) -> None:
        self.now += nbytes
        self.requested += requested
        self.peak, self.requested_peak = max(self.peak, self.now), max(self.requested_peak, self.requested)
        self.reserved_peak = max(self.reserved_peak, self.heap.reserved)

    def is_available(self) -> bool:
        return True

    def get_allocator_backend(self) -> str:
        return "cudaMallocAsync" if self.in_effect == "cudaMallocAsync" else "native"

    def synchronize(self) -> None:
        pass

    def empty_cache(self) -> None:
        self.heap.empty()

    def reset_peak_memory_stats(self) -> None:
        self.peak, self.requested_peak = self.now, self.requested
        self.reserved_peak = self.heap.reserved

    def memory_allocated(self) -> int:
        return self.now

    def max_memory_allocated(self) -> int:
        return self.peak + self.lie_nbytes

    def memory_reserved(self) -> int:
        return int(self.heap.reserved)

    def max_memory_reserved(self) -> int:
        return self.reserved_peak

    def mem_get_info(self) -> tuple[int, int]:
        return self.total - self.heap.reserved, self.total

    def set_per_process_memory_fraction(self, fraction: float) -> None:
        self.limit = int(fraction * self.total)

    def memory_stats(self) -> dict[str, int]:
        if self.backend == "cudaMallocAsync":
            return {"num_alloc_retries": 0, "segment.all.current": 0}
        return {
            "requested_bytes.all.peak": self.requested_peak,
            "segment.all.current": self.heap.segments,
            "num_alloc_retries": self.heap.retries,
            "num_device_alloc": self.heap.asked,
        }

    def memory_snapshot(self) -> list[dict[str, Any]]:
        expandable = self.in_effect == "expandable_segments"
        blocks = [{"size": size, "state": "inactive"} for size in self.heap.unused()]
        return [
            {"is_expandable": expandable, "blocks": [*blocks, {"size": 9 << 40, "state": "active_allocated"}]}
        ]


class FakeTorch(SimpleNamespace):
    """torch with such an allocator; on the device `meta` a tensor is nothing."""

    def __init__(self, backend: str, in_effect: str = "") -> None:
        super().__init__(cuda=FakeCuda(backend, in_effect), uint8="uint8", __version__="9.9")

    def empty(self, nbytes: int, dtype: str, device: str) -> Any:
        return None if device == "meta" else Block(self.cuda, nbytes)

    def zeros(self, nbytes: int, dtype: str) -> Any:
        return SimpleNamespace(to=lambda _device: Block(self.cuda, nbytes))


@functools.cache
def memory(backend: str) -> CudaMemory:
    """The memory of a fresh fake; one a process."""
    return CudaMemory(FakeTorch(backend), backend)


def worker(backend: str) -> Any:
    """What stands in for bench_lib.alloc_traces.children.allocator_worker."""
    return serving(memory(backend))
