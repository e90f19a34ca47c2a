"""`python -m bench_lib.identity.observe NAME` in a process of stack NAME: what its libraries say.

Prints one line of JSON: `facts` (as in a run's stack identity) and `broken`, the first promise of the
entry that does not hold, or what it declares and is not there; or `error`, one sentence. Needs no GPU.
"""

import ctypes
import importlib
import json
import os
import sys
from pathlib import Path

from bench_lib.convolution import cudnn_libraries
from bench_lib.errors import CudaGainsError, NotApplicable, UsageError
from bench_lib.identity import libraries, probe, promises
from bench_lib.stacking import environments, stacks
from bench_lib.stacking.stacks import PACKAGES, StackEntry

_NEEDED = ("pyarrow", "pytest_benchmark")  # by every process that measures

# What a stack without torch is loaded from by its users; each after those it needs.
_LIBRARIES = ("libcudart.so.*", "libnvrtc.so.*", "libcublasLt.so.*", "libcublas.so.*", "libnccl.so.*")


def observe(entry: StackEntry) -> dict[str, object]:
    """Load what the stack holds; its facts, and which promise does not hold.

    Raises CudaGainsError when something that belongs to the stack cannot be loaded.
    """
    environments.require(entry, os.environ)
    for package in _NEEDED:
        _import(package, "needed to measure")
    for package in PACKAGES:
        if stacks.holds(entry, package):
            _import(package, "declared" if package in stacks.declared(entry) else "")
    if not stacks.holds(entry, "torch"):
        _load(entry)
    facts = {**probe.python_facts(), **libraries.facts(entry)}
    return {"facts": facts, "broken": promises.broken(entry, facts) or promises.absent(entry, facts)}


def _import(package: str, why: str) -> None:
    """Import a package; without a `why` it may be missing."""
    try:
        importlib.import_module(package)
    except (ImportError, OSError) as error:  # OSError: a library it opens itself is missing
        if why:
            raise UsageError(f"{package} does not import ({error}); it is {why}") from None


def _load(entry: StackEntry) -> None:
    """Each library of a stack without torch by its full path."""
    if entry.kind == "cudart":
        _open(stacks.cached_library(entry))
        return
    for pattern in _LIBRARIES:
        for path in stacks.libraries(entry, pattern):
            _open(path)
    try:
        cudnn_libraries.load(cudnn_libraries.locate_cudnn(entry))
    except NotApplicable:
        return


def _open(path: Path) -> None:
    try:
        ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)
    except OSError as error:
        raise UsageError(f"{path} cannot be loaded: {error}") from None


def main() -> None:
    """Print the answer."""
    try:
        answer = observe(stacks.stack(sys.argv[1]))
    except CudaGainsError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))  # noqa: T201


if __name__ == "__main__":
    main()
