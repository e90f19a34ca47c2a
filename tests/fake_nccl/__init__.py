"""A pretended libnccl of any version, built from the C file beside this one, and its wheels."""

import platform
import subprocess
import zipfile
from pathlib import Path

from fake_cuda import compiler

SOURCE = Path(__file__).parent / "fake_nccl.c"
LIBRARY = "nvidia/nccl/lib/libnccl.so.2"


def build(site: Path, version: str = "2.21.5") -> Path:
    """SITE/nvidia/nccl/lib/libnccl.so.2 of a version; whoever comes second finds it there."""
    target = site / LIBRARY
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        major, minor, patch = map(int, version.split("."))
        flags = [
            "-std=gnu11",
            "-O2",
            "-shared",
            "-fPIC",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wl,-soname,libnccl.so.2",
        ]
        flags += [f"-DVERSION={major * 10000 + minor * 100 + patch}", "-o", str(target)]
        subprocess.run([str(compiler()), *flags, str(SOURCE), "-ldl", "-lrt"], check=True)
    return target


def write_wheel(site: Path, wheels: Path, version: str, cuda: int) -> Path:
    """WHEELS/nvidia_nccl_cu12-2.21.5-py3-none-manylinux1_x86_64.whl holding the library of SITE."""
    wheels.mkdir(parents=True, exist_ok=True)
    wheel = wheels / f"nvidia_nccl_cu{cuda}-{version}-py3-none-manylinux1_{platform.machine()}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(build(site, version), LIBRARY)
    return wheel
