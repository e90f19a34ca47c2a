"""A CUDA runtime by its path: registers the suite's kernels with it and launches through it.

Needs no nvcc and no torch. Several runtimes live side by side in one process, each with its own
registration of the same cubin. Handles and addresses are plain integers.
"""

import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import struct
import sys
from collections.abc import Iterable, Sequence
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from bench_lib.device.c_library import Library, known_to_ldconfig
from bench_lib.device.driver import Dim3
from bench_lib.device.kernels import Cubin
from bench_lib.errors import CudaError, Unavailable, UsageError
from bench_lib.stacking import cache, stacks
from bench_lib.stacking.stacks import StackEntry
from bench_lib.units import cuda_version_text

KNOWN_MAJORS = (11, 12, 13)
_RELAXED_CAPTURE = 2


class _Dim3(ctypes.Structure):
    _fields_ = [(axis, c_uint) for axis in "xyz"]


# The parameters of every call, the same from CUDA 11.4 to 13: driver_types.h, cuda_runtime_api.h
# and, for the registration that nvcc writes into every program, crt/host_runtime.h.
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cudaRuntimeGetVersion": (c_void_p,),
    "cudaGetErrorName": (c_int,),
    "cudaFree": (c_void_p,),
    "cudaLaunchKernel": (c_void_p, _Dim3, _Dim3, c_void_p, c_size_t, c_void_p),
    "cudaStreamSynchronize": (c_void_p,),
    "cudaStreamBeginCapture": (c_void_p, c_int),
    "cudaStreamEndCapture": (c_void_p, c_void_p),
    "cudaGraphInstantiateWithFlags": (c_void_p, c_void_p, c_uint64),
    "cudaGraphExecDestroy": (c_void_p,),
    "__cudaRegisterFatBinary": (c_void_p,),
    "__cudaRegisterFunction": (c_void_p,) * 4 + (c_int,) + (c_void_p,) * 5,
    "__cudaRegisterFatBinaryEnd": (c_void_p,),
}


def locate(version: str, wheels: Path | None = None) -> Path:
    """The libcudart of a version such as "12.4": from the cache of stacks, or a wheel in `wheels`."""
    return stacks.cached_library(stacks.stack(f"cudart-{version}"), wheels)


def of_stack(entry: StackEntry, wheels: Path | None = None) -> Path:
    """The libcudart of a stack; Unavailable when it has none."""
    if entry.kind == "cudart":
        return stacks.cached_library(entry, wheels)
    if entry.base is not None and entry.library != "cudart":
        return of_stack(entry.base, wheels)
    if entry.kind in ("here", "venv", "container"):
        return loaded_or_default()
    found = next(stacks.libraries(entry, "libcudart.so.*"), None)
    if found is None:
        raise Unavailable(f"stack {entry.name} has no libcudart in nvidia/*/lib; add one to it")
    return found


def loaded_or_default() -> Path:
    """The libcudart of stack `here`: the one this process has loaded, else the one it would.

    Looked for in the packages that pip installs (torch's CUDA major first), then $CUDA_HOME, then
    what ldconfig knows. Raises Unavailable when there is none.
    """
    searches = (_loaded, _installed, _from_cuda_home, _from_loader)
    found = next((path for search in searches for path in search()), None)
    if found is None:
        raise Unavailable(
            "no libcudart here: none is loaded, in site-packages, in $CUDA_HOME or known to ldconfig; "
            "install torch or the package nvidia-cuda-runtime, or choose a cudart stack"
        )
    return found


def _loaded() -> list[Path]:
    """The libcudarts in this process's memory map, without those that a ladder loaded there."""
    line = re.compile(r"^(?:\S+ +){5}(/.*/libcudart[^/]*\.so[^/]*)$", re.MULTILINE)
    mapped = [Path(found) for found in dict.fromkeys(line.findall(Path("/proc/self/maps").read_text()))]
    ladder = (cache.root() / "stacks").resolve()
    found = [path for path in mapped if not path.is_relative_to(ladder)]
    # torchvision brings a private copy, in torchvision.libs; the one torch uses counts
    return sorted(found, key=lambda path: path.parent.name.endswith(".libs"))


def _installed() -> list[Path]:
    found = [path for entry in sys.path for path in sorted(Path(entry).glob("nvidia/*/lib/libcudart.so.*"))]
    wanted, _, _ = torch_cuda().partition(".")
    return sorted(found, key=lambda path: _major_of(path) != wanted)


def _from_cuda_home() -> list[Path]:
    home = os.environ.get("CUDA_HOME")
    return sorted(Path(home).glob("lib*/libcudart.so.*")) if home else []


def _from_loader() -> list[Path]:
    return known_to_ldconfig(r"libcudart\.so\.\d\S*")


def torch_cuda() -> str:
    """The CUDA version of the installed torch ("12.4"), read from its files: importing it takes seconds.

    "" without torch, or where it is built for the CPU.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    try:
        text = (Path(spec.origin).parent / "version.py").read_text()
    except OSError:
        return ""
    found = re.search(r"^cuda\b[^=]*= *'(\d+\.\d+)", text, re.MULTILINE)
    return found[1] if found else ""


def _major_of(path: Path) -> str:
    found = re.search(r"\.so\.(\d+)", path.name)
    return found[1] if found else ""


class Runtime:
    """A loaded libcudart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._library = Library(str(path), _SIGNATURES)
        except OSError as error:
            raise Unavailable(f"the CUDA runtime {path} cannot be loaded: {error}") from None
        self._keys: dict[tuple[str, str], int] = {}
        number = c_int()
        self._call("cudaRuntimeGetVersion", ctypes.byref(number))
        self.version = cuda_version_text(number.value)
        if number.value // 1000 not in KNOWN_MAJORS:
            raise UsageError(
                f"{path} is CUDA runtime {self.version}; this suite knows the calls of CUDA "
                f"{', '.join(map(str, KNOWN_MAJORS))}; use one of those or a newer suite"
            )

    @classmethod
    def load(cls, path: Path, copy: Path | None = None) -> Self:
        """Load a libcudart by its full path, whatever else is loaded; or first copy it to `copy`.

        A copy is another library to the loader: it lies elsewhere in memory and has its own state.
        Raises Unavailable when it cannot be loaded, UsageError for an unknown CUDA major, CudaError
        when it cannot tell its version (CUDA 11 asks the driver for that).
        """
        if copy is not None:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        return cls((copy or path).resolve())

    @cached_property
    def sha256(self) -> str:
        """The hash of the file."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    def address(self, symbol: str) -> int:
        """The address of a runtime function, for the native loops."""
        return self._library.address(symbol)

    def initialise(self) -> None:
        """Let the runtime do what it does at its first use; the context current here is kept."""
        self._call("cudaFree", None)

    def register(self, cubin: Cubin, names: Iterable[str]) -> dict[str, int]:
        """Make kernels of a cubin launchable: name -> the key that cudaLaunchKernel takes.

        As nvcc's host code does it. The runtime may load the code only at the first launch, so what
        is registered stays in memory until the process ends.
        """
        wanted = list(names)
        missing = [name for name in wanted if (cubin.sha256, name) not in self._keys]
        if missing:
            self._register(cubin, missing)
        return {name: self._keys[cubin.sha256, name] for name in wanted}

    def _register(self, cubin: Cubin, names: Sequence[str]) -> None:
        wrapper = struct.pack("<iiQQ", 0x466243B1, 1, _keep(fatbin(cubin)), 0)
        register = self._library.function("__cudaRegisterFatBinary")
        register.restype = c_void_p
        binary = register(_keep(wrapper))
        for name in names:
            key, text = _keep(b"\0"), _keep(name.encode() + b"\0")
            nothing = (None,) * 5
            self._library.function("__cudaRegisterFunction")(binary, key, text, text, -1, *nothing)
            self._keys[cubin.sha256, name] = key
        self._library.function("__cudaRegisterFatBinaryEnd")(binary)

    def launch(self, key: int, grid: Dim3, block: Dim3, stream: int, arguments: Sequence[Any] = ()) -> None:
        """Queue a registered kernel; its parameters are ctypes values. Raises CudaError."""
        pointers = (c_void_p * len(arguments))(*(ctypes.addressof(value) for value in arguments))
        self._call("cudaLaunchKernel", key, _Dim3(*grid), _Dim3(*block), pointers, 0, stream)

    def graph(self, key: int, nodes: int, stream: int) -> int:
        """A graph of `nodes` launches of one kernel without parameters, each after the other."""
        one = (1, 1, 1)
        self.launch(key, one, one, stream)  # its code must be loaded before the capture
        self._call("cudaStreamSynchronize", stream)
        self._call("cudaStreamBeginCapture", stream, _RELAXED_CAPTURE)
        graph = c_void_p()
        try:
            for _ in range(nodes):
                self.launch(key, one, one, stream)
        finally:
            self._call("cudaStreamEndCapture", stream, ctypes.byref(graph))
        return graph.value or 0

    def instantiate(self, graph: int) -> int:
        """An executable form of a graph."""
        executable = c_void_p()
        self._call("cudaGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)
        return executable.value or 0

    def destroy_exec(self, executable: int) -> None:
        """Give an executable graph back."""
        self._call("cudaGraphExecDestroy", executable)

    def _call(self, name: str, *arguments: Any) -> None:
        code = self._library.function(name)(*arguments)
        if code:
            error_name = self._library.function("cudaGetErrorName")
            error_name.restype = c_char_p
            raise CudaError(name, code, (error_name(code) or b"").decode())


def fatbin(cubin: Cubin) -> bytes:
    """A cubin in the container that __cudaRegisterFatBinary expects, as nvcc lays it out.

    A header of 16 bytes, then one entry: a header of 64 bytes and the code, padded to 8.
    """
    code = cubin.data + b"\0" * (-len(cubin.data) % 8)
    kind_elf, entry_version, entry_nbytes, elf_version = 2, 0x0101, 64, cubin.data[8]
    flags = 0x11  # 64 bit, Linux
    entry = struct.pack(
        "<HHIQIIHHIIIQQQ",
        *(kind_elf, entry_version, entry_nbytes, len(code), 0, 0, elf_version, 1, cubin.sm_number, 0, 0),
        *(flags, 0, 0),
    )
    header = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(code))
    return header + entry + code


def _keep(data: bytes) -> int:
    """The address of a copy of `data`, aligned to 64 bytes, that is never freed."""
    allocate = ctypes.CDLL(None).aligned_alloc
    allocate.argtypes, allocate.restype = (c_size_t, c_size_t), c_void_p
    address: int | None = allocate(64, -(-len(data) // 64) * 64)
    if not address:
        raise MemoryError
    ctypes.memmove(address, data, len(data))
    return address
