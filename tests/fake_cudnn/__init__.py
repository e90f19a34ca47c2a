"""A pretended cuDNN 9 for tests, built from the C file beside this one, laid out as pip does it."""

import subprocess
from pathlib import Path

from fake_cuda import compiler

SOURCE = Path(__file__).parent / "fake_cudnn.c"
PARTS = ("graph", "ops", "cnn", "heuristic", "engines_precompiled", "engines_runtime_compiled")


def _build(target: Path, *options: str) -> Path:
    """Compile one library, once."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        flags = ["-std=gnu11", "-O3", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
        command = [
            str(compiler()),
            *flags,
            *options,
            f"-Wl,-soname,{target.name}",
            "-o",
            target,
            SOURCE,
            "-ldl",
        ]
        subprocess.run(list(map(str, command)), check=True)
    return target


def build(site: Path, version: int = 90100, cudart: int = 12) -> Path:
    """SITE/nvidia/cudnn/lib/libcudnn.so.9 with its parts, and SITE/nvidia/cublas/lib/libcublasLt.so."""
    folder = site / "nvidia" / "cudnn" / "lib"
    built_for = (f"-DVERSION={version}", f"-DCUDART={cudart}")
    names = {"graph": ("-DGRAPH", *built_for), "engines_runtime_compiled": ("-DENGINES", *built_for)}
    for part in PARTS:
        _build(folder / f"libcudnn_{part}.so.9", *names.get(part, ()))
    _build(site / "nvidia" / "cublas" / "lib" / f"libcublasLt.so.{cudart}")
    return _build(folder / "libcudnn.so.9", "-DLIBRARY")
