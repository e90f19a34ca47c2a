"""PTX into machine code without a GPU, for the tests of kernels."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest


def ptxas() -> str:
    """An assembler: on the path, of a toolkit, or the one that Triton brings."""
    found = shutil.which("ptxas", path=None) or shutil.which("ptxas", path="/usr/local/cuda/bin")
    spec = importlib.util.find_spec("triton")
    if found is None and spec is not None and spec.origin:
        found = shutil.which("ptxas", path=Path(spec.origin).parent / "backends" / "nvidia" / "bin")
    if found is None:
        pytest.skip("no ptxas on this machine")
    return found


def assembled(ptx: str, sm: str, folder: Path) -> tuple[bytes, set[str]]:
    """The cubin of a text, and the names of its kernels; without a warning."""
    source, cubin = folder / "kernels.ptx", folder / "kernels.cubin"
    source.write_text(ptx)
    command = [ptxas(), f"-arch={sm}", "-v", "-o", cubin, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    return cubin.read_bytes(), set(re.findall(r"Compiling entry function '(\w+)'", done.stderr))
