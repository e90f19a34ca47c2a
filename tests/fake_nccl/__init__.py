"""A pretended libnccl of any version, built from the C file beside this one, and its wheels."""

import platform
import zipfile
from pathlib import Path

from fake_cuda import build_library

SOURCE = Path(__file__).parent / "fake_nccl.c"
LIBRARY = "nvidia/nccl/lib/libnccl.so.2"


def build(site: Path, version: str = "2.21.5") -> Path:
    """SITE/nvidia/nccl/lib/libnccl.so.2 of a version; whoever comes second finds it there."""
    major, minor, patch = map(int, version.split("."))
    return build_library(SOURCE, site / LIBRARY, f"-DVERSION={major * 10000 + minor * 100 + patch}")


def write_wheel(site: Path, wheels: Path, version: str, cuda: int) -> Path:
    """WHEELS/nvidia_nccl_cu12-2.21.5-py3-none-manylinux1_x86_64.whl holding the library of SITE."""
    wheels.mkdir(parents=True, exist_ok=True)
    wheel = wheels / f"nvidia_nccl_cu{cuda}-{version}-py3-none-manylinux1_{platform.machine()}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(build(site, version), LIBRARY)
    return wheel
