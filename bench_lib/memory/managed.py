"""Managed memory through any libcudart from 11.7 on: a library in; memory that moves by itself out.

CUDA 12.2 added forms of prefetch and advise that take a place, and CUDA 13 gave those forms the
plain names: an old call there reads garbage. The form is chosen by the version that the *loaded*
library reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import Structure, byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from bench_lib.device.c_library import Library
from bench_lib.errors import CudaError, Unavailable, UsageError

if TYPE_CHECKING:
    from bench_lib.device.cudart import Runtime

GIB = 1 << 30
LIMIT_NBYTES = 4 * GIB  # of managed memory in all, at any time: this suite never oversubscribes
_ATTACH_GLOBAL = 1

# driver_types.h, cudaMemLocationType. In the old form the host is device -1 (cudaCpuDeviceId).
_DEVICE, _HOST = 1, 2
_CPU_DEVICE = -1


class Advice(IntEnum):
    """cudaMemoryAdvise of driver_types.h; the next number undoes each."""

    READ_MOSTLY = 1
    PREFERRED_LOCATION = 3
    ACCESSED_BY = 5


class Location(Structure):
    """cudaMemLocation: eight bytes, handed over by value."""

    _fields_ = (("type", c_int), ("id", c_int))


@dataclass(frozen=True)
class Form:
    """How a libcudart spells prefetch and advise, and whether a place is a Location or an int."""

    prefetch: str
    advise: str
    location: bool


def form(version: str) -> Form:
    """The form of the libcudart of that version ("11.8"); UsageError for a major not known."""
    major, minor = (int(part) for part in version.split(".")[:2])
    if (11, 0) <= (major, minor) < (12, 2):
        return Form("cudaMemPrefetchAsync", "cudaMemAdvise", location=False)
    if major == 12:
        return Form("cudaMemPrefetchAsync_v2", "cudaMemAdvise_v2", location=True)
    if major == 13:
        return Form("cudaMemPrefetchAsync", "cudaMemAdvise", location=True)
    raise UsageError(
        f"libcudart {version} may take other arguments for cudaMemPrefetchAsync; this suite knows "
        "those of CUDA 11, 12 and 13: choose one of these, or upgrade the suite"
    )


def _signatures(chosen: Form) -> dict[str, tuple[Any, ...]]:
    place = (Location,) if chosen.location else (c_int,)
    flags = (c_uint,) if chosen.location else ()
    return {
        "cudaMallocManaged": (c_void_p, c_size_t, c_uint),
        "cudaFree": (c_void_p,),
        "cudaMemGetInfo": (c_void_p, c_void_p),
        "cudaGetLastError": (),
        chosen.prefetch: (c_void_p, c_size_t, *place, *flags, c_void_p),
        chosen.advise: (c_void_p, c_size_t, c_int, *place),
    }


class Managed:
    """Managed memory of one device through one libcudart, bounded in all."""

    def __init__(self, runtime: Runtime, device: int = 0) -> None:
        """Choose the form of this runtime; UsageError when its major is not known."""
        self.form = form(runtime.version)
        self._library = Library(str(runtime.path), _signatures(self.form))
        self._device = device
        self._taken: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        """All that is allocated now."""
        return sum(self._taken.values())

    def check_room(self, nbytes: int) -> None:
        """Raise UsageError above LIMIT_NBYTES in all, Unavailable above half of what the GPU has free."""
        wanted = self.nbytes + nbytes
        if wanted > LIMIT_NBYTES:
            raise UsageError(
                f"{wanted} bytes of managed memory in all; the suite takes at most {LIMIT_NBYTES}: "
                "free some first, or use a smaller size"
            )
        self.check_free(wanted)

    def check_free(self, nbytes: int) -> None:
        """Raise Unavailable when that is more than half of what the device has free."""
        free = self.free_nbytes()
        if 2 * nbytes > free:
            raise Unavailable(
                f"{nbytes} bytes are more than half of the {free} free bytes of the GPU; "
                "the suite never oversubscribes"
            )

    def free_nbytes(self) -> int:
        """What cudaMemGetInfo says is free on the device."""
        free, total = c_size_t(), c_size_t()
        self._call("cudaMemGetInfo", byref(free), byref(total))
        return free.value

    def allocate(self, nbytes: int) -> int:
        """The address of new managed memory; its pages come into being where they are first touched."""
        self.check_room(nbytes)
        pointer = c_void_p()
        self._call("cudaMallocManaged", byref(pointer), nbytes, _ATTACH_GLOBAL)
        address = pointer.value or 0
        self._taken[address] = nbytes
        return address

    def free(self, address: int) -> None:
        """Give managed memory back."""
        self._call("cudaFree", address)
        del self._taken[address]

    @contextmanager
    def memory(self, nbytes: int) -> Iterator[int]:
        """Managed memory for a block of code."""
        address = self.allocate(nbytes)
        try:
            yield address
        finally:
            self.free(address)

    def prefetch_to_gpu(self, address: int, nbytes: int, stream: int) -> None:
        """Queue moving the pages to the device."""
        self._prefetch(address, nbytes, self._place(host=False), stream)

    def prefetch_to_cpu(self, address: int, nbytes: int, stream: int) -> None:
        """Queue moving the pages to the host."""
        self._prefetch(address, nbytes, self._place(host=True), stream)

    def advise(self, address: int, nbytes: int, advice: Advice) -> None:
        """Advise about the device: its preferred location, or that it will access the pages."""
        self._call(self.form.advise, address, nbytes, int(advice), self._place(host=False))

    def unadvise(self, address: int, nbytes: int, advice: Advice) -> None:
        """Take an advice back."""
        self._call(self.form.advise, address, nbytes, int(advice) + 1, self._place(host=False))

    def _place(self, host: bool) -> Location | int:
        if self.form.location:
            return Location(_HOST, 0) if host else Location(_DEVICE, self._device)
        return _CPU_DEVICE if host else self._device

    def _prefetch(self, address: int, nbytes: int, place: Location | int, stream: int) -> None:
        flags = (0,) if self.form.location else ()
        self._call(self.form.prefetch, address, nbytes, place, *flags, stream)

    def _call(self, name: str, *arguments: Any) -> None:
        code = self._library.function(name)(*arguments)
        if code:
            # cudart remembers the error until it is asked; torch would find it and blame itself.
            self._library.function("cudaGetLastError")()
            raise CudaError(name, code, self._error_name(code))

    def _error_name(self, code: int) -> str:
        function = self._library.function("cudaGetErrorName")
        function.argtypes, function.restype = (c_int,), c_char_p
        return (function(code) or b"").decode()
