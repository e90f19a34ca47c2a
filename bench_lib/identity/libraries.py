"""The CUDA libraries mapped into this process: path, SHA-256, and the version each says it has."""

import contextlib
import ctypes
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from bench_lib.faults.whole import whole
from bench_lib.stacking import cache
from bench_lib.stacking.stacks import StackEntry
from bench_lib.units import cuda_version_text, cudnn_version_text, nccl_version_text

MAPS = Path("/proc/self/maps")

# component -> what its file is called. Companions (cudnn_ops, nvrtc-builtins) come with their library.
_NAMES = {
    "cudart": re.compile(r"libcudart(?:-[0-9a-f]+)?\.so"),
    "cublas": re.compile(r"libcublas\.so"),
    "cublaslt": re.compile(r"libcublasLt\.so"),
    "cudnn": re.compile(r"libcudnn\.so"),
    "nccl": re.compile(r"libnccl\.so"),
    "nvrtc": re.compile(r"libnvrtc(?:-[0-9a-f]+)?\.so"),
    "triton": re.compile(r"libtriton\.so"),
}


def facts(stack: StackEntry) -> dict[str, str]:
    """`NAME.version NAME.path NAME.sha256` of each component that belongs to `stack`; `cudnn.cuda` too.

    One version of cuDNN is built for several CUDAs, and its libcudnn.so is the same file in all of them:
    what was built anew are its parts.
    """
    found = {}
    for component, paths in mapped().items():
        own = belonging(component, paths, stack)
        if not own:
            continue
        found[f"{component}.path"] = " + ".join(map(str, own))
        asked: dict[str, Callable[[Path], str]] = {
            "version": partial(version, component),
            "cuda": partial(version, f"{component}.cuda"),
            "sha256": sha256,
        }
        for key, ask in asked.items():
            answers = [answer for path in own if (answer := ask(path))]
            if answers:
                found[f"{component}.{key}"] = " + ".join(dict.fromkeys(answers))
    return found


class _Object(ctypes.Structure):
    """link.h, dl_phdr_info: the loader's counters stand in every entry."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("n_headers", ctypes.c_uint16),
        ("loads", ctypes.c_ulonglong),
        ("unloads", ctypes.c_ulonglong),
    )


_LOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Object), ctypes.c_size_t, ctypes.c_void_p)


def mapped_now() -> dict[str, tuple[Path, ...]]:
    """`mapped`, read again only when the loader has worked since: with torch loaded it takes milliseconds."""
    return _mapped_after(_loads())


@lru_cache(maxsize=1)
def _mapped_after(_counts: tuple[int, int]) -> dict[str, tuple[Path, ...]]:
    return mapped()


def _loads() -> tuple[int, int]:
    """How often the loader has loaded and unloaded a library so far."""
    seen: list[tuple[int, int]] = []

    def first(entry: Any, _nbytes: int, _data: Any) -> int:
        seen.append((entry.contents.loads, entry.contents.unloads))
        return 1  # asks for no more of them

    ctypes.CDLL(None).dl_iterate_phdr(_LOOK(first), None)
    return seen[0]


def mapped(maps: Path = MAPS) -> dict[str, tuple[Path, ...]]:
    """The mapped files of each component, by path."""
    named = [(path, path.name) for path in _files(maps)]
    found = {c: tuple(path for path, name in named if p.match(name)) for c, p in _NAMES.items()}
    return {component: paths for component, paths in found.items() if paths}


def with_parts(component: str) -> list[Path]:
    """The mapped files of a component and of what comes with it: cuDNN's parts, cuBLASLt.

    A copy that another package brought for itself (torchvision.libs) has a name of its own.
    """
    return [path for path in _files(MAPS) if re.match(rf"lib{component}[A-Za-z_]*\.so", path.name)]


def _files(maps: Path) -> list[Path]:
    """The mapped shared libraries, by path."""
    try:
        lines = maps.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [
        Path(file)
        for file in sorted({line.split(maxsplit=5)[5] for line in lines if ".so" in line and " /" in line})
    ]


def belonging(component: str, paths: Iterable[Path], stack: StackEntry) -> list[Path]:
    """Of a component's mapped files, those that are the stack's.

    A cudart stack's runtime is the one in its cache folder. In stack `here`, a case (the ladder) may
    load other runtimes by path, from the cache and from copies of it: only a file in a place where
    Python or the loader looks belongs to the stack. Of any other stack it is all that was loaded.
    """
    if stack.kind == "cudart":
        own = cache.folder(stack.name).resolve()
        return [p for p in paths if component != "cudart" or p.is_relative_to(own)]
    if stack.kind != "here":
        return list(paths)
    cached, places = (cache.root() / "stacks").resolve(), _places()
    return [p for p in paths if not p.is_relative_to(cached) and any(map(p.is_relative_to, places))]


def _places(variables: Mapping[str, str] = os.environ) -> list[Path]:
    listed = [*sys.path, *variables.get("LD_LIBRARY_PATH", "").split(":"), sys.prefix]
    listed += [variables.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    listed += ["/usr", "/lib", "/lib64", "/opt"]
    found = [Path(place).resolve() for place in listed if place]
    return [place for place in found if place != Path("/")]


def version(component: str, path: Path) -> str:
    """The version that a mapped library gives of itself, "" when it cannot say."""
    if component not in _ASK:
        return ""
    try:
        library = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return _ASK[component](library)
    except (OSError, AttributeError):
        return ""


def _integers(library: ctypes.CDLL, function: str, n: int = 1) -> list[int]:
    """What a function writes through its n integer pointers; OSError when it fails."""
    values = [ctypes.c_int() for _ in range(n)]
    if library[function](*map(ctypes.byref, values)):
        raise OSError(function)
    return [value.value for value in values]


def _cudart(library: ctypes.CDLL) -> str:
    (number,) = _integers(library, "cudaRuntimeGetVersion")
    return cuda_version_text(number)


def _nvrtc(library: ctypes.CDLL) -> str:
    return ".".join(map(str, _integers(library, "nvrtcVersion", 2)))


def _nccl(library: ctypes.CDLL) -> str:
    (number,) = _integers(library, "ncclGetVersion")
    return nccl_version_text(number)


def _cudnn(library: ctypes.CDLL) -> str:
    function = library["cudnnGetVersion"]
    function.restype = ctypes.c_size_t
    return cudnn_version_text(int(function()))


def cudnn_cuda(library: ctypes.CDLL) -> str:
    """The CUDA runtime that a loaded cuDNN was built with, such as "12.4"."""
    function = library["cudnnGetCudartVersion"]
    function.restype = ctypes.c_size_t
    return cuda_version_text(int(function()))


def _property(function: str) -> Callable[[ctypes.CDLL], str]:
    """library_types.h: libraryPropertyType is 0 major, 1 minor, 2 patch; needs no handle."""

    def ask(library: ctypes.CDLL) -> str:
        value = ctypes.c_int()
        parts = []
        for kind in range(3):
            if library[function](kind, ctypes.byref(value)):
                raise OSError(function)
            parts.append(str(value.value))
        return ".".join(parts)

    return ask


_ASK: Mapping[str, Callable[[ctypes.CDLL], str]] = {
    "cudart": _cudart,
    "cublas": _property("cublasGetProperty"),
    "cublaslt": _property("cublasLtGetProperty"),
    "cudnn": _cudnn,
    "cudnn.cuda": cudnn_cuda,
    "nccl": _nccl,
    "nvrtc": _nvrtc,
}


def sha256(path: Path) -> str:
    """The SHA-256 of a file, "" when it cannot be read; remembered by path, size and time.

    A library of torch has up to a gigabyte: it is hashed once a machine, not once a run.
    """
    try:
        state = path.stat()
        key = f"{path}|{state.st_size}|{state.st_mtime_ns}"
        known = _remembered()
        if key not in known:
            with path.open("rb") as stream:
                known[key] = hashlib.file_digest(stream, "sha256").hexdigest()
            _remember(known)
        return known[key]
    except OSError:
        return ""


def _file() -> Path:
    return cache.root() / "sha256.json"


def _remembered() -> dict[str, str]:
    try:
        found = json.loads(_file().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _remember(known: Mapping[str, str]) -> None:
    # A cache that cannot be written costs time only.
    with contextlib.suppress(OSError), whole(_file()) as stream:
        stream.write(json.dumps(known).encode())
