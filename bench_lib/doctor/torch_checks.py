"""Does torch import, is it built for this GPU, and are the libraries it loads its own?"""

import re

from bench_lib import extras
from bench_lib.doctor.driver_checks import NO_GPU
from bench_lib.doctor.finding import Check, Finding, State, absent, fail, of_sentence, ok, warn
from bench_lib.doctor.snapshot import Snapshot
from bench_lib.running import preflight

_ARCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def _none(s: Snapshot) -> Finding:
    """Why there is no torch to ask."""
    if not s.torch.held:
        return absent(f"stack {s.stack} holds no torch")
    return absent("torch did not import")


def torch_import(s: Snapshot) -> Finding:
    """Does torch import (or, in a stack without it, do its libraries load), and if not, whose fault is it?"""
    torch = s.torch
    what = "importing torch" if torch.held else "the libraries"
    if torch.child.problem:
        mend = "install this stack's torch anew; if the disk is slow, give `--timeout` more seconds"
        return fail(f"the process {torch.child.story}", f"{what} in time and whole", s.shadowing or mend)
    if s.stack == "here" and "No module named 'torch'" in torch.error:
        return absent(f"torch is not installed; its cases are skipped; {extras.cure('torch')}")
    if torch.error:
        mend = "install the environment anew, with the wheels of one CUDA"
        return fail(torch.error.splitlines()[0], f"{what} to work", s.shadowing or mend)
    return ok(f"{torch.version} from {torch.file}" if torch.held else "the stack's libraries load")


def torch_build(s: Snapshot) -> Finding:
    """Is torch built for CUDA, where there is a GPU?"""
    if not s.torch.version:
        return _none(s)
    if s.torch.cuda:
        return ok(f"{s.torch.version}, for CUDA {s.torch.cuda}")
    found = f"{s.torch.version} is built for the CPU"
    mend = "install a build for CUDA: https://pytorch.org/get-started/locally"
    return fail(found, "a build for CUDA, because there is a GPU", mend) if s.nvidia else ok(found)


def torch_sees_gpu(s: Snapshot) -> Finding:
    """Is torch.cuda.is_available() true, as the driver says it should be?"""
    if not s.torch.version or not s.torch.cuda:
        return _none(s) if not s.torch.version else absent("built for the CPU")
    if s.torch.available:
        return ok(f"{s.torch.count} GPU: {s.torch.name}")
    said = f" ({s.torch.said.splitlines()[0]})" if s.torch.said else ""
    if not s.nvidia:
        return absent(NO_GPU)
    mend = (
        "see driver-version and driver-starts"
        if not s.driver.devices
        else "see torch-libraries and search-path"
    )
    return fail(f"torch.cuda.is_available() is False{said}", "True", mend)


def gpu_code(s: Snapshot) -> Finding:
    """Does the stack hold compiled code for this GPU, or at least PTX that the driver can compile?"""
    if s.device is None:
        return absent(NO_GPU)
    capability = s.device.compute_capability
    if not s.torch.archs:
        return _by_release(s, f"{s.device.name} (compute capability {capability})", capability)
    major, minor = map(int, capability.split("."))
    listed = [_ARCH.fullmatch(arch) for arch in s.torch.archs]
    arch = [(f[1], int(f[2]), int(f[3]), f[4]) for f in listed if f]
    found = f"compute capability {capability}, and code for {' '.join(s.torch.archs)}"
    if any(kind == "sm" and _runs(x, y, suffix, major, minor) for kind, x, y, suffix in arch):
        return ok(found)
    if any(kind == "compute" and not suffix and (x, y) <= (major, minor) for kind, x, y, suffix in arch):
        mend = "install a build for this GPU; meanwhile CUDA_CACHE_MAXSIZE=4294967296 keeps what was compiled"
        return warn(f"{found}: only PTX, which the driver compiles for minutes", "compiled code", mend)
    newer = all((x, y) < (major, minor) for _, x, y, _ in arch)
    age = "a newer" if newer else "an older"
    mend = f"install {age} torch, or one for {age} CUDA"
    return fail(found, f"code for {capability}: 'no kernel image is available' otherwise", mend)


def _by_release(s: Snapshot, name: str, capability: str) -> Finding:
    """What the CUDA release is known to build for, where no list can be asked."""
    if not s.has_kernels or not s.cuda:
        return absent("the stack brings no compiled GPU code")
    if said := preflight.gpu_unknown(s.cuda, capability, name):
        return of_sentence(State.FAIL, said)
    return ok(f"CUDA {s.cuda} builds for compute capability {capability}")


def _runs(x: int, y: int, suffix: str, major: int, minor: int) -> bool:
    """Compiled code runs on the same major from its minor on; "a" on its own GPU only."""
    return (x, y) == (major, minor) if suffix == "a" else x == major and y <= minor


CHECKS = tuple(map(Check, (torch_import, torch_build, torch_sees_gpu, gpu_code)))
