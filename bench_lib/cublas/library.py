"""Where a stack's cuBLAS lies, and a handle of it on one stream: matrices by their device pointers."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_float, c_int, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bench_lib.device import cudart
from bench_lib.device.c_library import known_to_ldconfig, open_for_all
from bench_lib.errors import CudaError, CudaGainsError, NotApplicable, Unavailable
from bench_lib.stacking import stacks
from bench_lib.stacking.stacks import StackEntry

_PREFIX = "libcublas.so."
_ALLOCATION_FAILED = 3  # cublas_api.h: cublasStatus_t
_NO_TRANSPOSE = 0

# cublas_api.h; the same from CUDA 11 to 13. Handles and device pointers are c_void_p.
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (c_void_p,),
    "cublasDestroy_v2": (c_void_p,),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasGetProperty": (c_int, c_void_p),
    "cublasSgemm_v2": (
        *(c_void_p, c_int, c_int, c_int, c_int, c_int),
        *(c_void_p, c_void_p, c_int, c_void_p, c_int, c_void_p, c_void_p, c_int),
    ),
}


@dataclass(frozen=True)
class CublasLibraries:
    """The paths of libcublas and of the libcublasLt that it needs."""

    cublas: Path
    cublaslt: Path


def locate(stack: StackEntry) -> CublasLibraries:
    """The cuBLAS of a stack: in its nvidia/*/lib, torch's CUDA major first; for `here`, else ldconfig's.

    Raises Unavailable when there is none, NotApplicable for a stack that holds none. Imports no torch.
    """
    found = [] if stack.kind == "cudart" else list(stacks.libraries(stack, f"{_PREFIX}*"))
    if stack.kind == "here":
        major = cudart.torch_cuda().partition(".")[0]
        found.sort(key=lambda path: not path.name.startswith(f"{_PREFIX}{major}"))
        found += known_to_ldconfig(r"libcublas\.so\.\S+")
    elif not found:
        raise NotApplicable(f"stack {stack.name} holds no cuBLAS")
    for path in found:
        beside = path.with_name(path.name.replace("libcublas.", "libcublasLt."))
        if beside.exists():
            return CublasLibraries(path, beside)
    raise Unavailable(
        "no libcublas with its libcublasLt here: none in site-packages/nvidia/*/lib, none known to "
        "ldconfig; install torch's CUDA build or the package nvidia-cublas"
    )


class Cublas:
    """A loaded cuBLAS with a handle on one stream of the current context."""

    def __init__(self, cdll: ctypes.CDLL, stream: int) -> None:
        self._cdll = cdll
        self._functions: dict[str, Any] = {}
        self._handle = c_void_p()
        self._one, self._zero = c_float(1.0), c_float(0.0)
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._call("cublasSetStream_v2", self._handle, stream)

    @staticmethod
    def open(found: CublasLibraries) -> ctypes.CDLL:
        """Load both files by their full paths; libcublas is returned. Raises Unavailable."""
        open_for_all(found.cublaslt)
        return open_for_all(found.cublas)

    @classmethod
    def load(cls, found: CublasLibraries, stream: int) -> Self:
        """Load by path and make a handle; the CUDA context of `stream` must be current."""
        return cls(cls.open(found), stream)

    @property
    def version(self) -> str:
        """Such as 12.4.5."""
        value, parts = c_int(), []
        for kind in range(3):  # library_types.h: libraryPropertyType is major, minor, patch
            self._call("cublasGetProperty", kind, ctypes.byref(value))
            parts.append(str(value.value))
        return ".".join(parts)

    def multiply(self, n: int, a: int, b: int, c: int) -> None:
        """Queue C = A B of square matrices in fp32, n rows each, stored by columns."""
        shape = (_NO_TRANSPOSE, _NO_TRANSPOSE, n, n, n)
        one, zero = ctypes.byref(self._one), ctypes.byref(self._zero)
        self._call("cublasSgemm_v2", self._handle, *shape, one, a, n, b, n, zero, c, n)

    def close(self) -> None:
        """Give the handle back."""
        self._call("cublasDestroy_v2", self._handle)

    def _call(self, name: str, *arguments: Any) -> None:
        if name not in self._functions:
            function = self._cdll[name]
            function.argtypes = _SIGNATURES[name]
            self._functions[name] = function
        if status := self._functions[name](*arguments):
            if status == _ALLOCATION_FAILED:
                raise CudaError(name, CudaError.OUT_OF_MEMORY, "CUBLAS_STATUS_ALLOC_FAILED")
            raise CudaGainsError(f"{name} returned {status} ({self._text(status)})")

    def _text(self, status: int) -> str:
        """The name of a status; cuBLAS tells it from CUDA 11.4 on."""
        try:
            ask = self._cdll["cublasGetStatusName"]
        except AttributeError:
            return "cublasStatus_t"
        ask.restype = c_char_p
        return (ask(status) or b"").decode()
