"""What is wrong with a stack on this machine, found in its process before the first case.

Each check gives one sentence, "" when all is well: what was found, what is expected, what to do. Nothing
is imported, loaded or started for it. `cuda-gains doctor` asks the same.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench_lib.device import cudart
from bench_lib.errors import UsageError
from bench_lib.identity import machine
from bench_lib.model import CANARY
from bench_lib.stacking import stacks
from bench_lib.stacking.stacks import StackEntry

if TYPE_CHECKING:
    from bench_lib.device.gpu import Detected

Version = tuple[int, int]


class Finding(NamedTuple):
    """One thing that is wrong."""

    sentence: str
    fatal: bool  # whether measuring is refused; else it is said and measured all the same


# The oldest Linux driver on which programs of a CUDA major run, and the one a release came with. Source:
# NVIDIA, CUDA Toolkit Release Notes, "CUDA Toolkit and Corresponding Driver Versions", and CUDA
# Compatibility, "Minor Version Compatibility".
OLDEST_DRIVER = {11: "450.80", 12: "525.60", 13: "580"}
OWN_DRIVER = {(11, 8): "520.61", (12, 4): "550.54", (12, 6): "560.28", (13, 0): "580"}

# The compute capabilities that the compilers of a release, and the libraries they built, know; a newer
# minor of the same major runs the code of an older one. CUDA Toolkit Release Notes, "Deprecated
# Architectures"; nvcc's option --gpu-architecture.
_OLDEST_GPU: dict[int, Version] = {11: (3, 5), 12: (5, 0), 13: (7, 5)}
_NEWEST_GPU: dict[Version, int] = {(11, 0): 8, (11, 8): 9, (12, 8): 12}  # from release on: the major

# Wheels of NVIDIA's that have no -cuNN in their name from CUDA 13 on.
_UNSUFFIXED = frozenset(
    [
        "cublas",
        "cuda-cupti",
        "cuda-nvrtc",
        "cuda-runtime",
        "cufft",
        "curand",
        "cusolver",
        "cusparse",
        "nvjitlink",
    ]
)
_CUDA_LIBRARIES = {*stacks.SWAPPED, "cublaslt", "nvrtc"}  # what only a GPU can run, among the declared
_LIBRARY = re.compile(r"lib(?:cudart|cublas|cublasLt|cudnn\w*|nccl|nvrtc)\.so\.\d+[\d.]*")


def findings(
    entry: StackEntry, detected: "Detected", variables: Mapping[str, str] = os.environ
) -> list[Finding]:
    """Everything that is wrong with `entry` in this process; `detected` is the GPU that is measured.

    A stack that promises versions is refused for all of it but an old driver that still runs it; `here`,
    this Python as it is, is refused for nothing: its identity says what was loaded.
    """
    cuda, promises = cuda_of(entry), entry.kind != "here"
    found = [Finding(mixed_wheels(stacks.sites(entry)), promises)]
    if entry.kind not in ("cudart", "native"):  # which load all by path
        wheels = stacks.libraries(entry, "lib*.so.*")
        found.append(Finding(shadowing(variables.get("LD_LIBRARY_PATH", ""), wheels), promises))
    if detected.available and cuda:
        driver = machine.driver_version()
        found.append(Finding(driver_too_old(cuda, detected.driver_version, driver), promises))
        found.append(Finding(driver_older(cuda, detected.driver_version, driver), False))
        if has_kernels(entry):
            name = f"{detected.name} (compute capability {detected.compute_capability})"
            found.append(Finding(gpu_unknown(cuda, detected.compute_capability, name), promises))
    return [finding for finding in found if finding.sentence]


def without_gpu(entries: Iterable[StackEntry], detected: "Detected", asked_for_cpu: bool) -> str:
    """What is measured of some stacks where there is no GPU; "" where nothing is to be said.

    Somebody who asked for the CPU knows, but for stacks of which then nothing is left.
    """
    bare = [entry.name for entry in entries if _is_bare(entry)]
    if detected.available or (asked_for_cpu and not bare):
        return ""
    nothing = f"; of {', '.join(bare)}, CUDA libraries alone, that is at most {CANARY}" if bare else ""
    return f"no GPU: {detected.reason}; this campaign measures the CPU and skips what needs a GPU{nothing}"


def refuse_nothing(
    entries: Sequence[StackEntry], detected: "Detected", measured: Iterable[str], shipped: Iterable[str]
) -> None:
    """Raise UsageError where the stacks hold CUDA libraries alone and there is no GPU to run them.

    `measured`: the families that are asked for; of those that are `shipped` only the canaries have a case
    for such a stack. What somebody's own families have is not known.
    """
    measured = set(measured)
    known = bool(measured) and measured <= set(shipped) - {CANARY}
    if detected.available or not known or not all(map(_is_bare, entries)):
        return
    raise UsageError(
        f"there is no GPU ({detected.reason}), and of {', '.join(e.name for e in entries)}, CUDA libraries "
        "alone, nothing is measured without one; measure on a machine with a GPU, or name --family "
        f"{CANARY}, which has a case of the CPU"
    )


def _is_bare(entry: StackEntry) -> bool:
    return entry.base is None and bool(entry.declared) and entry.declared.keys() <= _CUDA_LIBRARIES


def cuda_of(entry: StackEntry) -> str:
    """The CUDA version a stack is made of ("12.4"): what it declares; of `here`, what torch is built for."""
    known = stacks.declared(entry)
    found = known.get("torch.cuda") or known.get("cudart") or ""
    return found or (cudart.torch_cuda() if "here" in (entry.kind, entry.base and entry.base.kind) else "")


def has_kernels(entry: StackEntry) -> bool:
    """Whether a stack brings compiled GPU code. A runtime alone does not: the driver compiles ours."""
    return entry.kind == "here" or bool({"torch", "cupy", "cublas", "cudnn"} & stacks.declared(entry).keys())


def mixed_wheels(sites: Iterable[Path]) -> str:
    """Wheels of several CUDA majors in one site-packages, where they overwrite each other's files."""
    for site in sites:
        majors: dict[str, str] = {}
        for info in sorted(site.glob("nvidia_*.dist-info")):
            name, _, version = info.name.removesuffix(".dist-info").partition("-")
            if (major := _major(name.replace("_", "-"), version)) is not None:
                majors.setdefault(major, f"{name.replace('_', '-')} {version}")
        if len(majors) > 1:
            return (
                f"{site} holds wheels of CUDA {' and '.join(sorted(majors))} ({', '.join(majors.values())}), "
                "expected one CUDA major; make the environment anew with one"
            )
    return ""


def _major(name: str, version: str) -> str | None:
    if found := re.search(r"-cu(\d\d)$", name):
        return found[1]
    unsuffixed = name.removeprefix("nvidia-") in _UNSUFFIXED and not version.startswith("0.")
    return "13" if unsuffixed else None


def shadowing(search_path: str, wheels: Iterable[Path]) -> str:
    """A folder of LD_LIBRARY_PATH with a library that the wheels of this stack have too."""
    own = {path.name: path for path in wheels if _LIBRARY.fullmatch(path.name)}
    for folder in filter(None, search_path.split(os.pathsep)):
        for name, wheel in own.items():
            other = Path(folder) / name
            if other.exists() and not other.samefile(wheel):
                return (
                    f"LD_LIBRARY_PATH holds {other}, which can be loaded in place of {wheel}; "
                    f"take {folder} out of LD_LIBRARY_PATH"
                )
    return ""


def driver_too_old(cuda: str, driver_cuda: str, driver: str = "") -> str:
    """A driver that programs of this CUDA do not run on. `driver_cuda`: the newest CUDA it knows."""
    wanted, known = _version(cuda), _version(driver_cuda)
    if known[0] >= wanted[0]:
        return ""
    return (
        f"the driver {_named(driver, driver_cuda)} is too old for CUDA {cuda}, which needs driver "
        f"{OLDEST_DRIVER.get(wanted[0], 'of its time')} or newer; update the driver, or choose a stack of "
        f"CUDA {known[0]}"
    )


def driver_older(cuda: str, driver_cuda: str, driver: str = "") -> str:
    """A driver older than this CUDA and of the same major: it runs programs, but compiles no PTX of it."""
    wanted, known = _version(cuda), _version(driver_cuda)
    if known[0] != wanted[0] or known >= wanted:
        return ""
    own = f" ({OWN_DRIVER[wanted]})" if wanted in OWN_DRIVER else ""
    return (
        f"the driver {_named(driver, driver_cuda)} is older than the one CUDA {cuda} came with{own}: it runs "
        "by minor-version compatibility, and code that is compiled at run time may fail"
    )


def gpu_unknown(cuda: str, capability: str, name: str) -> str:
    """A GPU that is too new or too old for the compiled kernels of this CUDA."""
    release, gpu = _version(cuda), _version(capability)
    newest = max((major for since, major in _NEWEST_GPU.items() if since <= release), default=gpu[0])
    oldest = _OLDEST_GPU.get(release[0], (0, 0))
    if gpu[0] > newest:
        return (
            f"{name} is too new for the kernels of CUDA {cuda}, which knows GPUs up to {newest}.x; "
            "choose a stack of a newer CUDA"
        )
    if gpu < oldest:
        return (
            f"{name} is too old for the kernels of CUDA {cuda}, which begin at {oldest[0]}.{oldest[1]}; "
            f"choose a stack of CUDA {release[0] - 1}"
        )
    return ""


def _named(driver: str, driver_cuda: str) -> str:
    return f"{driver} (CUDA {driver_cuda})" if driver else f"of CUDA {driver_cuda}"


def _version(text: str) -> Version:
    found = re.match(r"(\d+)(?:\.(\d+))?", text)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)
