"""A pretended CUDA whose managed memory moves: libcuda.so.1 and libcudarts on top of fake_cuda."""

import ctypes
from pathlib import Path

from fake_cuda import build_library, runtime_name, variables

SOURCES = Path(__file__).parent


class Call(ctypes.Structure):
    """What a pretended runtime was last called with: `struct Call` of fake_managed_cudart.c."""

    _fields_ = (
        ("name", ctypes.c_char * 32),
        ("pointer", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("advice", ctypes.c_int),
        ("type", ctypes.c_int),
        ("id", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
    )


def last_call(library: Path) -> Call:
    """The last call of the runtime loaded from this file."""
    return Call.in_dll(ctypes.CDLL(str(library)), "managed_call")


def last_error(library: Path) -> int:
    """The error that cudaGetLastError of this runtime would give."""
    return ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "last_error").value


def build_driver(folder: Path) -> Path:
    """FOLDER/driver/libcuda.so.1."""
    return build_library(SOURCES / "fake_managed_cuda.c", folder / "driver" / "libcuda.so.1")


def build_runtime(folder: Path, version: str) -> Path:
    """FOLDER/cudart-X.Y/nvidia/.../libcudart.so.X of one version ("12.4")."""
    major, minor = version.split(".")[:2]
    target = folder / f"cudart-{major}.{minor}" / runtime_name(version)
    return build_library(SOURCES / "fake_managed_cudart.c", target, f"-DMAJOR={major}", f"-DMINOR={minor}")


def environment(built: Path, scratch: Path, version: str = "13.0") -> dict[str, str]:
    """Variables that put a new process onto this CUDA, with that runtime as the one of stack `here`."""
    return variables(build_driver(built), build_runtime(built, version), scratch)
