"""A pretended cuDNN 9 for tests, built from the C file beside this one, laid out as pip does it."""

from pathlib import Path

from fake_cuda import build_library

SOURCE = Path(__file__).parent / "fake_cudnn.c"
PARTS = ("graph", "ops", "cnn", "heuristic", "engines_precompiled", "engines_runtime_compiled")


def _build(target: Path, *options: str) -> Path:
    return build_library(SOURCE, target, "-O3", *options)


def build(site: Path, version: int = 90100, cudart: int = 12) -> Path:
    """SITE/nvidia/cudnn/lib/libcudnn.so.9 with its parts, and SITE/nvidia/cublas/lib/libcublasLt.so."""
    folder = site / "nvidia" / "cudnn" / "lib"
    built_for = (f"-DVERSION={version}", f"-DCUDART={cudart}")
    names = {"graph": ("-DGRAPH", *built_for), "engines_runtime_compiled": ("-DENGINES", *built_for)}
    for part in PARTS:
        _build(folder / f"libcudnn_{part}.so.9", *names.get(part, ()))
    _build(site / "nvidia" / "cublas" / "lib" / f"libcublasLt.so.{cudart}")
    return _build(folder / "libcudnn.so.9", "-DLIBRARY")
