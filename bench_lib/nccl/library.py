"""A libnccl by its path: versions, communicators and collectives, no torch. Handles are plain integers.

Several live side by side in one process, each with its own communicator. The signatures are those of
nccl.h from 2.13 to 2.32; the collectives are handed out as calls for the native loops.
"""

import ctypes
from ctypes import c_char, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

from bench_lib.collectives.asked import Collective
from bench_lib.device.c_library import Library
from bench_lib.device.native import Call
from bench_lib.errors import CudaGainsError, Unavailable
from bench_lib.identity import libraries
from bench_lib.units import nccl_version_text

UNIQUE_ID_NBYTES = 128
SUM = 0
_ROOT = 0
_DTYPES = {"fp32": 7, "bf16": 9}  # ncclDataType_t


class _UniqueId(ctypes.Structure):
    _fields_ = [("internal", c_char * UNIQUE_ID_NBYTES)]


_COLLECTIVE = (c_void_p, c_void_p, c_size_t, c_int)
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (c_void_p,),
    "ncclGetUniqueId": (c_void_p,),
    "ncclCommInitRank": (c_void_p, c_int, _UniqueId, c_int),
    "ncclCommCount": (c_void_p, c_void_p),
    "ncclCommUserRank": (c_void_p, c_void_p),
    "ncclCommGetAsyncError": (c_void_p, c_void_p),
    "ncclCommDestroy": (c_void_p,),
    "ncclGetErrorString": (c_int,),
    "ncclGetLastError": (c_void_p,),
    "ncclAllReduce": (*_COLLECTIVE, c_int, c_void_p, c_void_p),
    "ncclReduceScatter": (*_COLLECTIVE, c_int, c_void_p, c_void_p),
    "ncclAllGather": (*_COLLECTIVE, c_void_p, c_void_p),
    "ncclBroadcast": (*_COLLECTIVE, c_int, c_void_p, c_void_p),
}
_FUNCTIONS = {
    "all_reduce": "ncclAllReduce",
    "reduce_scatter": "ncclReduceScatter",
    "all_gather": "ncclAllGather",
    "broadcast": "ncclBroadcast",
}


class NcclError(CudaGainsError):
    """A call of NCCL failed: which, the code, and what NCCL says of it."""


class Nccl:
    """A loaded libnccl."""

    def __init__(self, path: Path) -> None:
        """Load it; Unavailable when that fails."""
        self.path = path.resolve()
        try:
            self._library = Library(str(self.path), SIGNATURES)
        except OSError as error:
            raise Unavailable(f"the NCCL {path} cannot be loaded: {error}") from None
        number = c_int()
        self._call("ncclGetVersion", ctypes.byref(number))
        self.version = nccl_version_text(number.value)

    def unique_id(self) -> bytes:
        """The id with which all ranks of one communicator come together; one rank makes it."""
        made = _UniqueId()
        self._call("ncclGetUniqueId", ctypes.byref(made))
        return ctypes.string_at(ctypes.byref(made), UNIQUE_ID_NBYTES)

    def init_rank(self, unique_id: bytes, size: int, rank: int) -> int:
        """A communicator on the device that is current here; returns once all ranks have come."""
        given, made = _UniqueId(), c_void_p()
        ctypes.memmove(ctypes.byref(given), unique_id, UNIQUE_ID_NBYTES)
        self._call("ncclCommInitRank", ctypes.byref(made), size, given, rank)
        return made.value or 0

    def rank_and_size(self, comm: int) -> tuple[int, int]:
        """What a communicator says of itself."""
        rank, size = c_int(), c_int()
        self._call("ncclCommUserRank", comm, ctypes.byref(rank), comm=comm)
        self._call("ncclCommCount", comm, ctypes.byref(size), comm=comm)
        return rank.value, size.value

    def check(self, comm: int) -> None:
        """Raise what happened in the communicator since, in a kernel or another thread of NCCL."""
        code = c_int()
        self._call("ncclCommGetAsyncError", comm, ctypes.byref(code), comm=comm)
        if code.value:
            raise self.error("ncclCommGetAsyncError", code.value, comm)

    def destroy(self, comm: int) -> None:
        """Give a communicator back; all ranks must."""
        self._call("ncclCommDestroy", comm)

    def call(self, asked: Collective, send: int, receive: int, comm: int, stream: int) -> Call:
        """The call of a collective, for the native loops; `send` and `receive` are device pointers.

        A size is that of the whole operation, as nccl-tests has it; what is passed is a rank's count.
        """
        name, dtype = _FUNCTIONS[asked.op], _DTYPES[asked.dtype]
        reduces = {"all_reduce": (SUM,), "reduce_scatter": (SUM,), "broadcast": (_ROOT,)}.get(asked.op, ())
        arguments = (send, receive, asked.count, dtype, *reduces, comm, stream)
        return Call(self._library.address(name), arguments, name)

    def text(self, code: int) -> str:
        """What a code of NCCL means."""
        function = self._library.function("ncclGetErrorString")
        function.restype = c_char_p
        return (function(code) or b"").decode(errors="replace")

    def _call(self, name: str, *arguments: Any, comm: int = 0) -> None:
        code = self._library.function(name)(*arguments)
        if code:
            raise self.error(name, code, comm)

    def error(self, name: str, code: int, comm: int) -> NcclError:
        """A failed call as an error, with NCCL's own last words, which it has from 2.13 on."""
        sentence = f"{name} failed with NCCL error {code} ({self.text(code)})"
        try:
            function = self._library.function("ncclGetLastError")
        except Unavailable:
            return NcclError(sentence)
        function.restype = c_char_p
        last = (function(comm or None) or b"").decode(errors="replace").strip()
        return NcclError(f"{sentence}: {last}" if last else sentence)


def versions(path: Path) -> dict[str, str]:
    """Facts of a libnccl that is loaded in this process: path, hash, its own version and its wheel's."""
    found = {
        "nccl.path": str(path),
        "nccl.sha256": libraries.sha256(path),
        "nccl.version": libraries.version("nccl", path),
        "nccl.pip": _pip_version(path),
    }
    return {name: value for name, value in found.items() if value}


def _pip_version(path: Path) -> str:
    """The version of the wheel whose folder nvidia/nccl/lib holds the file; "" without one."""
    if path.parent.parts[-3:] != ("nvidia", "nccl", "lib"):
        return ""
    infos = path.parents[3].glob("nvidia_nccl_cu*.dist-info")
    return " + ".join(sorted(info.name.removesuffix(".dist-info").partition("-")[2] for info in infos))
