"""A child in the stack's environment: torch, or without it the stack's libraries, as they load."""

import ctypes
import importlib
import mmap
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench_lib.doctor.speaking import begin, say, stage
from bench_lib.errors import CudaGainsError
from bench_lib.identity import libraries, observe, probe, promises
from bench_lib.stacking import stacks
from bench_lib.stacking.stacks import StackEntry

_PARTS = ("libcaffe2_nvrtc.so", "libtorch_cuda_linalg.so", "libc10_cuda.so")  # loaded only when needed


def main() -> None:
    """Say it."""
    (name,) = begin()
    entry = stacks.stack(name)
    if stacks.holds(entry, "torch"):
        _torch(entry)
    else:
        _libraries(entry)
    stage("asking cuDNN and NCCL what they are built for")
    say(built={name: cuda for name, ask in _BUILT.items() if (cuda := _first(name, ask))})


def _libraries(entry: StackEntry) -> None:
    stage("loading the stack's libraries")
    try:
        say(held=False, broken=observe.observe(entry)["broken"], libraries=_loaded())
    except CudaGainsError as error:
        say(held=False, error=str(error), libraries=_loaded())


def _torch(entry: StackEntry) -> None:
    stage("importing torch")
    try:
        torch: Any = importlib.import_module("torch")
    except BaseException as error:  # whatever a broken installation raises
        say(error=f"{type(error).__name__}: {error}", libraries=_loaded())
        return
    say(version=str(torch.__version__), file=str(torch.__file__), cuda=torch.version.cuda or "")
    stage("loading torch's parts")
    say(unresolved=[said for said in map(_unresolved, _parts(torch)) if said], libraries=_loaded())
    facts = {**probe.python_facts(), **libraries.facts(entry)}
    say(broken=promises.broken(entry, facts) or promises.absent(entry, facts))
    if torch.version.cuda:
        say(archs=torch.cuda.get_arch_list(), nccl=_nccl(torch))
        stage("asking torch for the GPU")
        _gpu(torch)
    else:
        say(available=False)


def _gpu(torch: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = bool(torch.cuda.is_available())
        say(
            available=available,
            count=torch.cuda.device_count(),
            said="\n".join(str(w.message) for w in caught),
        )
    if available:
        major, minor = torch.cuda.get_device_capability(0)
        archs = torch.cuda.get_arch_list()
        say(name=torch.cuda.get_device_name(0), compute_capability=f"{major}.{minor}", archs=archs)


def _parts(torch: Any) -> list[Path]:
    folder = Path(torch.__file__).parent / "lib"
    return [folder / name for name in _PARTS if (folder / name).exists()]


def _unresolved(part: Path) -> str:
    try:
        ctypes.CDLL(str(part))
    except OSError as error:
        return f"{part.name}: {error}"
    return ""


def _nccl(torch: Any) -> str:
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except Exception:  # a build without NCCL
        return ""


def _cudnn_cuda(path: Path) -> str:
    return libraries.cudnn_cuda(ctypes.CDLL(str(path)))


def _nccl_cuda(path: Path) -> str:
    """NCCL has no function for it, but says so in its own banner: "NCCL version 2.21.5+cuda12.4"."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
        found = re.search(rb"\+cuda(\d+\.\d+)", text)
        return found[1].decode() if found else ""


_BUILT: Mapping[str, Callable[[Path], str]] = {"cudnn": _cudnn_cuda, "nccl": _nccl_cuda}


def _first(component: str, ask: Callable[[Path], str]) -> str:
    try:
        return next((ask(path) for path in libraries.mapped().get(component, ())), "")
    except (OSError, AttributeError, ValueError):
        return ""


def _loaded() -> dict[str, list[list[str]]]:
    """Every CUDA library in this process, with the version it gives of itself."""
    return {
        component: [[str(path), libraries.version(component, path)] for path in paths]
        for component, paths in libraries.mapped().items()
        if component != "triton"
    }


if __name__ == "__main__":
    main()
