"""A child in the stack's Python: what is installed, and whether it can compile. Imports none of it."""

import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from bench_lib.compiling import compile_preflight
from bench_lib.doctor.speaking import begin, say, stage
from bench_lib.errors import Unavailable

_NAMES = re.compile(
    r"torch|torchvision|triton|pytorch-triton|cupy(-.*)?|nvidia-.*|cuda-.*|cupti-python|numba|numpy|pyarrow|"
    r"pytest|pytest-benchmark|jupyterlab|notebook|onnx|onnxruntime(-.*)?|onnxscript"
)
_CONDA = ("pytorch-", "libtorch-", "cuda-cudart-", "cuda-version-", "cudatoolkit-", "cudnn-", "nccl-")


def main() -> None:
    """Say it."""
    begin()
    stage("listing what is installed")
    say(
        executable=sys.executable,
        version=platform.python_version(),
        prefix=sys.prefix,
        distributions=list(distributions()),
        conda=conda(Path(sys.prefix)),
        headers=str(headers()) if (headers() / "Python.h").is_file() else "",
    )
    stage("compiling one line of C")
    say(compilers={device: _compiler(device) for device in ("cuda", "cpu")})


def distributions() -> Iterator[dict[str, object]]:
    """What is installed of the packages that matter, in the order in which Python finds it."""
    for one in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", str(one.metadata["Name"] or "")).lower()
        if _NAMES.fullmatch(name):
            yield {
                "name": name,
                "version": str(one.version),
                "folder": str(one.locate_file("")),
                "requires": one.requires or [] if name in ("torch", "torchvision") else [],
                "installer": (one.read_text("INSTALLER") or "").strip(),
            }


def conda(prefix: Path) -> list[str]:
    """The CUDA packages that conda put into a prefix."""
    names = sorted(path.stem for path in prefix.glob("conda-meta/*.json"))
    return [name for name in names if name.startswith(_CONDA)]


def headers() -> Path:
    """Where Python.h should be."""
    return compile_preflight.include_folder()


def _compiler(device: str) -> str:
    try:
        compile_preflight.check_compiler(device)
    except Unavailable as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
