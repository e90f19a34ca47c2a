"""The memory of one GPU through torch's public functions: blocks, the cache, and what the allocator tells."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from bench_lib.alloc_traces.backends import ASYNC, EXPANDABLE, NATIVE
from bench_lib.errors import CudaGainsError, Unavailable


class Told(NamedTuple):
    """What the allocator says of itself; None where a backend does not count it."""

    allocated_nbytes: int
    peak_nbytes: int
    reserved_nbytes: int
    peak_reserved_nbytes: int
    requested_peak_nbytes: int | None
    segments: int | None
    retries: int
    device_allocs: int | None  # calls of the driver for memory, since the process began


class Free(NamedTuple):
    """What lies in the cache unused."""

    nbytes: int
    largest_nbytes: int


class CudaMemory:
    """Torch's allocator on the current device, under the backend that this process was started with."""

    def __init__(self, torch: Any, backend: str) -> None:
        """Raises Unavailable where torch is without a GPU or does not know the backend."""
        if not torch.cuda.is_available():
            raise Unavailable(f"torch {torch.__version__} sees no GPU, though the driver has one")
        self.backend = backend
        self._torch, self._byte = torch, torch.uint8
        self._check()

    @property
    def out_of_memory(self) -> type[Exception]:
        """What is raised where a block cannot be had."""
        error: type[Exception] = self._torch.cuda.OutOfMemoryError
        return error

    @property
    def total_nbytes(self) -> int:
        """The memory of the device."""
        return int(self._torch.cuda.mem_get_info()[1])

    def block(self, nbytes: int, device: str = "cuda") -> Any:
        """A block, freed with its last reference; on the device `meta` a tensor without memory."""
        return self._torch.empty(nbytes, dtype=self._byte, device=device)

    @property
    def facts(self) -> dict[str, str]:
        """The backend that was asked for, and what torch says it works with."""
        found = self._torch.cuda.get_allocator_backend()
        return {"allocator.backend": self.backend, "allocator.in_effect": str(found)}

    def on_host(self, nbytes: int) -> Any:
        """A tensor in the host's memory."""
        return self._torch.zeros(nbytes, dtype=self._byte)

    def synchronize(self) -> None:
        """Wait for the device."""
        self._torch.cuda.synchronize()

    def empty(self) -> None:
        """Give all that is unused back to the driver."""
        self._torch.cuda.synchronize()
        self._torch.cuda.empty_cache()

    def reset_peak(self) -> None:
        """Peaks count from here."""
        self._torch.cuda.reset_peak_memory_stats()

    def told(self) -> Told:
        """What the allocator says now."""
        cuda = self._torch.cuda
        counts = cuda.memory_stats()
        own = self.backend != ASYNC  # the pool is the driver's: torch counts nothing of it
        return Told(
            int(cuda.memory_allocated()),
            int(cuda.max_memory_allocated()),
            int(cuda.memory_reserved()),
            int(cuda.max_memory_reserved()),
            counts.get("requested_bytes.all.peak") if own else None,
            counts.get("segment.all.current") if own else None,
            int(counts.get("num_alloc_retries", 0)),
            counts.get("num_device_alloc", counts.get("segment.all.allocated")) if own else None,
        )

    def free(self) -> Free | None:
        """What is unused now; None of the driver's pool, which does not tell its blocks."""
        if self.backend == ASYNC:
            return None
        unused = [
            block["size"]
            for segment in self._torch.cuda.memory_snapshot()
            for block in segment["blocks"]
            if block["state"] == "inactive"
        ]
        return Free(sum(unused), max(unused, default=0))

    @contextmanager
    def limited(self, nbytes: int) -> Iterator[None]:
        """Reserve at most so much while inside."""
        limit = self._torch.cuda.set_per_process_memory_fraction
        limit(min(1.0, nbytes / self.total_nbytes))
        try:
            yield
        finally:
            limit(1.0)

    def _check(self) -> None:
        """Hold the allocator in effect to the one that was asked for."""
        cuda = self._torch.cuda
        found = str(cuda.get_allocator_backend())
        if found != (ASYNC if self.backend == ASYNC else NATIVE):
            raise CudaGainsError(f"the allocator {self.backend} was asked for, torch works with {found}")
        if self.backend == ASYNC:
            return
        block = self.block(1 << 20)
        expandable = {bool(segment.get("is_expandable", False)) for segment in cuda.memory_snapshot()}
        del block
        if expandable != {self.backend == EXPANDABLE}:
            raise Unavailable(
                f"torch {self._torch.__version__} does not have {self.backend} in effect here: its segments "
                f"are {'' if True in expandable else 'not '}expandable"
            )
