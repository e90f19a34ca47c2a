"""A pretended cuBLAS for tests, built from the C file beside this one, laid out as pip does it."""

import subprocess
from pathlib import Path

from fake_cuda import compiler

SOURCE = Path(__file__).parent / "fake_cublas.c"


def build(site: Path, cuda: int = 12) -> Path:
    """SITE/nvidia/cublas/lib/libcublas.so.12 and the libcublasLt beside it."""
    folder = site / "nvidia" / "cublas" / "lib"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("libcublasLt", "libcublas"):
        target = folder / f"{name}.so.{cuda}"
        flags = ["-std=gnu11", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
        subprocess.run(
            [str(compiler()), *flags, f"-Wl,-soname,{target.name}", "-o", str(target), str(SOURCE)],
            check=True,
        )
    return target
