"""Where a cuDNN and the libraries it needs lie, and loading them by path in an order that works.

cuDNN opens its own parts and cuBLASLt by bare name when it first needs them, and ends the process
when it finds none. So what is missing is said before, and what is there is loaded by its full path.
"""

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path

from bench_lib.device.c_library import known_to_ldconfig, open_for_all
from bench_lib.errors import NotApplicable, Unavailable
from bench_lib.identity import libraries
from bench_lib.stacking.stacks import StackEntry, sites

# The parts a forward convolution goes through, each after those it needs.
_PARTS = {
    8: ("ops_infer", "cnn_infer"),
    9: ("graph", "ops", "cnn", "heuristic", "engines_precompiled", "engines_runtime_compiled"),
}


@dataclass(frozen=True)
class CudnnLibraries:
    """The path of libcudnn.so.N, and the folders with cuBLAS and NVRTC of its CUDA major."""

    cudnn: Path
    folders: tuple[Path, ...]

    @property
    def major(self) -> int:
        """cuDNN's major version, from the file's name."""
        found = re.fullmatch(r"libcudnn\.so\.(\d+)\S*", self.cudnn.name)
        if not found:
            raise Unavailable(f"{self.cudnn} is not named like a cuDNN; expected libcudnn.so.8 or .9")
        return int(found[1])


def locate_cudnn(stack: StackEntry) -> CudnnLibraries:
    """The cuDNN of a stack: the one in its nvidia/*/lib; for `here`, else ldconfig's.

    Raises Unavailable when there is none, NotApplicable for a stack that holds none. Imports no torch.
    """
    places = [] if stack.kind == "cudart" else [site / "nvidia" for site in sites(stack)]
    found = [path for place in places for path in sorted(place.glob("*/lib/libcudnn.so.*"))]
    if found:
        folders = [
            f for place in places for part in ("cublas", "cuda_nvrtc", "cu[0-9]*") for f in _lib(place, part)
        ]
        return CudnnLibraries(found[0], tuple(dict.fromkeys(folders)))
    if stack.kind != "here":
        raise NotApplicable(f"stack {stack.name} holds no cuDNN")
    known = known_to_ldconfig(r"lib(?:cudnn|cublas|cublasLt|nvrtc)\.so\.\S+")
    if cudnn := [path for path in known if path.name.startswith("libcudnn.so.")]:
        return CudnnLibraries(cudnn[0], tuple(dict.fromkeys(path.parent for path in known)))
    raise Unavailable(
        "no libcudnn here: none in site-packages/nvidia/cudnn/lib, none known to ldconfig; "
        "install torch's CUDA build or the package nvidia-cudnn"
    )


def _lib(place: Path, part: str) -> list[Path]:
    return sorted(place.glob(f"{part}/lib"))


def load(found: CudnnLibraries) -> ctypes.CDLL:
    """Load a cuDNN with everything a convolution needs; libcudnn itself is returned.

    All become visible to each other (RTLD_GLOBAL), so a process holds one cuDNN. Raises Unavailable,
    one sentence, when a part is missing, cannot be loaded, or another cuDNN is loaded already.
    """
    _refuse_another(found)
    folder, major = found.cudnn.parent, found.major
    if major not in _PARTS:
        raise Unavailable(f"{found.cudnn} is cuDNN {major}; this suite knows the parts of cuDNN 8 and 9")
    parts = [folder / f"libcudnn_{part}.so.{major}" for part in _PARTS[major]]
    if missing := [path for path in parts if not path.exists()]:
        raise Unavailable(f"{missing[0]} is missing; cuDNN {major} needs it beside {found.cudnn.name}")
    cudnn = open_for_all(found.cudnn)
    open_for_all(parts[0])  # enough for the version, and it needs no cuBLAS yet
    cuda = libraries.cudnn_cuda(cudnn).partition(".")[0]
    open_for_all(_cublaslt(found, cuda))
    for name in (f"libcublas.so.{cuda}", f"libnvrtc.so.{cuda}", f"libnvrtc.so.{cuda}.*"):
        for path in _in_folders(found, name)[:1]:
            open_for_all(path)
    for path in parts[1:]:
        open_for_all(path)
    return cudnn


def _cublaslt(found: CudnnLibraries, cuda: str) -> Path:
    name = f"libcublasLt.so.{cuda}"
    paths = _in_folders(found, name)
    if not paths:
        where = ", ".join(map(str, (found.cudnn.parent, *found.folders)))
        raise Unavailable(
            f"{found.cudnn} is built for CUDA {cuda} and would end the process without {name}, "
            f"which is not in {where}; put the cuBLAS of CUDA {cuda} beside it"
        )
    return paths[0]


def _in_folders(found: CudnnLibraries, name: str) -> list[Path]:
    return [path for folder in (found.cudnn.parent, *found.folders) for path in sorted(folder.glob(name))]


def _refuse_another(found: CudnnLibraries) -> None:
    wanted = found.cudnn.resolve()
    if others := [path for path in libraries.mapped().get("cudnn", ()) if path.resolve() != wanted]:
        raise Unavailable(
            f"this process has loaded {others[0]} already and its parts would mix with those of "
            f"{found.cudnn}; measure it in a process of its own"
        )
