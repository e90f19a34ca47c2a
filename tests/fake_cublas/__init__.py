"""A pretended cuBLAS for tests, built from the C file beside this one, laid out as pip does it."""

from pathlib import Path

from fake_cuda import build_library

SOURCE = Path(__file__).parent / "fake_cublas.c"


def build(site: Path, cuda: int = 12) -> Path:
    """SITE/nvidia/cublas/lib/libcublas.so.12 and the libcublasLt beside it."""
    folder = site / "nvidia" / "cublas" / "lib"
    build_library(SOURCE, folder / f"libcublasLt.so.{cuda}")
    return build_library(SOURCE, folder / f"libcublas.so.{cuda}")
