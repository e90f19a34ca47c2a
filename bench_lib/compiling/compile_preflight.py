"""What torch.compile needs besides torch, asked within a second: Triton, a compiler, Python.h.

Triton builds a launcher in C for each kernel signature; on the CPU Inductor builds its kernels in
C++. Without the tools both end in a long traceback after tens of seconds.
"""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from bench_lib.errors import Unavailable

_TRY_SECONDS = 20.0  # far over the second it takes; a compiler on a stalled file system ends too
_PROGRAM = "#include <stddef.h>\n#include <Python.h>\nint main(void) { return 0; }\n"
_INSTALL = "install gcc and g++, or name a compiler with"


def check(device: str, include: Path | None = None, what: str = "torch.compile") -> None:
    """Raise Unavailable, one sentence, when torch.compile cannot work on `device` (cuda or cpu).

    `include` is the folder of Python.h, by default this Python's own; `what` needs it all.
    """
    if device == "cuda" and importlib.util.find_spec("triton") is None:
        raise Unavailable(
            f"{what} needs Triton on a GPU and this Python has none; install the triton of this torch"
        )
    check_compiler(device, include, what)


def check_compiler(device: str, include: Path | None = None, what: str = "torch.compile") -> None:
    """The part of `check` about the compiler and Python.h."""
    variable, names = ("CC", ("gcc", "clang")) if device == "cuda" else ("CXX", ("g++",))
    compiler = _compiler(variable, names, what)
    headers = include or include_folder()
    if not (headers / "Python.h").is_file():
        raise Unavailable(
            f"{what} needs Python's headers and {headers} has no Python.h; "
            "install the development package of this Python (python3-dev, python3-devel)"
        )
    _try(compiler, "c" if device == "cuda" else "c++", headers, what)


def _compiler(variable: str, names: tuple[str, ...], what: str) -> list[str]:
    """The compiler that Triton (CC, else gcc, else clang) or Inductor (CXX, else g++) would take."""
    if chosen := os.environ.get(variable):
        command = shlex.split(chosen)
        if shutil.which(command[0]) is None:
            raise Unavailable(
                f"{what} needs a compiler and {variable}={chosen} is not there; correct {variable}"
            )
        return command
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        raise Unavailable(
            f"{what} needs a compiler and none of {', '.join(names)} is in PATH; {_INSTALL} {variable}"
        )
    return [found]


def include_folder() -> Path:
    """Where the Python.h of this Python should be."""
    # Debian's own scheme names /usr/local, where no header ever is; Triton corrects it likewise.
    scheme = sysconfig.get_default_scheme()
    return Path(sysconfig.get_paths("posix_prefix" if scheme == "posix_local" else scheme)["include"])


def _try(compiler: list[str], language: str, headers: Path, what: str) -> None:
    """Build a program of one line: an installation without its libc headers fails only here."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [*compiler, "-x", language, "-", f"-I{headers}", "-o", str(Path(scratch) / "program")]
        try:
            done = subprocess.run(
                command, input=_PROGRAM, capture_output=True, text=True, timeout=_TRY_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"{what} needs a compiler and {compiler[0]} does not run: {error}") from None
    if done.returncode != 0:
        said = next((line for line in done.stderr.splitlines() if "error" in line), "no reason given")
        raise Unavailable(
            f"{what} needs a compiler and {compiler[0]} fails on one line of it "
            f"({said.strip()}); repair it or install its headers"
        )
